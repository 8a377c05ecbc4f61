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

// Write keeps the changed text of the file at path, which is absolute, in dir and returns
// the file for the compiler's -overlay.
func Write(dir, path string, changed []byte) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make a place for an overlay: %w", err)
	}
	planted := filepath.Join(dir, "planted.go")
	if err := os.WriteFile(planted, changed, 0o644); err != nil {
		return "", fmt.Errorf("write an overlay: %w", err)
	}
	text, err := json.Marshal(map[string]map[string]string{"Replace": {path: planted}})
	if err != nil {
		return "", fmt.Errorf("write an overlay: %w", err)
	}
	name := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(name, text, 0o644); err != nil {
		return "", fmt.Errorf("write an overlay: %w", err)
	}
	return name, nil
}
