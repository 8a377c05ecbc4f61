package fault

import (
	"testing"

	"xpyd/intake/gate"
	"xpyd/intake/upload"
)

// Each refusal of the gate has a code.
func TestCodesOfTheGate(t *testing.T) {
	for why := range gate.Whys {
		if e := OfGate(&gate.Refusal{Status: 400, Why: why}); e.Code == CodeNone {
			t.Errorf("the gate's refusal %d has no code", why)
		}
	}
}

// A client that only has to wait is told when, or nothing. One whose request is wrong is told not to come back.
func TestClientsAreToldWhetherToTryAgain(t *testing.T) {
	for _, tc := range []struct {
		name  string
		e     *Error
		final bool
	}{
		{"400", OfGate(&gate.Refusal{Status: 400, Why: gate.InvalidHTTP}), true},
		{"405", OfGate(&gate.Refusal{Status: 405, Why: gate.Method}), true},
		{"408", OfUpload(upload.Late, 1), false},
		{"413", OfUpload(upload.TooLarge, 1), true},
		{"415", OfGate(&gate.Refusal{Status: 415, Why: gate.MediaType}), true},
		{"429", ErrClientLimit(), false},
		{"431", OfGate(&gate.Refusal{Status: 431, Why: gate.HeadersTooLarge}), true},
		{"500", ErrInternal(), false},
		{"503", OfUpload(upload.Spent, 1), false},
		{"505", OfGate(&gate.Refusal{Status: 505, Why: gate.Version}), true},
	} {
		if tc.e.NoRetry != tc.final {
			t.Errorf("%s: no retry %v, want %v", tc.name, tc.e.NoRetry, tc.final)
		}
	}
}
