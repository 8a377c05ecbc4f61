package cmd

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"xpyd/internal/racetest"
)

// mapped is a line of the figure in docs/design.md.
type mapped struct {
	name    string // a package, or with "/…" all packages below that folder
	imports []string
}

// mapLine matches a line of the figure: `package: what belongs there → imports`.
var mapLine = regexp.MustCompile(`^(\S+): .+ → (.+)$`)

// goList returns what the go command prints, line by line.
func goList(t *testing.T, dir string, args ...string) []string {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list"}, args...)...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list %v: %v", args, err)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

// readMap returns the figure under the heading Map.
func readMap(t *testing.T, root string) (lines []mapped) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, "docs", "design.md"))
	if err != nil {
		t.Fatal(err)
	}
	figure := regexp.MustCompile("(?s)\n## Map\n.*?\n```\n(.*?)\n```\n").FindStringSubmatch(string(b))
	if figure == nil {
		t.Fatal("docs/design.md has no figure under the heading Map")
	}
	for _, line := range strings.Split(figure[1], "\n") {
		m := mapLine.FindStringSubmatch(line)
		if m == nil {
			t.Fatalf("the map has a line that is not `package: what belongs there → imports`: %s", line)
		}
		entry := mapped{name: m[1]}
		if m[2] != "nothing" {
			entry.imports = strings.Split(m[2], ", ")
		}
		lines = append(lines, entry)
	}
	return lines
}

// place returns the line of the map that a package belongs to, or "" if there is none.
func place(lines []mapped, pkg string) string {
	for _, l := range lines {
		folder, below := strings.CutSuffix(l.name, "/…")
		if l.name == pkg || below && (pkg == folder || strings.HasPrefix(pkg, folder+"/")) {
			return l.name
		}
	}
	return ""
}

// codeMap returns what the packages import from each other, by the lines of the map.
func codeMap(t *testing.T, root, module string, lines []mapped) map[string][]string {
	t.Helper()
	short := func(path string) string {
		if path == module {
			return "main"
		}
		return strings.TrimPrefix(path, module+"/")
	}
	found := map[string]map[string]bool{}
	for _, row := range goList(t, root, "-f", `{{.ImportPath}}{{range .Imports}} {{.}}{{end}}`, "./...") {
		words := strings.Fields(row)
		from := place(lines, short(words[0]))
		if from == "" {
			t.Errorf("the map in docs/design.md lacks the package %s", short(words[0]))
			continue
		}
		if found[from] == nil {
			found[from] = map[string]bool{}
		}
		for _, path := range words[1:] {
			if !strings.HasPrefix(path, module+"/") {
				continue
			}
			if to := place(lines, short(path)); to != "" && to != from {
				found[from][to] = true
			}
		}
	}
	imports := map[string][]string{}
	for from, to := range found {
		imports[from] = slices.Sorted(maps.Keys(to))
	}
	return imports
}

// The figure in docs/design.md has each package with what it imports, and imports only point down.
func TestMap(t *testing.T) {
	racetest.SkipPure(t)
	t.Parallel()
	module := strings.Fields(goList(t, ".", "-m", "-f", "{{.Path}} {{.Dir}}")[0])
	root := module[1]
	lines := readMap(t, root)
	code := codeMap(t, root, module[0], lines)
	for i, l := range lines {
		got, ok := code[l.name]
		if !ok {
			t.Errorf("the map has %s, which is no package", l.name)
			continue
		}
		want := slices.Sorted(slices.Values(l.imports))
		if !slices.Equal(got, want) {
			t.Errorf("%s imports %s; the map says %s", l.name, strings.Join(got, ", "), strings.Join(want, ", "))
		}
		for _, to := range got {
			if slices.ContainsFunc(lines[:i], func(above mapped) bool { return above.name == to }) {
				t.Errorf("%s imports %s, which stands above it in the map", l.name, to)
			}
		}
	}
}

// readRooms returns the figure under the heading Rooms: the place of each room, from 0 at the top.
func readRooms(t *testing.T, root string) map[string]int {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, "docs", "design.md"))
	if err != nil {
		t.Fatal(err)
	}
	figure := regexp.MustCompile("(?s)\n## Rooms\n.*?\n```\n(.*?)\n```\n").FindStringSubmatch(string(b))
	if figure == nil {
		t.Fatal("docs/design.md has no figure under the heading Rooms")
	}
	rooms := map[string]int{}
	for i, line := range strings.Split(figure[1], "\n") {
		names, _, _ := strings.Cut(line, "  ")
		for _, name := range strings.Split(names, ", ") {
			rooms[name] = i
		}
	}
	return rooms
}

// Imports stay within a room or go down, and there are no other rooms than those of the figure.
func TestRooms(t *testing.T) {
	racetest.SkipPure(t)
	t.Parallel()
	module := strings.Fields(goList(t, ".", "-m", "-f", "{{.Path}} {{.Dir}}")[0])
	rooms := readRooms(t, module[1])
	room := func(path string) string {
		if path == module[0] {
			return "main"
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(path, module[0]+"/"), "/")
		return name
	}
	for _, row := range goList(t, module[1], "-f", `{{.ImportPath}}{{range .Imports}} {{.}}{{end}}`, "./...") {
		words := strings.Fields(row)
		from := room(words[0])
		if _, ok := rooms[from]; !ok {
			t.Errorf("%s is in no room of docs/design.md", words[0])
		}
		for _, path := range words[1:] {
			if to := room(path); strings.HasPrefix(path, module[0]+"/") && to != from && rooms[to] <= rooms[from] {
				t.Errorf("%s imports %s, which is not below it", words[0], path)
			}
		}
	}
}
