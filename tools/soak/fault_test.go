package soak

import (
	"io"
	"testing"
	"time"

	"xpyd/sim"
)

// A D that answers 500 frees nothing, and after the client has gone no other D is asked. If the
// client stays, it is no excuse, because another D can tell P.
func TestRefusalExcusesOnlyWhereTheClientLeft(t *testing.T) {
	engine, err := sim.Start(sim.Options{Name: "prefill-0", Role: sim.RolePrefill})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = engine.Close() }()
	now := time.Now()
	for _, tc := range []struct {
		entry, left string
		want        string
	}{
		{"chatcmpl-soak-3-7-56561f0c-afbfaa33", "soak-3-7", "decode sim status"},
		{"cmpl-soak-3-7-56561f0c-0-afbfaa33", "soak-3-7", "decode sim status"},
		{"cmpl-soak-3-7-56561f0c-0-afbfaa33", "soak-3-77", ""},
		{"cmpl-soak-3-7-56561f0c-0-afbfaa33", "", ""},
	} {
		b := newFaultBook(io.Discard, func(time.Time) bool { return false })
		b.file(&fault{Engine: "decode-1", Kind: "sim status", from: now, until: now})
		b.clientGone(tc.left)
		if got := b.excuse(leased{&station{Engine: engine}, sim.Entry{RequestID: tc.entry, PinnedAt: now, FreedAt: now.Add(kvLease)}}); got != tc.want {
			t.Errorf("%s, %q left: excuse %q, want %q", tc.entry, tc.left, got, tc.want)
		}
	}
}
