package router

import (
	"testing"
	"testing/synctest"
	"time"
)

// wakeRouter has the clock of the bubble, and decode caps of 1. All decode backends but the first are full.
func wakeRouter(t *testing.T, prefill, decode int) (*Router, *Snapshot) {
	t.Helper()
	cfg := DefaultConfig()
	cfg.Prefill, cfg.Decode = urls("p", prefill), urls("d", decode)
	cfg.PrefillPolicy, cfg.DecodePolicy, cfg.DecodeMaxInFlight = "least_request", "least_request", 1
	r, err := New(cfg, 1, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	s := r.Snapshot()
	for _, b := range s.Backends(Decode)[1:] {
		leaseOn(t, s, b)
	}
	return r, s
}

// A request that waits beside a free backend gets it as soon as what kept it away ends, though no other request comes
// or goes: an ejection or a ban runs out, or ends before its time.
func TestWaiterIsServedWhenABackendReturns(t *testing.T) {
	ban := func(r *Router, x Pair) {
		for range kvFailures {
			r.Pairs().Failed(x)
		}
	}
	for name, tc := range map[string]struct {
		begin func(t *testing.T, r *Router, x Pair) // before the wait
		later func(r *Router, x Pair)               // 10 s after that; may be nil
		after time.Duration
	}{
		"an ejection runs out": {func(_ *testing.T, r *Router, x Pair) { r.Eject(x.Decode, EjectStall) }, nil, 30 * time.Second},
		"a longer one ran before": {func(t *testing.T, r *Router, x Pair) {
			other := r.Snapshot().Backends(Decode)[1]
			other.ejections.Store(2) // the third lasts longer
			r.Eject(other, EjectStall)
			time.Sleep(time.Second)
			r.Eject(x.Decode, EjectStall)
		}, nil, 30 * time.Second},
		"a shorter one ran before": {func(t *testing.T, r *Router, x Pair) {
			r.Eject(r.Snapshot().Backends(Decode)[1], EjectStall)
			time.Sleep(10 * time.Second)
			r.Eject(x.Decode, EjectStall)
		}, nil, 30 * time.Second},
		"the engine restarts": {func(_ *testing.T, r *Router, x Pair) { r.Eject(x.Decode, EjectStall) }, func(_ *Router, x Pair) { x.Decode.Reset() }, 10 * time.Second},
		"a ban runs out":      {func(_ *testing.T, r *Router, x Pair) { ban(r, x) }, nil, banFor},
		"a probe comes to nothing": {func(t *testing.T, r *Router, x Pair) {
			ban(r, x)
			time.Sleep(banFor + 5*time.Second) // the ban has run out, and nobody waits
			var probe Lease
			if err := r.Snapshot().AcquireFor(Want{Role: Decode, Tokens: 1}, &probe); err != nil || probe.Backend != x.Decode {
				t.Fatal(probe.Backend, err)
			}
			probe.Release(ClientGone)
		}, nil, banFor},
		"a warm-up is the probe and hangs": {func(_ *testing.T, r *Router, x Pair) {
			ban(r, x)
			time.Sleep(banFor - time.Second)
			x.Prefill.force(Up)
			x.Decode.force(Up)
			r.Pairs().WarmUps(r.Snapshot())
		}, nil, banFor},
		"the pair works":                 {func(_ *testing.T, r *Router, x Pair) { ban(r, x) }, func(r *Router, x Pair) { r.Pairs().Worked(x) }, 10 * time.Second},
		"a probe is not possible":        {func(_ *testing.T, r *Router, x Pair) { ban(r, x) }, func(r *Router, x Pair) { r.Pairs().Unprobed(x) }, 10 * time.Second},
		"the prefill engine restarts":    {func(_ *testing.T, r *Router, x Pair) { ban(r, x) }, func(_ *Router, x Pair) { x.Prefill.Reset() }, 10 * time.Second},
		"an ejection and then a ban end": {func(_ *testing.T, r *Router, x Pair) { ban(r, x); r.Eject(x.Decode, EjectStall) }, nil, banFor},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, s := wakeRouter(t, 1, 4)
				x := Pair{s.Backends(Prefill)[0], s.Backends(Decode)[0]}
				tc.begin(t, r, x)
				began := time.Now()
				var l Lease
				ended := wait(s, Want{Role: Decode, Tokens: 1}, &l, Line{1, time.Hour}, nil)
				if !pending(ended) {
					t.Fatalf("it does not wait: %v", <-ended)
				}
				if tc.later != nil {
					time.Sleep(10 * time.Second)
					tc.later(r, x)
				}
				err := <-ended
				if took := time.Since(began); err != nil || took != tc.after || l.Backend != x.Decode {
					t.Errorf("%v after %v, want it after %v", err, took, tc.after)
				}
			})
		})
	}
}

// A prefill backend whose models become known may make a decode backend of its connector useful.
func TestWaiterIsServedWhenAPartnerIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := twoConnectors(t, func(c *Config) { c.DecodeMaxInFlight = 1 })
		s := r.Snapshot()
		serves(s, Decode, "a", "a", "a")
		serves(s, Prefill, "a", "a", "b")
		for _, b := range s.Backends(Decode)[:2] {
			leaseOn(t, s, b)
		}
		var l Lease
		ended := wait(s, Want{Role: Decode, Model: []byte("a"), Tokens: 1}, &l, Line{1, time.Minute}, nil)
		if !pending(ended) {
			t.Fatalf("it does not wait: %v", <-ended)
		}
		s.Backends(Prefill)[2].SetModels([]string{"a"})
		if err := <-ended; err != nil || name(l.Backend) != "d3" {
			t.Errorf("it got %v", err)
		}
	})
}
