package router

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"
)

// bannedLine is a line of waiters in front of the first role backend, which has a slot unless full is set, and of the
// others, which have none. p1 and d1 are banned. Each look at the clock is a choice.
type bannedLine struct {
	prefill, decode int
	full            bool
	want            func(s *Snapshot, i int) Want
}

func (x bannedLine) make(t testing.TB, waiters int) (r *Router, role Role, choices *atomic.Int64) {
	t.Helper()
	choices = new(atomic.Int64)
	cfg := DefaultConfig()
	cfg.Prefill, cfg.Decode = urls("p", x.prefill), urls("d", x.decode)
	cfg.PrefillPolicy, cfg.DecodePolicy = "least_request", "least_request"
	cfg.PrefillMaxInFlight, cfg.DecodeMaxInFlight = 1, 1
	r, err := New(cfg, 1, func() time.Time { choices.Add(1); return time.Now() })
	if err != nil {
		t.Fatal(err)
	}
	s := r.Snapshot()
	for range kvFailures {
		r.Pairs().Failed(Pair{s.Backends(Prefill)[0], s.Backends(Decode)[0]})
	}
	role = x.want(s, 0).Role
	for i, b := range s.Backends(role) {
		if i > 0 || x.full {
			leaseOn(t, s, b)
		}
	}
	for i := range waiters {
		r.queues[role].join(r, &waiter{want: x.want(s, i), lease: new(Lease), ended: make(chan error, 1)}, waiters)
	}
	if n := r.Queued(role); n != int64(waiters) {
		t.Fatalf("%d wait", n)
	}
	return r, role, choices
}

var bannedLines = map[string]bannedLine{
	"decode, d1 has a slot": {1, 2, false, func(_ *Snapshot, i int) Want {
		return Want{Role: Decode, Model: []byte("a"), Flow: uint64(i)}
	}},
	"prefill, p1 has a slot": {2, 1, false, func(s *Snapshot, i int) Want {
		d := s.Backends(Decode)[0]
		return Want{Role: Prefill, Model: []byte("a"), Like: d, Peer: d, Flow: uint64(i)}
	}},
	"prefill without a model, p1 has a slot": {2, 1, false, func(s *Snapshot, i int) Want {
		d := s.Backends(Decode)[0]
		return Want{Role: Prefill, Like: d, Peer: d, Flow: uint64(i)}
	}},
	"decode, where each has tried d1": {1, 2, false, func(s *Snapshot, i int) Want {
		return Want{Role: Decode, Model: []byte("a"), Alone: true, Skip: s.Backends(Decode)[:1], Flow: uint64(i)}
	}},
	"prefill, where each has tried p1": {2, 1, false, func(s *Snapshot, i int) Want {
		d := s.Backends(Decode)[0]
		return Want{Role: Prefill, Like: d, Peer: d, Skip: s.Backends(Prefill)[:1], Flow: uint64(i)}
	}},
	"prefill for many, all full": {2, 32, true, func(s *Snapshot, i int) Want {
		d := s.Backends(Decode)[i%32]
		return Want{Role: Prefill, Like: d, Peer: d, Flow: uint64(i)}
	}},
}

// While a pair is banned, a slot that comes free does not have every waiter tried either.
func TestBannedPairDoesNotHaveAllTried(t *testing.T) {
	const waiters = 1000
	for name, line := range bannedLines {
		t.Run(name, func(t *testing.T) {
			r, role, choices := line.make(t, waiters)
			q := &r.queues[role]
			choices.Store(0)
			q.wake(r)
			if n := choices.Load(); n > 10 {
				t.Errorf("%d looks at the clock as nothing has come free", n)
			}
			choices.Store(0)
			r.Snapshot().Backends(role)[1].inflight.Add(-1)
			q.wake(r)
			if n := choices.Load(); n > 20 || q.waiting.Load() != waiters-1 {
				t.Errorf("%d looks at the clock for a slot, %d of %d still wait", n, q.waiting.Load(), waiters)
			}
		})
	}
}

// Waiters that a ban does not concern get what those before them may not have.
func TestBanHoldsUpNobodyElse(t *testing.T) {
	for name, w := range map[string]func(*Snapshot) Want{
		"alone": func(*Snapshot) Want { return Want{Role: Decode, Alone: true} },
		"with another peer": func(s *Snapshot) Want {
			return Want{Role: Decode, Peer: s.Backends(Prefill)[1]}
		},
	} {
		r, _, _ := bannedLine{2, 2, false, func(s *Snapshot, _ int) Want {
			return Want{Role: Decode, Peer: s.Backends(Prefill)[0]}
		}}.make(t, 10)
		ended := make(chan error, 1)
		var l Lease
		s := r.Snapshot()
		r.queues[Decode].join(r, &waiter{want: w(s), lease: &l, ended: ended}, 11)
		if len(ended) == 0 || <-ended != nil || l.Backend != s.Backends(Decode)[0] {
			t.Errorf("%s: does not get d1", name)
		}
	}
}

// A waiter that has tried the only backend left hears at once that there is none, however full that is.
func TestNobodyLeftIsToldAtOnce(t *testing.T) {
	r, _, _ := bannedLine{2, 2, true, func(*Snapshot, int) Want { return Want{Role: Decode} }}.make(t, 10)
	s, ended := r.Snapshot(), make(chan error, 1)
	d := s.Backends(Decode)
	r.queues[Decode].join(r, &waiter{want: Want{Role: Decode, Skip: d[:1]}, lease: new(Lease), ended: ended}, 11)
	if len(ended) > 0 {
		t.Fatalf("it does not wait: %v", <-ended)
	}
	d[1].force(Down)
	if len(ended) == 0 || <-ended != ErrNoBackend || r.Queued(Decode) != 10 {
		t.Errorf("it waits on, %d in all", r.Queued(Decode))
	}
}

// A queue in which one pair is banned. One operation is a release that serves one waiter, who joins again.
func BenchmarkBannedPair(b *testing.B) {
	for name, line := range bannedLines {
		for _, waiters := range []int{10, 1000} {
			b.Run(fmt.Sprintf("%s/%d", name, waiters), func(b *testing.B) {
				r, role, _ := line.make(b, waiters)
				q := &r.queues[role]
				second := r.Snapshot().Backends(role)[1]
				for b.Loop() {
					second.inflight.Add(-1)
					wt := q.line.next()
					q.wake(r)
					q.join(r, &waiter{want: wt.want, lease: new(Lease), ended: make(chan error, 1)}, waiters)
				}
			})
		}
	}
}
