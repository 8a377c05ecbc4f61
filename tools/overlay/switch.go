package overlay

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Planted is the variable of the environment by which a program chooses among the changes that Switches
// has built into it. Without it, nothing is changed.
const Planted = "PLANTED"

// Switches is many changes in one build. Each is a copy of the function that it changes, and
// the function calls the copy that Planted names. A build takes far longer than most tests.
type Switches struct {
	index  *Index
	copies map[string][]planted // by file, relative to the root
}

// planted is a changed copy of a function.
type planted struct {
	brace int    // where its body begins, behind the brace
	text  []byte // the copy, with a name of its own
	call  string // the branch of a switch that calls it
}

// NewSwitches has no changes yet.
func (x *Index) NewSwitches() *Switches {
	return &Switches{index: x, copies: map[string][]planted{}}
}

// Add adds a change, which Change describes, under a name of letters and digits. It reports false if
// the change is none of a function's body, or if a copy would not do the same as the function: recover
// works only in what is deferred itself.
func (s *Switches) Add(name, in, from, to string) (bool, error) {
	at, err := s.index.find(in, from)
	if err != nil {
		return false, err
	}
	source, err := os.ReadFile(filepath.Join(s.index.root, at.file))
	if err != nil {
		return false, err
	}
	whole := source[at.whole.begin:at.whole.end]
	text := slices.Concat(source[at.whole.begin:at.begin], respell([]byte(to), at.names), source[at.end:at.whole.end])
	before, head := function(whole)
	after, same := function(text)
	if before == nil || after == nil || !bytes.Equal(whole[:head], text[:min(same, len(text))]) {
		return false, nil
	}
	callee, args, ok := callOf(after, name)
	if !ok {
		return false, nil
	}
	id := int(after.Name.Pos()) - len(preamble) - 1
	p := planted{brace: at.whole.begin + head, call: callee + "(" + args + ")"}
	p.text = slices.Concat(text[:id], []byte(copyName(after, name)), text[id+len(after.Name.Name):])
	if after.Type.Results != nil {
		p.call = "return " + p.call
	} else {
		p.call += "; return"
	}
	p.call = fmt.Sprintf("case %q: %s; ", name, p.call)
	s.copies[at.file] = append(s.copies[at.file], p)
	return true, nil
}

// preamble makes a file of a declaration.
const preamble = "package p\n"

// function parses a declaration and returns it, with the length of its head and opening brace; or nil
// if it is no function with a body, or more than one.
func function(text []byte) (*ast.FuncDecl, int) {
	f, err := parser.ParseFile(token.NewFileSet(), "", preamble+string(text), parser.SkipObjectResolution)
	if err != nil || len(f.Decls) != 1 {
		return nil, 0
	}
	fn, ok := f.Decls[0].(*ast.FuncDecl)
	if !ok || fn.Body == nil {
		return nil, 0
	}
	return fn, int(fn.Body.Lbrace) - len(preamble)
}

func copyName(fn *ast.FuncDecl, name string) string { return fn.Name.Name + "Planted" + name }

// callOf is how a function calls a copy of itself with its own arguments. It is not ok if one of these
// has no name, or if the copy would not do the same.
func callOf(fn *ast.FuncDecl, name string) (callee, args string, ok bool) {
	if fn.Type.TypeParams != nil || fn.Name.Name == "init" || recovers(fn) {
		return "", "", false
	}
	callee = copyName(fn, name)
	if fn.Recv != nil {
		if len(fn.Recv.List[0].Names) == 0 || fn.Recv.List[0].Names[0].Name == "_" {
			return "", "", false
		}
		callee = fn.Recv.List[0].Names[0].Name + "." + callee
	}
	var all []string
	for _, field := range fn.Type.Params.List {
		if len(field.Names) == 0 {
			return "", "", false
		}
		for _, n := range field.Names {
			if n.Name == "_" {
				return "", "", false
			}
			arg := n.Name
			if _, rest := field.Type.(*ast.Ellipsis); rest {
				arg += "..."
			}
			all = append(all, arg)
		}
	}
	return callee, strings.Join(all, ", "), true
}

func recovers(fn *ast.FuncDecl) (found bool) {
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		found = found || ok && id.Name == "recover"
		return true
	})
	return found
}

// Files are the changed files and one more for each of their packages, by path, for Write.
func (s *Switches) Files() (map[string][]byte, error) {
	all := map[string][]byte{}
	for name, copies := range s.copies {
		path := filepath.Join(s.index.root, name)
		source, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, source, parser.PackageClauseOnly)
		if err != nil {
			return nil, err
		}
		all[path] = switched(source, copies)
		all[filepath.Join(filepath.Dir(path), "planted_switch.go")] = fmt.Appendf(nil,
			"package %s\n\nimport \"os\"\n\nvar plantedName = os.Getenv(%q)\n", f.Name.Name, Planted)
	}
	return all, nil
}

// switched is a file with its copies, and a switch at the start of each function that has some.
func switched(source []byte, copies []planted) []byte {
	calls := map[int]string{}
	for _, p := range copies {
		calls[p.brace] += p.call
	}
	slices.SortStableFunc(copies, func(a, b planted) int { return cmp.Compare(b.brace, a.brace) })
	changed, tail := slices.Clone(source), []byte(nil)
	for _, p := range copies {
		tail = slices.Concat(tail, []byte("\n"), p.text, []byte("\n"))
		if call, first := calls[p.brace]; first {
			delete(calls, p.brace)
			changed = slices.Concat(changed[:p.brace], []byte(" switch plantedName { "+call+"}; "), changed[p.brace:])
		}
	}
	return append(changed, tail...)
}
