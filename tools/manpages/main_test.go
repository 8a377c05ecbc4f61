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
	if err := write(dir); err != nil {
		t.Fatal(err)
	}
	for page, want := range map[string]string{"xpyd.1": "xpyd-serve(1)", "xpyd-serve.1": "--prefill", "xpyd-bench-serve.1": "--num-prompts"} {
		text, err := os.ReadFile(filepath.Join(dir, page))
		if err != nil {
			t.Error(err)
		} else if !strings.Contains(string(text), want) {
			t.Errorf("%s does not say %s", page, want)
		}
	}
}
