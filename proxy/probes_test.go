package proxy

import (
	"encoding/json"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

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

// A pair whose ban ends is due once: where the first probes hang, the others are begun all
// the same.
func TestEachProbeIsBegun(t *testing.T) {
	const pairs = warmAtOnce + 4
	rc := router.DefaultConfig()
	for range pairs {
		for _, pool := range []*[]string{&rc.Prefill, &rc.Decode} {
			*pool = append(*pool, "http://"+silentBackend(t))
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
		s.engines.get(b).models.Store(&modelList{Data: []json.RawMessage{json.RawMessage(`{"id":"m"}`)}})
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
