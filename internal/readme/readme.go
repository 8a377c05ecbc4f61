// Package readme holds the sections of README.md that are made from the code, for the tests
// that compare them with it. Their packages lie directly below the module's root.
package readme

import (
	"os"
	"strings"
	"testing"
)

const path = "../README.md"

// Section is what stands between the markers of that name.
func Section(t testing.TB, name string) string {
	t.Helper()
	_, body := read(t, name)
	return body
}

// Check wants the section to be want, or, with update, writes it.
func Check(t testing.TB, name, want string, update bool) {
	t.Helper()
	text, got := read(t, name)
	if got == want {
		return
	}
	if !update {
		t.Fatalf("the table %s of README.md is not that of the code; run make docs", name)
	}
	text = strings.Replace(text, begin(name)+got, begin(name)+want, 1)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func begin(name string) string { return "<!-- " + name + ":begin -->\n" }

// read returns the whole text and the section in it.
func read(t testing.TB, name string) (text, body string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(b), begin(name))
	body, _, ok2 := strings.Cut(rest, "<!-- "+name+":end -->")
	if !ok || !ok2 {
		t.Fatalf("README.md has no section %s", name)
	}
	return string(b), body
}
