package cmd

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"xpyd/internal/racetest"
)

// Each relative link of a document leads to a file, and to a heading if it names one.
func TestDocsLinks(t *testing.T) {
	racetest.SkipPure(t)
	t.Parallel()
	var pages []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/guides/*.md", "docs/results/*.md", "scripts/gpu/*.md", ".github/*.md"} {
		found, err := filepath.Glob(filepath.Join("..", pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range found {
			pages = append(pages, strings.TrimPrefix(f, "../"))
		}
	}
	for _, doc := range pages {
		for _, m := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(readText(t, doc), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			path, anchor, _ := strings.Cut(m[1], "#")
			target := doc
			if path != "" {
				target = filepath.Join(filepath.Dir(doc), path)
			}
			if _, err := os.Stat(filepath.Join("..", target)); err != nil {
				t.Errorf("%s links to %s, which is not there", doc, m[1])
				continue
			}
			if anchor != "" && !slices.Contains(anchors(readText(t, target)), anchor) {
				t.Errorf("%s links to %s, a heading that is not there", doc, m[1])
			}
		}
	}
}

// anchors returns the names by which headings can be linked.
func anchors(text string) (names []string) {
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
		name := regexp.MustCompile(`[^\p{L}\p{N}_ -]`).ReplaceAllString(strings.ToLower(m[1]), "")
		names = append(names, strings.ReplaceAll(name, " ", "-"))
	}
	return names
}
