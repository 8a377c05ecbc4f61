package proxy

import (
	"slices"
	"testing"

	"xpyd/gate"
	"xpyd/kvparams"
	"xpyd/router"
)

// Each value of a label has a name of its own.
func TestLabelsAreRegistered(t *testing.T) {
	l := labels()
	if l.Codes[codeNone] != "" {
		t.Errorf("no error is called %q: it would have a series", l.Codes[codeNone])
	}
	for set, names := range map[string][]string{
		"api": l.APIs, "outcome": l.Outcomes, "code": l.Codes[codeNone+1:], "path": l.Paths, "reason": l.Reasons,
		"phase": l.Phases, "end": l.Ends, "orphan": l.OrphanReasons, "leg": l.Legs,
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

// The reasons and codes of other packages keep their names.
func TestLabelsOfOthers(t *testing.T) {
	for why := range router.Reasons {
		if got := decided(why).String(); got != why.String() {
			t.Errorf("router's reason %q is counted as %q", why, got)
		}
	}
	for why := range kvparams.Reasons {
		if got := bypassed(why).String(); got != why.String() {
			t.Errorf("kvparams' reason %q is counted as %q", why, got)
		}
	}
	for why := range gate.Whys {
		if gateCode(why) == codeNone {
			t.Errorf("the gate's refusal %d has no code", why)
		}
	}
	for _, c := range []string{kvparams.CodeInvalidJSON, kvparams.CodeInvalidType, kvparams.CodeDuplicate, kvparams.CodeUnsupported} {
		if got := parseCode(&kvparams.Error{Code: c}).String(); got != c {
			t.Errorf("kvparams' code %q is answered as %q", c, got)
		}
	}
}
