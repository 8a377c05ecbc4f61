package proxy

import (
	"slices"
	"testing"

	"xpyd/engines/handoff"
	"xpyd/proxy/fault"
)

// Each value of a label has a name of its own.
func TestLabelsAreRegistered(t *testing.T) {
	l := labels()
	if l.Codes[fault.CodeNone] != "" {
		t.Errorf("no error is called %q: it would have a series", l.Codes[fault.CodeNone])
	}
	for set, names := range map[string][]string{
		"api": l.APIs, "outcome": l.Outcomes, "code": l.Codes[fault.CodeNone+1:], "path": l.Paths, "reason": l.Reasons,
		"phase": l.Phases, "end": l.Ends[handoff.Issued+1:], "orphan": l.OrphanReasons, "leg": l.Legs,
	} {
		if len(names) < 2 {
			t.Errorf("%s: %q: the test proves nothing", set, names)
		}
		for i, name := range names {
			if name == "" || slices.Index(names, name) != i {
				t.Errorf("%s: value %d of %q has no name of its own", set, i, names)
			}
		}
	}
}
