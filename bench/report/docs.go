package report

import (
	"fmt"
	"os"
	"strings"
)

// Splice puts text between two marks of a file, each a line with its end.
func Splice(path, begin, end, text string) error {
	old, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("put the tables into the documentation: %w", err)
	}
	before, rest, ok1 := strings.Cut(string(old), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		return fmt.Errorf("put the tables into the documentation: %s has no %q and %q", path, strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	if err := os.WriteFile(path, []byte(before+begin+"\n"+text+"\n"+end+after), 0o644); err != nil {
		return fmt.Errorf("put the tables into the documentation: %w", err)
	}
	return nil
}
