package proxy

import (
	"encoding/json"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"xpyd/router"
)

// A pair whose ban ends is due once: where the first probes hang, the others are begun all
// the same.
func TestEachProbeIsBegun(t *testing.T) {
	const pairs = warmAtOnce + 4
	rc := router.DefaultConfig()
	for range pairs {
		for _, pool := range []*[]string{&rc.Prefill, &rc.Decode} {
			silent := newScripted(t, func(int) (string, bool) { return "", false })
			*pool = append(*pool, "http://"+silent.ln.Addr().String())
		}
	}
	var ahead atomic.Int64
	start := time.Now()
	rt, err := router.New(rc, 0.25, func() time.Time { return start.Add(time.Duration(ahead.Load())) })
	if err != nil {
		t.Fatal(err)
	}
	cfg := DefaultConfig()
	cfg.Warmup = false // rounds are the test's
	cfg.Timeouts.PrefillAbortGrace = 10 * time.Millisecond
	s, err := New(cfg, rt, nil, "v", zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Shutdown() }()
	s.probes.close()
	snap := rt.Snapshot()
	ps, ds := snap.Backends(router.Prefill), snap.Backends(router.Decode)
	for _, b := range append(append([]*router.Backend{}, ps...), ds...) {
		for b.State() != router.Up {
			b.Observe(true)
		}
		s.upstreams.get(b).models.Store(&modelList{Data: []json.RawMessage{json.RawMessage(`{"id":"m"}`)}})
	}
	for i := range pairs {
		for range 3 {
			snap.PairFailed(ps[i], ds[i])
		}
	}
	ahead.Store(int64(59 * time.Second))
	s.warm.round(snap)
	s.warm.mu.Lock()
	defer s.warm.mu.Unlock()
	if begun := len(s.warm.busy); begun != pairs {
		t.Errorf("%d of %d probes were begun", begun, pairs)
	}
}
