package overlay

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Only returns the test files of the package in dir, by path, as they are with the tests keep alone
// and what these need. It leaves out nothing that a kept line names. A file without a rest is nil. The
// tests of a large package take longer to compile than the package, and most are not run.
func Only(dir string, keep ...string) (map[string][]byte, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return nil, fmt.Errorf("list the tests of %s: %w", dir, err)
	}
	n := &need{names: map[string]bool{"TestMain": true}}
	for _, name := range keep {
		n.names[name] = true
	}
	var files []*testFile
	for _, p := range paths {
		f, err := readTests(p)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
		n.waiting = append(n.waiting, f.parts...)
	}
	n.follow()
	only := map[string][]byte{}
	for _, f := range files {
		only[f.path] = f.rest()
	}
	return only, nil
}

// need is what is kept, by name, whatever the name stands for where it is used.
type need struct {
	names   map[string]bool
	waiting []*part // of which nobody has needed anything yet
}

// follow keeps what has a needed name, and then what that names in turn.
func (n *need) follow() {
	for grown := true; grown; {
		grown = false
		n.waiting = slices.DeleteFunc(n.waiting, func(p *part) bool {
			p.kept = slices.ContainsFunc(p.names, func(name string) bool { return name == "" || n.names[name] })
			if p.kept {
				grown = true
				mention(p.decl, n.names)
			}
			return p.kept
		})
	}
}

// mention adds the names that a node has anywhere.
func mention(node ast.Node, names map[string]bool) {
	ast.Inspect(node, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			names[id.Name] = true
		}
		return true
	})
}

// qualifiers adds the names of packages that a declaration uses, and those of variables, unless they
// are declared in it too.
func qualifiers(d ast.Decl, names map[string]bool) {
	own, found := map[string]bool{}, map[string]bool{}
	ast.Inspect(d, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && n.Sel.IsExported() {
				found[x.Name] = true
			}
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE {
				declare(own, n.Lhs...)
			}
		case *ast.RangeStmt:
			declare(own, n.Key, n.Value)
		case *ast.Field:
			for _, name := range n.Names {
				own[name.Name] = true
			}
		case *ast.ValueSpec:
			for _, name := range n.Names {
				own[name.Name] = true
			}
		}
		return true
	})
	for name := range found {
		if !own[name] {
			names[name] = true
		}
	}
}

func declare(names map[string]bool, all ...ast.Expr) {
	for _, e := range all {
		if id, ok := e.(*ast.Ident); ok {
			names[id.Name] = true
		}
	}
}

// testFile is a file and its declarations.
type testFile struct {
	path   string
	text   []byte
	set    *token.FileSet
	parsed *ast.File
	parts  []*part
}

// part is a declaration that is kept if one of its names is needed. The empty name always is.
type part struct {
	decl  ast.Decl
	doc   *ast.CommentGroup
	names []string
	kept  bool
}

func readTests(path string) (*testFile, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	f := &testFile{path: path, text: text, set: token.NewFileSet()}
	if f.parsed, err = parser.ParseFile(f.set, path, text, parser.ParseComments|parser.SkipObjectResolution); err != nil {
		return nil, err
	}
	for _, d := range f.parsed.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			f.parts = append(f.parts, &part{decl: d, doc: d.Doc, names: []string{neededFor(d)}})
		case *ast.GenDecl:
			if d.Tok != token.IMPORT {
				f.parts = append(f.parts, &part{decl: d, doc: d.Doc, names: blankAsEmpty(names(d))})
			}
		}
	}
	return f, nil
}

// neededFor is the name for which a function is kept. A method goes with its type, if that is
// declared among the tests. One that adds to a type of the package is always kept, as is init.
func neededFor(d *ast.FuncDecl) string {
	of := strings.Trim(receiver(d), "(*).")
	switch {
	case d.Recv == nil && d.Name.Name == "init", d.Recv != nil && ast.IsExported(of):
		return ""
	case d.Recv != nil:
		return of
	}
	return d.Name.Name
}

// blankAsEmpty has a declaration of _ kept, because it is there for what the compiler says of it.
func blankAsEmpty(names []string) []string {
	for i, n := range names {
		if n == "_" {
			names[i] = ""
		}
	}
	return names
}

// rest is the file without what nobody needs, or nil.
func (f *testFile) rest() []byte {
	used, everywhere := map[string]bool{}, map[string]bool{}
	rest, any := bytes.Clone(f.text), false
	for _, p := range f.parts {
		qualifiers(p.decl, everywhere)
		if p.kept {
			any = true
			qualifiers(p.decl, used)
			continue
		}
		f.blank(rest, p.decl)
		if p.doc != nil {
			f.blank(rest, p.doc)
		}
	}
	if !any {
		return nil
	}
	for _, d := range f.parsed.Decls {
		imports, ok := d.(*ast.GenDecl)
		if !ok || imports.Tok != token.IMPORT {
			continue
		}
		for _, s := range imports.Specs {
			name := importName(s.(*ast.ImportSpec))
			if everywhere[name] && !used[name] { // otherwise the name is one that cannot be told from the path
				f.blank(rest, s)
			}
		}
		if !imports.Lparen.IsValid() && len(bytes.TrimSpace(rest[f.at(imports.Pos())+len("import"):f.at(imports.End())])) == 0 {
			f.blank(rest, imports)
		}
	}
	return rest
}

func (f *testFile) at(p token.Pos) int { return f.set.Position(p).Offset }

// blank leaves a node's lines empty, so that the lines below it keep their numbers.
func (f *testFile) blank(text []byte, node ast.Node) {
	for i := f.at(node.Pos()); i < f.at(node.End()); i++ {
		if text[i] != '\n' {
			text[i] = ' '
		}
	}
}

var version = regexp.MustCompile(`^v[0-9]+$`)

// importName is the name by which a file uses an import.
func importName(s *ast.ImportSpec) string {
	if s.Name != nil {
		return s.Name.Name
	}
	whole := strings.Trim(s.Path.Value, "`\"")
	if last := path.Base(whole); version.MatchString(last) {
		return path.Base(path.Dir(whole))
	}
	return path.Base(whole)
}
