package cmd

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// What readers have to read stays short. Who adds a page or a paragraph takes out what it makes needless.
const (
	mostWords   = 45000 // of docs/*.md and docs/guides, which the packages contain
	mostLines   = 120   // of the README
	mostEntries = 25    // lines of one version in the changelog
)

func TestDocsBudget(t *testing.T) {
	words := 0
	for _, pattern := range []string{"docs/*.md", "docs/guides/*.md"} {
		pages, err := filepath.Glob(filepath.Join("..", pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, page := range pages {
			page = strings.TrimPrefix(page, "../")
			text := readText(t, page)
			words += len(strings.Fields(text))
			if page != "docs/README.md" && page != "docs/measured.md" && regexp.MustCompile(`\]\([./]*results/`).MatchString(text) {
				t.Errorf("%s links to docs/results, which packages lack: link to measured.md", page)
			}
		}
	}
	if words > mostWords {
		t.Errorf("docs/ has %d words for readers, at most %d", words, mostWords)
	}
	if n := strings.Count(readText(t, "README.md"), "\n"); n > mostLines {
		t.Errorf("README.md has %d lines, at most %d", n, mostLines)
	}
	for _, entry := range strings.Split(readText(t, "CHANGELOG.md"), "\n## ")[1:] {
		name, text, _ := strings.Cut(entry, "\n")
		if n := strings.Count(strings.TrimSpace(text), "\n") + 1; n > mostEntries {
			t.Errorf("CHANGELOG.md has %d lines for %s, at most %d; if a merge has brought old ones back, take the file of the other branch and add your line again", n, name, mostEntries)
		}
	}
}
