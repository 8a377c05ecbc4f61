package cmd

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"xpyd/internal/racetest"
)

// These are the sizes that CONTRIBUTING.md asks for, in lines. They hold for the product and for
// tools/, but not for tests. A function that is only a table may be longer.
const (
	mostFunction = 60
	mostFile     = 500
	mostMain     = 80
)

// source is one Go file that is no test.
type source struct {
	path      string // from the root
	lines     int
	functions []string // that are too long, with their sizes
}

// measure reads one file.
func measure(root, path string) (source, error) {
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		return source{}, err
	}
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, text, parser.SkipObjectResolution)
	if err != nil {
		return source{}, err
	}
	s := source{path: path, lines: strings.Count(string(text), "\n")}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || isTable(f) {
			continue
		}
		if n := fset.Position(f.End()).Line - fset.Position(f.Pos()).Line + 1; n > mostFunction {
			s.functions = append(s.functions, fmt.Sprintf("%s has %d lines", f.Name.Name, n))
		}
	}
	return s, nil
}

// isTable reports that a function does nothing but return a literal.
func isTable(f *ast.FuncDecl) bool {
	if f.Body == nil || len(f.Body.List) != 1 {
		return false
	}
	r, ok := f.Body.List[0].(*ast.ReturnStmt)
	if !ok || len(r.Results) != 1 {
		return false
	}
	_, ok = r.Results[0].(*ast.CompositeLit)
	return ok
}

// sources measures all Go files below root that are no tests.
func sources(root string) (all []source, err error) {
	err = filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		s, err := measure(root, rel)
		all = append(all, s)
		return err
	})
	return all, err
}

// oversize names what is larger than the house allows.
func oversize(all []source) (found []string) {
	for _, s := range all {
		most := mostFile
		if s.path == "main.go" {
			most = mostMain
		}
		if s.lines > most {
			found = append(found, fmt.Sprintf("%s has %d lines, more than %d", s.path, s.lines, most))
		}
		for _, f := range s.functions {
			found = append(found, fmt.Sprintf("%s: %s, more than %d", s.path, f, mostFunction))
		}
	}
	return found
}

func TestSizes(t *testing.T) {
	racetest.SkipPure(t)
	t.Parallel()
	root := goList(t, ".", "-m", "-f", "{{.Dir}}")[0]
	all, err := sources(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 100 {
		t.Fatalf("only %d files found below %s", len(all), root)
	}
	for _, what := range oversize(all) {
		t.Error(what)
	}
}

// Each bound names what breaks it.
func TestOversizeIsNamed(t *testing.T) {
	root := t.TempDir()
	write := func(path, text string) {
		t.Helper()
		full := filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	body := func(n int) string { return "package p\n\nfunc (T) f() {" + strings.Repeat("\n", n-1) + "}\n" }
	write("main.go", "package main\n"+strings.Repeat("//\n", mostMain))
	write("a/just.go", body(mostFunction))
	write("a/long.go", body(mostFunction+1))
	write("a/full.go", "package a\n"+strings.Repeat("//\n", mostFile-1))
	write("a/file.go", "package a\n"+strings.Repeat("//\n", mostFile))
	write("a/long_test.go", body(10*mostFunction))
	write("a/table.go", "package a\n\nfunc f() []int {\n\treturn []int{"+strings.Repeat("\n1,", mostFunction)+"\n}\n}\n")
	all, err := sources(root)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"a/file.go has 501 lines, more than 500",
		"a/long.go: f has 61 lines, more than 60",
		"main.go has 81 lines, more than 80",
	}
	if got := oversize(all); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("found\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
