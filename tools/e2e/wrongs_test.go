package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"xpyd/tools/overlay"
)

func TestWrongsAreWellFormed(t *testing.T) {
	for _, w := range wrongs() {
		source, err := os.ReadFile(filepath.Join("..", "..", w.file))
		if err == nil {
			_, err = overlay.Plant(source, w.from, w.to)
		}
		if err != nil {
			t.Errorf("%s: %s: %v", w.name, w.file, err)
		}
		if !slices.ContainsFunc(checks(), func(c check) bool { return c.name == w.check }) {
			t.Errorf("%s: there is no check %q", w.name, w.check)
		}
	}
}
