package router

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestCap(t *testing.T) {
	for _, policy := range Policies() {
		t.Run(policy, func(t *testing.T) {
			r, _ := newRouterOf(t, 1, 2, func(c *Config) { c.DecodePolicy, c.DecodeMaxInFlight = policy, 2 })
			s := r.Snapshot()
			d := s.Backends(Decode)
			a, b := leaseOn(t, s, d[0]), leaseOn(t, s, d[0])
			if got := picks(s, Decode, 3); got != "d2 d2 d2" {
				t.Errorf("picked %s, want the one that is not full", got)
			}
			c, e := leaseOn(t, s, d[1]), leaseOn(t, s, d[1])
			var l Lease
			err := s.Acquire(Decode, 1, nil, &l)
			if err != ErrBusy || errors.Is(err, ErrNoBackend) || l.Held() {
				t.Errorf("all full: %v, held %v", err, l.Held())
			}
			if err := s.Acquire(Decode, 1, d, &l); err != ErrNoBackend {
				t.Errorf("all full, all tried: %v, want ErrNoBackend", err)
			}
			if s.Pick(Want{Role: Decode}) == nil {
				t.Error("a call that takes no slot finds no backend")
			}
			if got := picks(s, Prefill, 1); got != "p1" {
				t.Errorf("the other pool has no cap, got %s", got)
			}
			a.Release(OK)
			if got := picks(s, Decode, 2); got != "d1 d1" {
				t.Errorf("picked %s after a release", got)
			}
			for _, l := range []*Lease{b, c, e} {
				l.Release(OK)
			}
		})
	}
}

// No request goes to a backend that will fail just because the good ones are full. A connection
// refused within this second is different.
func TestFullIsWaitedFor(t *testing.T) {
	for _, tc := range []struct {
		name    string
		demerit func(t *testing.T, r *Router, b *Backend)
		want    error
	}{
		{"ejected", func(t *testing.T, r *Router, b *Backend) { r.Eject(b, EjectFailures) }, ErrBusy},
		{"down", func(t *testing.T, r *Router, b *Backend) { b.force(Down) }, ErrBusy},
		{"refused", func(t *testing.T, r *Router, b *Backend) { end(t, r.Snapshot(), b, Refused, 1) }, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, _ := newRouterOf(t, 0, 2, func(c *Config) { c.DecodeMaxInFlight = 1 })
			s := r.Snapshot()
			d := s.Backends(Decode)
			tc.demerit(t, r, d[0])
			leaseOn(t, s, d[1])
			var l Lease
			if err := s.Acquire(Decode, 1, nil, &l); err != tc.want {
				t.Errorf("got %v, want %v", err, tc.want)
			}
		})
	}
}

// wait joins the line in a goroutine of its own and sends the result.
func wait(s *Snapshot, w Want, l *Lease, line Line, done <-chan struct{}) <-chan error {
	ended := make(chan error, 1)
	go func() { ended <- s.AcquireWait(w, l, line, done) }()
	synctest.Wait()
	return ended
}

// pending reports whether the wait goes on.
func pending(ended <-chan error) bool {
	synctest.Wait()
	return len(ended) == 0
}

var anyDecode = Want{Role: Decode, Tokens: 1, Alone: true}

func TestQueueIsFirstComeFirstServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := newRouterOf(t, 0, 1, func(c *Config) { c.DecodeMaxInFlight = 1 })
		s := r.Snapshot()
		held := leaseOn(t, s, s.Backends(Decode)[0])
		var leases [3]Lease
		var waits [3]<-chan error
		for i := range waits {
			waits[i] = wait(s, anyDecode, &leases[i], Line{3, time.Minute}, nil)
		}
		var late Lease
		if err := s.AcquireWait(anyDecode, &late, Line{3, time.Minute}, nil); err != ErrQueueFull || !errors.Is(err, ErrBusy) {
			t.Errorf("a fourth in a line of three: %v", err)
		}
		for i := range waits {
			held.Release(OK)
			if err := s.Acquire(Decode, 1, nil, &late); err != ErrBusy {
				t.Errorf("a newcomer gets past the line: %v", err)
			}
			if err := <-waits[i]; err != nil || !leases[i].Held() {
				t.Fatalf("waiter %d: %v, held %v", i, err, leases[i].Held())
			}
			for _, after := range waits[i+1:] {
				if !pending(after) {
					t.Fatalf("somebody was served together with waiter %d", i)
				}
			}
			held = &leases[i]
		}
		held.Release(OK)
		if err := s.AcquireWait(anyDecode, &late, Line{}, nil); err != nil {
			t.Errorf("a free slot needs no line: %v", err)
		}
		if err := s.AcquireWait(anyDecode, new(Lease), Line{0, time.Minute}, nil); err != ErrQueueFull {
			t.Errorf("no line: %v", err)
		}
	})
}

func TestQueueEnds(t *testing.T) {
	line := Line{Length: 5, Wait: 5 * time.Second}
	for _, tc := range []struct {
		name string
		act  func(t *testing.T, r *Router, done chan struct{})
		want error
	}{
		{"time is up", func(t *testing.T, r *Router, done chan struct{}) { time.Sleep(line.Wait) }, ErrQueueTimeout},
		{"the client leaves", func(t *testing.T, r *Router, done chan struct{}) { close(done) }, ErrQueueLeft},
		{"all go down", func(t *testing.T, r *Router, done chan struct{}) {
			r.Snapshot().Backends(Decode)[0].force(Down)
			r.Snapshot().Backends(Decode)[1].force(Down)
		}, ErrAllDown},
		{"one goes down", func(t *testing.T, r *Router, done chan struct{}) {
			r.Snapshot().Backends(Decode)[0].force(Down)
			time.Sleep(line.Wait)
		}, ErrQueueTimeout},
		{"one joins", func(t *testing.T, r *Router, done chan struct{}) { reload(t, r, 0, 3) }, nil},
		{"the cap goes", func(t *testing.T, r *Router, done chan struct{}) {
			cfg := DefaultConfig()
			cfg.Decode = urls("d", 2)
			if _, err := r.Reload(cfg, 0.25, nil); err != nil {
				t.Fatal(err)
			}
		}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { endQueue(t, line, tc.act, tc.want) })
		})
	}
}

// endQueue lets one request wait for two full backends. act must end its wait with want.
func endQueue(t *testing.T, line Line, act func(*testing.T, *Router, chan struct{}), want error) {
	r, _ := newRouterOf(t, 0, 2, func(c *Config) { c.DecodeMaxInFlight = 1 })
	s := r.Snapshot()
	a, b := leaseOn(t, s, s.Backends(Decode)[0]), leaseOn(t, s, s.Backends(Decode)[1])
	done := make(chan struct{})
	var l Lease
	began := time.Now()
	ended := wait(s, anyDecode, &l, line, done)
	if !pending(ended) {
		t.Fatalf("ended at once: %v", <-ended)
	}
	act(t, r, done)
	if err := <-ended; err != want || l.Held() != (err == nil) {
		t.Fatalf("ended with %v, held %v; want %v", err, l.Held(), want)
	}
	if took := time.Since(began); (took == line.Wait) != (want == ErrQueueTimeout) || took > line.Wait {
		t.Errorf("took %v", took)
	}
	if n := r.queues[Decode].waiting.Load(); n != 0 {
		t.Errorf("%d still wait", n)
	}
	for _, l := range []*Lease{a, b, &l} {
		l.Release(ClientGone)
	}
	for _, b := range s.Backends(Decode) {
		if b.InFlight() != 0 {
			t.Errorf("%s: %d in flight", b.URL, b.InFlight())
		}
	}
}

// reload gives r pools of that size with the caps and policies of before.
func reload(t testing.TB, r *Router, prefill, decode int) Change {
	t.Helper()
	s := r.Snapshot()
	cfg := DefaultConfig()
	cfg.PrefillPolicy, cfg.DecodePolicy = s.prefill.policyName, s.decode.policyName
	cfg.Prefill, cfg.Decode = urls("p", prefill), urls("d", decode)
	cfg.PrefillMaxInFlight, cfg.DecodeMaxInFlight = int(s.prefill.limit), int(s.decode.limit)
	c, err := r.Reload(cfg, 0.25, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A waiter that may not have the backend with a free slot does not keep the next one from it, and
// stays the first for the other backend.
func TestQueueServesAroundOneThatMayNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := newRouterOf(t, 0, 2, func(c *Config) { c.DecodeMaxInFlight = 1 })
		s := r.Snapshot()
		d := s.Backends(Decode)
		a, b := leaseOn(t, s, d[0]), leaseOn(t, s, d[1])
		var choosy, plain Lease
		line := Line{5, time.Minute}
		first := wait(s, Want{Role: Decode, Skip: d[:1], Alone: true}, &choosy, line, nil)
		second := wait(s, anyDecode, &plain, line, nil)
		a.Release(OK)
		if err := <-second; err != nil || plain.Backend != d[0] || !pending(first) {
			t.Fatalf("the second got %v (%v)", plain.Backend, err)
		}
		b.Release(OK)
		if err := <-first; err != nil || choosy.Backend != d[1] {
			t.Fatalf("the first got %v (%v)", choosy.Backend, err)
		}
	})
}

// No request gets past the line, not even to a slot that those in it may not have. A request must
// join the line to get such a slot. The slot is taken or stays free, also if the client leaves at
// the same moment.
func TestQueueIsJoinedNotPassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := newRouterOf(t, 0, 2, func(c *Config) { c.DecodeMaxInFlight = 1 })
		s := r.Snapshot()
		d := s.Backends(Decode)
		held := leaseOn(t, s, d[1])
		var choosy, l Lease
		line := Line{5, time.Minute}
		first := wait(s, Want{Role: Decode, Skip: d[:1], Alone: true}, &choosy, line, nil)
		gone := make(chan struct{})
		close(gone)
		for range 50 {
			if err := s.Acquire(Decode, 1, nil, &l); err != ErrBusy || l.Held() {
				t.Fatalf("past the line: %v", err)
			}
			err := s.AcquireWait(anyDecode, &l, line, gone)
			if (err == nil) != l.Held() || err != nil && err != ErrQueueLeft {
				t.Fatalf("ended with %v, held %v", err, l.Held())
			}
			l.Release(ClientGone)
		}
		held.Release(OK)
		if err := <-first; err != nil {
			t.Error(err)
		}
	})
}

// Whatever ends at the same time, each waiter gets a slot or an error, and no slot is lost.
func TestQueueRace(t *testing.T) {
	r, _ := newRouterOf(t, 0, 2, func(c *Config) { c.DecodeMaxInFlight = 2 })
	s := r.Snapshot()
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			var l Lease
			for j := range 300 {
				done := make(chan struct{})
				if (i+j)%5 == 0 {
					close(done)
				}
				err := s.AcquireWait(anyDecode, &l, Line{12, time.Duration(j%3) * time.Millisecond}, done)
				switch {
				case err == nil:
					if n := l.Backend.InFlight(); n > 2 || n < 1 {
						t.Errorf("%d in flight, cap 2", n)
					}
					l.Release(OK)
				case l.Held(), err != ErrQueueFull && err != ErrQueueTimeout && err != ErrQueueLeft:
					t.Errorf("held %v, %v", l.Held(), err)
				}
			}
		})
	}
	wg.Wait()
	for _, b := range s.Backends(Decode) {
		if b.InFlight() != 0 {
			t.Errorf("%s: %d in flight at the end", b.URL, b.InFlight())
		}
	}
	if q := &r.queues[Decode]; len(q.line.waits) != 0 || q.waiting.Load() != 0 {
		t.Errorf("%d flows in the line, %d counted", len(q.line.waits), q.waiting.Load())
	}
}

// Retries that are over at once are bounded as well. Over any ten seconds they are a share of the
// requests, or a few if there are few requests. Moves count.
func TestRetryRateIsBounded(t *testing.T) {
	for _, tc := range []struct{ perSecond, live, moves, most, least int }{
		{0, 1, 0, 30, 20}, {10, 50, 0, 40, 30}, {100, 350, 0, 138, 120}, {100, 350, 60, 138, 50}, {1000, 3000, 0, 1170, 1020},
	} {
		t.Run(fmt.Sprintf("%d a second, %d moves", tc.perSecond, tc.moves), func(t *testing.T) {
			r, clock := newRouterOf(t, 2, 2, nil)
			live := int64(tc.live)
			var taken []int
			for range 40 {
				for range tc.perSecond {
					r.Admitted()
				}
				if len(taken)%10 == 5 {
					for range tc.moves {
						r.Moved(live)
					}
				}
				n := 0
				for n < 10000 && r.TakeRetry(live, false) {
					r.ReturnRetry()
					n++
				}
				taken = append(taken, n)
				clock.advance(time.Second)
			}
			for from := range taken[:30] {
				sum := 0
				for _, n := range taken[from : from+10] {
					sum += n
				}
				if sum > tc.most || sum < tc.least {
					t.Errorf("%d retries in ten seconds from %d s on, want %d to %d: %v", sum, from, tc.least, tc.most, taken)
				}
			}
			if !r.TakeRetry(live, true) {
				t.Error("a retry that has waited for long is refused")
			}
		})
	}
}

func TestRetryBudget(t *testing.T) {
	for _, tc := range []struct{ live, want int }{{0, 3}, {15, 3}, {20, 4}, {100, 20}} {
		t.Run(fmt.Sprint(tc.live), func(t *testing.T) {
			r, _ := newRouterOf(t, 2, 2, nil)
			for range 2 {
				taken := 0
				for r.TakeRetry(int64(tc.live), true) {
					taken++
				}
				if taken != tc.want {
					t.Fatalf("%d retries at once, want %d", taken, tc.want)
				}
				r.ReturnRetry()
				if !r.TakeRetry(int64(tc.live), true) || r.TakeRetry(int64(tc.live), true) {
					t.Fatal("one given back is one to take")
				}
				for range taken {
					r.ReturnRetry()
				}
			}
		})
	}
}
