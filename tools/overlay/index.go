package overlay

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Index knows the declarations of a module by name, and the packages of its tests. It finds
// code wherever it has been moved to.
type Index struct {
	root   string
	places map[string][]place  // by name, and by package.name
	called map[string][]place  // by the last part of the name, as if it were exported
	tests  map[string][]string // directories below root, likewise by the test's name
}

// place is one declaration of a file: its bytes from begin to end.
type place struct {
	file       string // relative to the root
	begin, end int
}

// Read parses the Go files of the module at root, but not those of modules below it.
func Read(root string) (*Index, error) {
	x := &Index{root: root, places: map[string][]place{}, called: map[string][]place{}, tests: map[string][]string{}}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			return skip(root, path, d.Name())
		case strings.HasSuffix(path, ".go"):
			return x.add(path)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the module: %w", err)
	}
	return x, nil
}

// skip is SkipDir for what go build ./... leaves out.
func skip(root, path, name string) error {
	if path == root {
		return nil
	}
	if name == "testdata" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") {
		return filepath.SkipDir
	}
	if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil {
		return filepath.SkipDir
	}
	return nil
}

func (x *Index) add(path string) error {
	name, err := filepath.Rel(x.root, path)
	if err != nil {
		return err
	}
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	test := strings.HasSuffix(name, "_test.go")
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && test && fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Test") {
			for _, n := range []string{fn.Name.Name, strings.TrimSuffix(f.Name.Name, "_test") + "." + fn.Name.Name} {
				x.tests[n] = append(x.tests[n], filepath.Dir(name))
			}
		}
		if test {
			continue
		}
		p := place{file: name, begin: set.Position(d.Pos()).Offset, end: set.Position(d.End()).Offset}
		for _, declared := range names(d) {
			for _, n := range []string{declared, f.Name.Name + "." + declared} {
				x.places[n] = append(x.places[n], p)
			}
			last := called(declared)
			x.called[last] = append(x.called[last], p)
		}
	}
	return nil
}

// names are the names by which a declaration is found: f, (*T).f, T.f, and each type, constant and
// variable of a group.
func names(d ast.Decl) []string {
	switch d := d.(type) {
	case *ast.FuncDecl:
		return []string{receiver(d) + d.Name.Name}
	case *ast.GenDecl:
		var all []string
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				all = append(all, s.Name.Name)
			case *ast.ValueSpec:
				for _, n := range s.Names {
					all = append(all, n.Name)
				}
			}
		}
		return all
	}
	return nil
}

// receiver is "(*T)." or "T.", without parameters of the type, or "" for a plain function.
func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	before, after := "", "."
	of := d.Recv.List[0].Type
	if star, ok := of.(*ast.StarExpr); ok {
		before, after, of = "(*", ").", star.X
	}
	switch t := of.(type) {
	case *ast.IndexExpr:
		of = t.X
	case *ast.IndexListExpr:
		of = t.X
	}
	if name, ok := of.(*ast.Ident); ok {
		return before + name.Name + after
	}
	return before + after
}

// TestDir is the directory of the package that has a test, relative to the root. Subtests follow
// after slashes. The package's name may be in front, with a dot.
func (x *Index) TestDir(test string) (string, error) {
	top, _, _ := strings.Cut(test, "/")
	if dirs := x.tests[top]; len(dirs) == 1 {
		return dirs[0], nil
	}
	return "", fmt.Errorf("%s stands %d times in the module, want once", top, len(x.tests[top]))
}
