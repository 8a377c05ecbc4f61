package main

import (
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"xpyd/tools/overlay"
)

// A check that is in no usual run shows by faults that it can fail. They are planted only if they are asked for.
func TestWrongsOfNamedChecks(t *testing.T) {
	for _, c := range checks() {
		of := slices.DeleteFunc(wrongs(), func(w wrong) bool { return w.check != c.name })
		if c.named && len(of) == 0 {
			t.Errorf("no fault is planted for %s", c.name)
		}
		for _, w := range of {
			if w.picked(regexp.MustCompile("")) == c.named || !w.picked(regexp.MustCompile(regexp.QuoteMeta(w.name))) {
				t.Errorf("%s: picked without -run %v", w.name, !c.named)
			}
		}
	}
}

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
