package cmd

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"xpyd/engines/journal"
	"xpyd/intake/routes"
	"xpyd/internal/docs"
	"xpyd/proxy/fault"
)

// update rewrites the generated parts of the documents (make docs).
var update = flag.Bool("update", false, "rewrite the generated parts of docs/")

// readText reads a file by its path from the module's root.
func readText(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", path))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// rowNames returns the `names` in the first column of a table.
func rowNames(table string) []string {
	var names []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)`").FindAllStringSubmatch(table, -1) {
		names = append(names, m[1])
	}
	slices.Sort(names)
	return names
}

func checkRows(t *testing.T, what string, rows, code []string) {
	t.Helper()
	slices.Sort(code)
	for _, name := range code {
		if !slices.Contains(rows, name) {
			t.Errorf("docs/ explains no %s %s", what, name)
		}
	}
	for i, name := range rows {
		if !slices.Contains(code, name) {
			t.Errorf("docs/ explains the %s %s, which the code does not have", what, name)
		}
		if i > 0 && rows[i-1] == name {
			t.Errorf("docs/ explains the %s %s twice", what, name)
		}
	}
}

func TestDocsErrorCodes(t *testing.T) {
	checkRows(t, "error code", rowNames(docs.Section(t, "errors")), fault.Names(fault.Codes)[fault.CodeNone+1:])
}

// Reasons are labels of xpyd_decisions_total.
func TestDocsReasons(t *testing.T) {
	checkRows(t, "reason", rowNames(docs.Section(t, "reasons")), fault.Names(fault.Reasons))
}

// The README names the routes of the data port.
func TestDocsRoutes(t *testing.T) {
	sentence := regexp.MustCompile(`(?s)The data port serves (.*?), and nothing\selse`).FindStringSubmatch(readText(t, "README.md"))
	if sentence == nil {
		t.Fatal("README.md has no sentence about the routes of the data port")
	}
	var named []string
	for _, m := range regexp.MustCompile("`(/[^`]+)`").FindAllStringSubmatch(sentence[1], -1) {
		named = append(named, m[1])
	}
	if !slices.Equal(named, routes.Paths()) {
		t.Errorf("README.md names the routes %q, the code has %q", named, routes.Paths())
	}
}

var (
	metricCall = regexp.MustCompile(`m\.(counterVec|counterFunc|counter|histogramVec|summaryVec|gauge)\("(xpyd_\w+)", "([^"]+)"(.*)`)
	metricDesc = regexp.MustCompile(`NewDesc\("(xpyd_\w+)", "([^"]+)"(.*)`)
	metricOpts = regexp.MustCompile(`Name: "(xpyd_\w+)", Help: "([^"]+)"(.*)`)
	metricName = regexp.MustCompile(`"(xpyd_\w+)"`)
	labelName  = regexp.MustCompile(`"([a-z_]+)"`)
)

// TestDocsMetricTable reads the metrics where they are registered, because a scrape would miss those
// that do not have a series at the start.
func TestDocsMetricTable(t *testing.T) {
	source := ""
	files, err := filepath.Glob("../metrics/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if !strings.HasSuffix(file, "_test.go") {
			source += readText(t, strings.TrimPrefix(file, "../"))
		}
	}
	rows := map[string]string{}
	add := func(name, kind, help, rest string) {
		var labels []string
		for _, m := range labelName.FindAllStringSubmatch(rest, -1) {
			labels = append(labels, m[1])
		}
		rows[name] = fmt.Sprintf("| `%s` | %s | %s | %s |\n", name, kind, strings.Join(labels, ", "), help)
	}
	for _, m := range metricCall.FindAllStringSubmatch(source, -1) {
		add(m[2], strings.TrimSuffix(strings.TrimSuffix(m[1], "Vec"), "Func"), m[3], m[4])
	}
	for _, m := range metricDesc.FindAllStringSubmatch(source, -1) {
		kind := "gauge"
		if strings.HasSuffix(m[1], "_total") {
			kind = "counter"
		}
		add(m[1], kind, m[2], m[3])
	}
	for _, m := range metricOpts.FindAllStringSubmatch(source, -1) {
		kind := "gauge"
		if strings.Contains(m[3], "Buckets:") {
			kind = "histogram"
		}
		add(m[1], kind, m[2], m[3])
	}
	for _, m := range metricName.FindAllStringSubmatch(source, -1) {
		if rows[m[1]] == "" {
			t.Errorf("package metrics registers %s in a form that this test does not know", m[1])
		}
	}
	var b strings.Builder
	b.WriteString("| metric | type | labels | meaning |\n|---|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		b.WriteString(rows[name])
	}
	docs.Check(t, "metrics", b.String(), *update)
}

// docs/admin.md has exactly the members that the pages of the admin port may have.
func TestDocsAdminPages(t *testing.T) {
	members, told := map[string]bool{}, map[string]bool{}
	for _, file := range []string{"admin/admin.go", "admin/backends.go", "admin/members.go", "admin/members/edit.go", "admin/why.go", "admin/events.go", "engines/journal/journal.go", "admin/advice.go", "admin/status.go", "admin/notices.go", "admin/desk/desk.go", "admin/desk/life.go", "admin/desk/failures.go", "admin/desk/recent.go", "admin/desk/history.go", "router/advice.go", "router/engine.go", "router/price/price.go"} {
		for _, m := range regexp.MustCompile(`json:"(\w+)`).FindAllStringSubmatch(readText(t, file), -1) {
			members[m[1]] = true
		}
	}
	for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]+`) \\|").FindAllStringSubmatch(readText(t, "docs/admin.md"), -1) {
		for _, m := range regexp.MustCompile("`(?:[\\w…]+\\.)?(\\w+)`").FindAllStringSubmatch(row[1], -1) {
			told[m[1]] = true
		}
	}
	for name := range members {
		if !told[name] {
			t.Errorf("docs/admin.md does not explain %s", name)
		}
	}
	for name := range told {
		if !members[name] {
			t.Errorf("docs/admin.md explains %s, which no page has", name)
		}
	}
}

// docs/events.md lists the kinds of events.
func TestDocsEvents(t *testing.T) {
	var b strings.Builder
	b.WriteString("| kind | meaning |\n|---|---|\n")
	for _, m := range journal.Meanings() {
		fmt.Fprintf(&b, "| %s | %s |\n", m.Kind, m.About)
	}
	docs.Check(t, "events", b.String(), *update)
}

// docs/events.md explains each message that the log may have, but those of events, whose kinds it has.
func TestDocsLogLines(t *testing.T) {
	page := readText(t, "docs/events.md")
	for _, room := range []string{"admin", "cmd", "engines", "intake", "metrics", "netio", "proxy", "router"} {
		err := filepath.WalkDir(filepath.Join("..", room), func(path string, _ os.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			for _, m := range regexp.MustCompile(`\.Msg\("([^"]+)"\)`).FindAllStringSubmatch(readText(t, strings.TrimPrefix(path, "../")), -1) {
				if !strings.Contains(page, "`"+m[1]+"`") {
					t.Errorf("docs/events.md does not explain the log line %q of %s", m[1], path)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// The make targets that the documents tell people to run exist.
func TestDocsMakeTargets(t *testing.T) {
	makefile := readText(t, "Makefile")
	pages, err := filepath.Glob("../docs/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatal("no pages", err)
	}
	further, _ := filepath.Glob("../docs/*/*.md")
	pages = append(pages, further...)
	for i := range pages {
		pages[i] = strings.TrimPrefix(pages[i], "../")
	}
	for _, doc := range append(pages, "README.md", "CONTRIBUTING.md", "SECURITY.md", ".ci/run") {
		for _, m := range regexp.MustCompile("(?m)(?:^|`)make ([a-z0-9 -]+)").FindAllStringSubmatch(readText(t, doc), -1) {
			for _, target := range strings.Fields(m[1]) {
				if !strings.Contains(makefile, "\n"+target+":") {
					t.Errorf("%s says make %s, which the Makefile lacks", doc, target)
				}
			}
		}
	}
}
