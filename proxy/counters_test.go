package proxy_test

import (
	"slices"
	"strings"
	"testing"

	"xpyd/router"
)

// A backend that is removed and added goes on in its counters, also if nobody has looked at them meanwhile.
func TestCountersGoOnAfterARemoval(t *testing.T) {
	var pools router.Config
	r := newRig(t, rigOptions{prefill: 2, router: func(c *router.Config) { inTurn(c); pools = *c }})
	for range 8 {
		r.call(forms(prompt, 1)[0])
	}
	series := `xpyd_leg_requests_total{backend="` + r.prefill[1].URL() + `",leg="prefill",outcome="ok"}`
	if n := r.metric(series); n != 4 {
		t.Fatalf("%v legs, want 4", n)
	}
	without := pools
	without.Prefill = slices.Clone(pools.Prefill[:1])
	if err := r.server.Reload(without); err != nil {
		t.Fatal(err)
	}
	r.await("the end of the backend", func() bool { return strings.Contains(r.logs.String(), "backend has left") })
	if err := r.server.Reload(pools); err != nil {
		t.Fatal(err)
	}
	r.await("its legs", func() bool {
		r.call(forms(prompt, 1)[0])
		return len(r.prefill[1].Requests()) > 5
	})
	if n := r.metric(series); n < 5 {
		t.Errorf("%v legs, after 4 before the removal", n)
	}
}
