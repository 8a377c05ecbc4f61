package router

import (
	"testing"
	"testing/synctest"
	"time"
)

// drain reloads twoConnectors' pools with some decode backends drained, by number.
func drain(t *testing.T, r *Router, policy string, these ...int) {
	t.Helper()
	cfg := DefaultConfig()
	cfg.Prefill, cfg.Decode = urls("p", 3), urls("d", 3)
	cfg.Prefill[2].Connector = "other"
	cfg.Decode[2].Connector = "other"
	for _, i := range these {
		cfg.Decode[i-1].State = Drain
	}
	cfg.PrefillPolicy, cfg.DecodePolicy, cfg.DecodeMaxInFlight = policy, policy, 1
	if _, err := r.Reload(cfg, 1, nil); err != nil {
		t.Fatal(err)
	}
}

// With several connectors, decode backends may all be drained, or the only one of a model. Then no policy has
// any to choose from.
func TestNoDecodeBackendIsReady(t *testing.T) {
	for _, policy := range Policies() {
		for name, tc := range map[string]struct {
			model   string
			drained []int
		}{
			"all drained":              {"", []int{1, 2, 3}},
			"the only one of a model":  {"b", []int{3}},
			"all, and they are listed": {"b", []int{1, 2, 3}},
		} {
			t.Run(policy+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := twoConnectors(t, func(c *Config) { c.PrefillPolicy, c.DecodePolicy, c.DecodeMaxInFlight = policy, policy, 1 })
					s := r.Snapshot()
					w := want(Decode, text(1, 4)...)
					w.Alone = false
					if tc.model != "" {
						serves(s, Prefill, "a,b", "a,b", "a,b")
						serves(s, Decode, "a", "a", "b")
						w.Model = []byte(tc.model)
					}
					for _, b := range s.Backends(Decode) {
						leaseOn(t, s, b)
					}
					var waits, l Lease
					ended := wait(s, w, &waits, Line{1, time.Minute}, nil)
					drain(t, r, policy, tc.drained...)
					if err := <-ended; err != ErrNoBackend || waits.Held() {
						t.Errorf("the wait ends with %v, held %v", err, waits.Held())
					}
					s = r.Snapshot()
					for _, key := range []uint64{0, 1} {
						w.Key = key
						if err := s.AcquireFor(w, &l); err != ErrNoBackend {
							t.Errorf("key %d: %v", key, err)
						}
						if b := s.Pick(w); b != nil {
							t.Errorf("key %d: picked %s", key, name)
						}
					}
				})
			})
		}
	}
}
