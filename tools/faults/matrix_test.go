package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// rowsWanted is how many rows the matrix has.
const rowsWanted = 33

func TestMatrixHasEveryRowOnce(t *testing.T) {
	rows := matrix()
	if len(rows) != rowsWanted {
		t.Errorf("%d rows, want %d", len(rows), rowsWanted)
	}
	for i, r := range rows {
		if want := fmt.Sprint("T", i+1); r.id != want || r.what == "" {
			t.Errorf("row %d is %q: %q, want %s with a text", i, r.id, r.what, want)
		}
		for _, test := range r.alone {
			if slices.Contains(r.tests, test) {
				t.Errorf("%s: %s needs a prefill, and does not", r.id, test)
			}
		}
	}
}

// A renamed test is found here, before the matrix is run.
func TestMatrixNamesTestsThatExist(t *testing.T) {
	have := map[string]map[string]bool{}
	for _, test := range testsOf(matrix()) {
		pkg, name := split(test)
		dir, ok := directory(pkg)
		if !ok {
			t.Errorf("%s: unknown package", test)
			continue
		}
		if have[pkg] == nil {
			have[pkg] = testFunctions(t, filepath.Join("..", "..", dir))
		}
		if top, _, _ := strings.Cut(name, "/"); !have[pkg][top] {
			t.Errorf("there is no %s", test)
		}
	}
}

func testFunctions(t *testing.T, dir string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Test") {
				found[fn.Name.Name] = true
			}
		}
	}
	return found
}
