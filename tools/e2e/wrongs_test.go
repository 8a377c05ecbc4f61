package main

import (
	"path/filepath"
	"slices"
	"testing"

	"xpyd/tools/overlay"
)

func TestWrongsAreWellFormed(t *testing.T) {
	index, err := overlay.Read(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range wrongs() {
		if _, _, err := index.Change(w.in, w.from, w.to); err != nil {
			t.Errorf("%s: %v", w.name, err)
		}
		if !slices.ContainsFunc(checks(), func(c check) bool { return c.name == w.check }) {
			t.Errorf("%s: there is no check %q", w.name, w.check)
		}
	}
}
