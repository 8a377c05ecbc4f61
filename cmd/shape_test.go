package cmd

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"xpyd/internal/racetest"
)

// These bounds are of shape: a type with more methods or fields is several types, and files that all need each other
// are one file.
const (
	mostMethods = 40 // of a type
	mostFields  = 30 // of a struct, with what it embeds counted once
	mostCycle   = 12 // files of a package that need each other
)

// overBound are the shapes above these bounds, with what each may have. A number only falls: one that is larger than
// the code needs fails too, and so does a row for what is within the bounds.
func overBound() map[string]int {
	return map[string]int{
		"cycle cmd/config":         16,
		"cycle cmd/migrate":        13,
		"cycle engines":            17,
		"cycle kvparams":           25,
		"cycle netio":              15,
		"cycle proxy":              25,
		"cycle router":             44,
		"cycle sim":                46,
		"fields cmd.benchFlags":    34,
		"fields proxy.Server":      41,
		"fields router.Backend":    39,
		"fields sim.Options":       35,
		"fields sim.request":       33,
		"methods bench/verify.run": 43,
		"methods cmd.engineProber": 41,
		"methods engines.Set":      70,
		"methods kvparams.Request": 84,
		"methods metrics.Metrics":  42,
		"methods netio.Socket":     48,
		"methods proxy.Server":     64,
		"methods router.Backend":   76,
		"methods router.Snapshot":  72,
		"methods sim.core":         69,
		"methods sim.generation":   119,
	}
}

// shape is what a package looks like: its figures by name, such as "cycle proxy" or "methods proxy.completion".
type shape map[string]int

// boundOf is the bound of a figure.
func boundOf(name string) int {
	if most, ok := overBound()[name]; ok {
		return most
	}
	kind, _, _ := strings.Cut(name, " ")
	return map[string]int{"methods": mostMethods, "fields": mostFields, "cycle": mostCycle}[kind]
}

// misshapen names the figures that are not what the bounds say.
func misshapen(s shape) (found []string) {
	for _, name := range slices.Sorted(maps.Keys(s)) {
		if n, most := s[name], boundOf(name); n > most {
			found = append(found, fmt.Sprintf("%s: %d, more than %d", name, n, most))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(overBound())) {
		if n := s[name]; n < overBound()[name] {
			found = append(found, fmt.Sprintf("%s: %d, so its row in overBound, which says %d, falls", name, n, overBound()[name]))
		}
	}
	return found
}

// exports finds the export data of packages, which the go command has built.
func exports(t *testing.T, root string) func(path string) (io.ReadCloser, error) {
	t.Helper()
	files := map[string]string{}
	for _, row := range goList(t, root, "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", "./...") {
		path, file, _ := strings.Cut(row, " ")
		files[path] = file
	}
	return func(path string) (io.ReadCloser, error) { return os.Open(files[path]) }
}

// measureShape adds the figures of a package, whose files are given.
func measureShape(s shape, fset *token.FileSet, imp types.Importer, name string, paths []string) error {
	var files []*ast.File
	for _, p := range paths {
		f, err := parser.ParseFile(fset, p, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files = append(files, f)
	}
	info := types.Info{Uses: map[*ast.Ident]types.Object{}}
	pkg, err := (&types.Config{Importer: imp}).Check(name, fset, files, &info)
	if err != nil {
		return err
	}
	for _, n := range pkg.Scope().Names() {
		named, ok := pkg.Scope().Lookup(n).Type().(*types.Named)
		if _, isType := pkg.Scope().Lookup(n).(*types.TypeName); !ok || !isType {
			continue
		}
		s["methods "+name+"."+n] = named.NumMethods()
		if st, ok := named.Underlying().(*types.Struct); ok {
			s["fields "+name+"."+n] = st.NumFields()
		}
	}
	needs := map[string]map[string]bool{}
	for id, obj := range info.Uses {
		if v, ok := obj.(*types.Var); obj.Pkg() != pkg || ok && (v.IsField() || v.Parent() != pkg.Scope()) {
			continue
		}
		from, to := fset.Position(id.Pos()).Filename, fset.Position(obj.Pos()).Filename
		if needs[from] == nil {
			needs[from] = map[string]bool{}
		}
		needs[from][to] = true
	}
	s["cycle "+name] = largestCycle(needs)
	return nil
}

// largestCycle is the size of the largest set of files in which each needs, perhaps through others, each other one.
func largestCycle(needs map[string]map[string]bool) int {
	reach := func(from string) map[string]bool {
		seen, line := map[string]bool{}, []string{from}
		for len(line) > 0 {
			next := line[0]
			line = line[1:]
			for to := range needs[next] {
				if !seen[to] {
					seen[to] = true
					line = append(line, to)
				}
			}
		}
		return seen
	}
	all := map[string]map[string]bool{}
	for f := range needs {
		all[f] = reach(f)
	}
	most := 1
	for f, to := range all {
		n := 0
		for g := range to {
			if all[g][f] {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

// The packages keep their shape.
func TestShapes(t *testing.T) {
	racetest.SkipPure(t)
	t.Parallel()
	module := strings.Fields(goList(t, ".", "-m", "-f", "{{.Path}} {{.Dir}}")[0])
	fset := token.NewFileSet()
	imp := importer.ForCompiler(fset, "gc", exports(t, module[1]))
	s := shape{}
	for _, row := range goList(t, module[1], "-f", "{{.ImportPath}} {{.Dir}}{{range .GoFiles}} {{.}}{{end}}", "./...") {
		words := strings.Fields(row)
		var paths []string
		for _, f := range words[2:] {
			paths = append(paths, filepath.Join(words[1], f))
		}
		if err := measureShape(s, fset, imp, strings.TrimPrefix(words[0], module[0]+"/"), paths); err != nil {
			t.Fatal(err)
		}
	}
	if len(s) < 500 {
		t.Fatalf("only %d figures", len(s))
	}
	for _, what := range misshapen(s) {
		t.Error(what)
	}
}

// A shape that is too large is named, and the cycle has the files that need each other, not those that are needed.
func TestMisshapenIsNamed(t *testing.T) {
	dir := t.TempDir()
	var paths []string
	write := func(name, text string) {
		paths = append(paths, filepath.Join(dir, name))
		if err := os.WriteFile(paths[len(paths)-1], []byte("package p\n"+text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var methods, fields strings.Builder
	for i := range mostMethods + 1 {
		fmt.Fprintf(&methods, "func (t *T) m%d() {}\n", i)
		fmt.Fprintf(&fields, "f%d int\n", i)
	}
	write("t.go", "type T struct {\n"+fields.String()+"}\n"+methods.String()+"func a() { b() }\n")
	for i := range mostCycle {
		write(fmt.Sprintf("u%d.go", i), fmt.Sprintf("func u%d() { u%d(); a() }\n", i, (i+1)%mostCycle))
	}
	write("b.go", "func b() { (*T).m0(nil) }\n")
	s := shape{}
	if err := measureShape(s, token.NewFileSet(), nil, "p", paths); err != nil {
		t.Fatal(err)
	}
	if s["cycle p"] != mostCycle || s["methods p.T"] != mostMethods+1 || s["fields p.T"] != mostMethods+1 {
		t.Errorf("%v", s)
	}
}
