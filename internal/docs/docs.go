// Package docs reads and writes the sections of the pages under docs/ that are held to the code,
// for the tests that compare the two.
package docs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// page is the document that holds the section of that name.
func page(name string) string {
	return map[string]string{
		"config":     "configuration.md",
		"metrics":    "metrics.md",
		"reasons":    "metrics.md",
		"errors":     "errors.md",
		"events":     "events.md",
		"versions":   "results/engines.md",
		"connectors": "connectors.md",
	}[name]
}

// path is where the page lies from the directory of the running test.
func path(t testing.TB, name string) string {
	t.Helper()
	up := "."
	for range 10 {
		if _, err := os.Stat(filepath.Join(up, "go.mod")); err == nil {
			return filepath.Join(up, "docs", page(name))
		}
		up = filepath.Join("..", up)
	}
	t.Fatal("no go.mod above this test")
	return ""
}

// Section is the text between the markers of that name.
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
		t.Fatalf("the table %s of %s is not that of the code; run make docs", name, page(name))
	}
	text = strings.Replace(text, begin(name)+got, begin(name)+want, 1)
	if err := os.WriteFile(path(t, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func begin(name string) string { return "<!-- " + name + ":begin -->\n" }

// read returns the whole text and the section in it.
func read(t testing.TB, name string) (text, body string) {
	t.Helper()
	b, err := os.ReadFile(path(t, name))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(b), begin(name))
	body, _, ok2 := strings.Cut(rest, "<!-- "+name+":end -->")
	if !ok || !ok2 {
		t.Fatalf("%s has no section %s", page(name), name)
	}
	return string(b), body
}
