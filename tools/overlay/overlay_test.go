package overlay

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// module writes files, by name, and indexes them.
func module(t *testing.T, files map[string]string) *Index {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	x, err := Read(root)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

const first = `package first

func (l *lease) end(o outcome) {
	if l.held { // once
		l.b.record(
			o)
		l.leave("a  b")
	}
}

func (s stack[T]) end() { s.n-- }

func twice() { f(); f() }

func shared() { g() }

const a, b = 1, 2
`

func TestChangeFindsTokensInTheFunction(t *testing.T) {
	x := module(t, map[string]string{
		"first/a.go": first, "second/b.go": "package second\n\nfunc shared() { g() }\n\nfunc other() { h() }\n",
		"second/b_test.go": "package second\n\nfunc other() { f() }\n", "below/go.mod": "module below\n", "below/c.go": "package below\n\nfunc below() {}\n",
	})
	for _, tc := range []struct{ in, from, to, file, want string }{
		{"(*lease).end", "l.held {", "false {", "first/a.go", "if false { // once"},
		{"(*lease).end", "l.b.record(o)", "", "first/a.go", "// once\n\t\t\n\t\tl.leave"},
		{"(*lease).end", "l.leave(\"a  b\")\n}\n}", "}}", "first/a.go", "o)\n\t\t}}\n\nfunc (s stack"},
		{"first.(*lease).end", "func (l *lease) end(o outcome) {", "func (l *lease) end(o outcome) { return", "first/a.go", "outcome) { return\n\tif l.held {"},
		{"stack.end", "s.n--", "s.n++", "first/a.go", "{ s.n++ }"},
		{"second.shared", "g()", "", "second/b.go", "func shared() {  }"},
		{"b", "1, 2", "2, 1", "first/a.go", "const a, b = 2, 1"},
		{"(*lease).end", `l.leave("a b")`, "", "", "0 times"},
		{"(*lease).end", "held", "hel", "first/a.go", "if l.hel {"},
		{"(*lease).end", "hel", "", "", "0 times"},
		{"twice", "f();", "g();", "first/a.go", "func twice() { g(); f() }"},
		{"twice", "f()", "", "", "2 times"},
		{"shared", "g()", "", "", "2 times"},
		{"other", "h()", "", "second/b.go", "func other() {  }"},
		{"(*slot).end", "s.n--", "s.n -= 2", "first/a.go", "{ s.n -= 2 }"},
		{"(*slot).End", "L.b.Record(o)", "o.Record(L.b)", "first/a.go", "o.record(l.b)"},
		{"third.Other", "H()", "H(1)", "second/b.go", "func other() { h(1) }"},
		{"(*slot).end", "{", "", "", "3 times"},
		{"below", "{}", "", "", "not declared"},
		{"twice", "", "", "", "no Go text"},
		{"twice", "'", "", "", "no Go text"},
	} {
		file, changed, err := x.Change(tc.in, tc.from, tc.to)
		switch {
		case tc.file == "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
			t.Errorf("%s, %q: error %v, want %q in it", tc.in, tc.from, err, tc.want)
		case tc.file != "" && (err != nil || file != tc.file || !strings.Contains(string(changed), tc.want)):
			t.Errorf("%s, %q: %s, error %v, want %q in\n%s", tc.in, tc.from, file, err, tc.want, changed)
		}
	}
}

func TestTestsAreFoundByName(t *testing.T) {
	x := module(t, map[string]string{
		"a_test.go":   "package a\n\nfunc TestOne(t *testing.T) {}\n\nfunc TestTwo(t *testing.T) {}\n",
		"b/b_test.go": "package b\n\nfunc TestTwo(t *testing.T) {}\n\nfunc TestThree(t *testing.T) {}\n",
	})
	for _, tc := range []struct{ test, want string }{{"TestOne/sub", "."}, {"TestThree", "b"}, {"TestTwo", ""}, {"b.TestTwo/sub", "b"}, {"TestNone", ""}} {
		if dir, err := x.TestDir(tc.test); dir != tc.want || (err != nil) != (tc.want == "") {
			t.Errorf("%s: %q, error %v", tc.test, dir, err)
		}
	}
}

func TestWriteKeepsTheTree(t *testing.T) {
	dir := t.TempDir()
	name, err := Write(filepath.Join(dir, "new"), map[string][]byte{"/x/a.go": []byte("package a\n"), "/x/b.go": nil})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(name)
	if err != nil || !strings.Contains(string(text), `"/x/a.go":"`+dir) || !strings.Contains(string(text), `"/x/b.go":""`) {
		t.Errorf("%s, error %v", text, err)
	}
}

func TestPatternPicksOneTest(t *testing.T) {
	if got := Pattern("TestA/nothing_but_[DONE]/x"); got != `^TestA$/^nothing_but_\[DONE\]$/^x$` {
		t.Error(got)
	}
}
