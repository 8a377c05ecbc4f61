package engines

import (
	"encoding/json"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"xpyd/engines/handoff"
	"xpyd/intake/budget"
	"xpyd/kvparams"
	"xpyd/netio/upstream"
	"xpyd/router"
)

// silentBackend takes requests and answers none.
func silentBackend(t *testing.T) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(io.Discard, c)
				_ = c.Close()
			}()
		}
	}()
	return ln.Addr().String()
}

// A pair whose ban ends is due once. If the first probes hang, the others still begin.
func TestEachProbeIsBegun(t *testing.T) {
	const pairs = warmAtOnce + 4
	rc := router.DefaultConfig()
	for range pairs {
		for _, pool := range []*[]router.Entry{&rc.Prefill, &rc.Decode} {
			*pool = append(*pool, router.MustEntries("http://"+silentBackend(t))...)
		}
	}
	var ahead atomic.Int64
	start := time.Now()
	rt, err := router.New(rc, 0.25, func() time.Time { return start.Add(time.Duration(ahead.Load())) })
	if err != nil {
		t.Fatal(err)
	}
	nixl, _ := kvparams.Lookup("nixl")
	guard := func(f func()) bool { f(); return true }
	var ledger handoff.Ledger
	var s *Set
	handoffs := handoff.NewKeeper(handoff.Config{
		KV: handoff.DefaultKV(), Dialects: kvparams.Reuse{}.Dialects(nixl), Answer: 1 << 20, MaxBroken: 2, Bodies: budget.NewBodies(1<<20, 1<<20, 1), Ledger: &ledger, Guard: guard,
		Engine: func(b *router.Backend) (*upstream.Client, *handoff.Places) { return s.Release(b) },
		Ended:  func(handoff.End) {}, Orphaned: func(handoff.Orphan) {},
	})
	s = New(Config{ // no Warmup, because the test makes the rounds
		Router: rt, Dialects: kvparams.Reuse{}.Dialects(nixl), Handoffs: handoffs, DecodeOnly: true, MaxShare: 1, Dial: time.Minute, MaxIdle: time.Second,
		Silence:    func() time.Duration { return time.Minute },
		AbortGrace: func() time.Duration { return 10 * time.Millisecond },
		Answer:     1 << 20, Guard: guard,
		WarmedUp: func(bool) {}, Polled: func(bool) {}, Ejected: func(_, _, _ string) {}, Forget: func(string) {},
	})
	s.Start()
	defer func() {
		s.Stop()
		handoffs.Close()
		s.Close()
	}()
	s.StopChecks()
	snap := rt.Snapshot()
	ps, ds := snap.Backends(router.Prefill), snap.Backends(router.Decode)
	for _, b := range append(append([]*router.Backend{}, ps...), ds...) {
		for b.State() != router.Up {
			b.Observe(true)
		}
		s.get(b).models.Store(&modelList{Data: []json.RawMessage{json.RawMessage(`{"id":"m"}`)}})
	}
	for i := range pairs {
		for range 3 {
			snap.Pairs().Failed(router.Pair{Prefill: ps[i], Decode: ds[i]})
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
