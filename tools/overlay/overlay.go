// Package overlay changes a few words of a module's code for the Go compiler alone. It writes
// nothing in the tree. It finds the place by the declaration's name and its tokens, so that code
// may move to other files and packages.
package overlay

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// Write keeps the changed texts of files, whose paths are absolute, in dir and returns the file for
// the compiler's -overlay. To the compiler a file without a text is not there.
func Write(dir string, changed map[string][]byte) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make a place for an overlay: %w", err)
	}
	replace := make(map[string]string, len(changed))
	for path, text := range changed {
		if replace[path] = ""; text == nil {
			continue
		}
		replace[path] = filepath.Join(dir, fmt.Sprintf("%d.go", len(replace)))
		if err := os.WriteFile(replace[path], text, 0o644); err != nil {
			return "", fmt.Errorf("write an overlay: %w", err)
		}
	}
	text, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	if err != nil {
		return "", fmt.Errorf("write an overlay: %w", err)
	}
	name := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(name, text, 0o644); err != nil {
		return "", fmt.Errorf("write an overlay: %w", err)
	}
	return name, nil
}
