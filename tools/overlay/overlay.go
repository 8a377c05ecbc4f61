// Package overlay plants one changed file for the Go compiler alone: nothing in the tree
// is written.
package overlay

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// Plant returns source with to in the place of from, which must stand there once.
func Plant(source []byte, from, to string) ([]byte, error) {
	if n := bytes.Count(source, []byte(from)); n != 1 {
		return nil, fmt.Errorf("the text stands there %d times, want once:\n%s", n, from)
	}
	return bytes.Replace(source, []byte(from), []byte(to), 1), nil
}

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
