package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// There is a page for each command, and it has the command's flags.
func TestPages(t *testing.T) {
	dir := t.TempDir()
	if err := write("../../configs/default.yaml", dir); err != nil {
		t.Fatal(err)
	}
	for page, want := range map[string]string{"xpyd.1": "xpyd-serve(1)", "xpyd-serve.1": "--prefill", "xpyd-bench-serve.1": "--num-prompts",
		"xpyd.yaml.5": "\n\\fBtimeouts.drain\\fP (5m)\nafter TERM"} {
		text, err := os.ReadFile(filepath.Join(dir, page))
		if err != nil {
			t.Error(err)
		} else if !strings.Contains(string(text), want) {
			t.Errorf("%s does not say %s", page, want)
		}
	}
}

// xpyd(1) says what signals do, which files there are and what the exit status means, and ends with the other pages.
func TestFurtherSections(t *testing.T) {
	dir := t.TempDir()
	if err := write("../../configs/default.yaml", dir); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "xpyd.1"))
	if err != nil {
		t.Fatal(err)
	}
	at := 0
	for _, want := range []string{".SH SIGNALS\n", ".SH FILES\n", ".SH EXIT STATUS\n", ".SH SEE ALSO\n\\fBxpyd.yaml(5)\\fP, \\fBxpyd"} {
		next := strings.Index(string(text)[at:], want)
		if next < 0 {
			t.Fatalf("xpyd.1 lacks %q, or has it too early:\n%s", want, text)
		}
		at += next
	}
}
