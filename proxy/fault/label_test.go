package fault

import (
	"testing"

	"xpyd/kvparams"
	"xpyd/router"
)

// The reasons and codes of other packages keep their names.
func TestLabelsOfOthers(t *testing.T) {
	for why := range router.Reasons {
		if got := Decided(why).String(); got != why.String() {
			t.Errorf("router's reason %q is counted as %q", why, got)
		}
	}
	for why := range kvparams.Reasons {
		if got := Bypassed(why).String(); got != why.String() {
			t.Errorf("kvparams' reason %q is counted as %q", why, got)
		}
	}
	for _, c := range []string{kvparams.CodeInvalidJSON, kvparams.CodeInvalidForm, kvparams.CodeInvalidType, kvparams.CodeDuplicate, kvparams.CodeUnsupported} {
		if got := parseCode(&kvparams.Error{Code: c}).String(); got != c {
			t.Errorf("kvparams' code %q is answered as %q", c, got)
		}
	}
}
