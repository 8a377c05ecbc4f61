package router

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// fragile is a policy that panics about a prompt of 13 tokens, once it is broken.
type fragile struct {
	roundRobin
	broken *atomic.Bool
}

func (p fragile) pick(backends []*Backend, q query) *Backend {
	if q.tokens == 13 && p.broken.Load() {
		panic("thirteen")
	}
	return p.roundRobin.pick(backends, q)
}

// waitOrPanic is wait for one that may panic. It sends that as an error.
func waitOrPanic(s *Snapshot, w Want, l *Lease) <-chan error {
	ended := make(chan error, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				ended <- fmt.Errorf("panic: %v", p)
			}
		}()
		ended <- s.AcquireWait(w, l, Line{10, time.Minute}, nil)
	}()
	synctest.Wait()
	return ended
}

// A choice that panics ends the wait of its own request only, whoever makes it: one that releases a slot, one that
// joins the line, or a reload.
func TestPanicEndsItsOwnWaitOnly(t *testing.T) {
	for name, free := range map[string]func(t *testing.T, r *Router, held *Lease){
		"release": func(_ *testing.T, _ *Router, held *Lease) { held.Release(OK) },
		"reload":  func(t *testing.T, r *Router, _ *Lease) { reload(t, r, 0, 2) },
		"join": func(_ *testing.T, r *Router, held *Lease) {
			held.Backend.inflight.Add(-1) // a slot that comes free unseen
			waitOrPanic(r.Snapshot(), anyDecode, new(Lease))
			held.Backend.inflight.Add(1)
			held.Release(OK)
		},
	} {
		for _, degraded := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/degraded %v", name, degraded), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r, _ := newRouterOf(t, 0, 1, func(c *Config) { c.DecodeMaxInFlight = 1 })
					s := r.Snapshot()
					var broken atomic.Bool
					s.decode.policy = fragile{broken: &broken}
					held := leaseOn(t, s, s.Backends(Decode)[0])
					var bad, good Lease
					w := anyDecode
					w.Tokens, w.Degraded = 13, degraded
					first := waitOrPanic(s, w, &bad)
					second := waitOrPanic(s, anyDecode, &good)
					broken.Store(true)
					free(t, r, held)
					if !degraded || name != "join" { // only its own line is joined
						if err := <-first; err == nil || err.Error() != "panic: thirteen" || bad.Held() {
							t.Errorf("the bad one ends with %v, held %v", err, bad.Held())
						}
					}
					if err := <-second; err != nil || !good.Held() {
						t.Fatalf("the good one ends with %v, held %v", err, good.Held())
					}
					good.Release(OK)
					synctest.Wait()
					if n := r.degraded.Load(); n != 0 {
						t.Errorf("%d parts of the share are lost", n)
					}
				})
			})
		}
	}
}

// If the line itself panics, everybody in it hears of that, and the requests that follow wait as ever.
func TestBrokenLineIsDissolved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := newRouterOf(t, 0, 1, func(c *Config) { c.DecodeMaxInFlight = 1 })
		s, q := r.Snapshot(), &r.queues[Decode]
		held := leaseOn(t, s, s.Backends(Decode)[0])
		var leases [3]Lease
		first, second := waitOrPanic(s, anyDecode, &leases[0]), waitOrPanic(s, anyDecode, &leases[1])
		q.mu.Lock()
		q.line.moved = []*flow{nil}
		q.mu.Unlock()
		held.Release(OK)
		if err := <-first; err != nil || !leases[0].Held() {
			t.Errorf("the one that is served before it breaks: %v, held %v", err, leases[0].Held())
		}
		if err := <-second; err == nil || leases[1].Held() {
			t.Errorf("the other one: %v, held %v", err, leases[1].Held())
		}
		if n := q.waiting.Load(); n != 0 {
			t.Errorf("%d wait", n)
		}
		third := waitOrPanic(s, anyDecode, &leases[2])
		leases[0].Release(OK)
		if err := <-third; err != nil || !leases[2].Held() {
			t.Errorf("a later one: %v, held %v", err, leases[2].Held())
		}
	})
}
