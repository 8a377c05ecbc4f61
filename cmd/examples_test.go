package cmd

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The configurations of the examples are whole: xpyd check takes each of them as it stands.
func TestExamplesAreChecked(t *testing.T) {
	text := readText(t, "docs/guides/examples.md")
	blocks := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindAllStringSubmatch(text, -1)
	if len(blocks) < 8 {
		t.Fatalf("%d configurations", len(blocks))
	}
	for _, b := range blocks {
		path := filepath.Join(t.TempDir(), "config.yaml")
		if err := os.WriteFile(path, []byte(b[1]), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := runCheck("--config", path); err != nil || !strings.HasSuffix(out, "ok\n") {
			t.Errorf("%v\n%s\nof\n%s", err, out, b[1])
		}
	}
}
