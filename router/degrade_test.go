package router

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var aloneOnDecode = Want{Role: Decode, Tokens: 1, Alone: true, Degraded: true}

// share sets another share of requests without a prefill for r's pools.
func share(r *Router, share float64) *Snapshot {
	s := *r.Snapshot()
	s.maxShare = share
	r.snapshot.Store(&s)
	return &s
}

// The share is a part of the slots of those decode backends that are not down, whatever is in
// flight.
func TestDegradeCap(t *testing.T) {
	for _, tc := range []struct {
		share    float64
		cap      int // decode_max_in_flight
		backends int
		down     int
		want     int
	}{
		{0.25, 0, 1, 0, 64}, {0.25, 0, 3, 0, 192}, {0.25, 0, 3, 2, 64}, {0.5, 10, 3, 0, 15}, {0.5, 10, 3, 1, 10},
		{0.01, 10, 1, 0, 1}, {0, 0, 3, 0, 0}, {1, 0, 1, 0, 1000},
	} {
		t.Run(fmt.Sprintf("%v of %d with %d slots, %d down", tc.share, tc.backends, tc.cap, tc.down), func(t *testing.T) {
			r, _ := newRouterOf(t, 1, tc.backends, func(c *Config) { c.DecodeMaxInFlight = tc.cap })
			s := share(r, tc.share)
			for _, b := range s.Backends(Decode)[:tc.down] {
				b.force(Down)
			}
			markAll(t, s, tc.want)
			acquired := 0
			for range 1000 {
				l := &Lease{}
				if s.AcquireFor(aloneOnDecode, l) == nil {
					acquired++
					defer l.Release(OK)
				}
			}
			if acquired != tc.want {
				t.Errorf("%d acquired, want %d", acquired, tc.want)
			}
		})
	}
}

// markAll marks as many leases as can be had, and expects the limit among them.
func markAll(t *testing.T, s *Snapshot, limit int) {
	t.Helper()
	var held []*Lease
	marked := 0
	for range 1000 {
		l := &Lease{}
		if s.Acquire(Decode, 1, nil, l) != nil {
			break
		}
		held = append(held, l)
		if s.Degrade(l) {
			marked++
		}
	}
	if want := min(limit, len(held)); marked != want {
		t.Errorf("%d of %d leases marked, want %d", marked, len(held), want)
	}
	for _, l := range held {
		l.Release(OK)
	}
	if n := s.router.degraded.Load(); n != 0 {
		t.Fatalf("degraded count %d after all releases", n)
	}
}

// Requests that wait for a part of the share get it in turn as parts come free. Others still get
// the slots beyond it.
func TestLineForTheShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := newRouterOf(t, 1, 1, func(c *Config) { c.DecodeMaxInFlight = 4 })
		s := share(r, 0.25)
		var held, other Lease
		if err := s.AcquireFor(aloneOnDecode, &held); err != nil {
			t.Fatal(err)
		}
		var leases [2]Lease
		var waits [2]<-chan error
		for i := range waits {
			waits[i] = wait(s, aloneOnDecode, &leases[i], Line{2, time.Minute}, nil)
		}
		if err := s.AcquireWait(aloneOnDecode, new(Lease), Line{2, time.Minute}, nil); err != ErrQueueFull {
			t.Errorf("a third in a line of two: %v", err)
		}
		if err := s.Acquire(Decode, 1, nil, &other); err != nil {
			t.Errorf("a request with a prefill: %v, want one of the slots beyond the share", err)
		}
		if n := r.Queued(Decode); n != 2 {
			t.Errorf("%d queued, want 2", n)
		}
		other.Release(OK)
		if !pending(waits[0]) || !pending(waits[1]) {
			t.Fatal("served with a slot that is not of the share")
		}
		turn := &held
		for i := range waits {
			turn.Release(OK)
			nobodyPasses(t, s)
			if err := <-waits[i]; err != nil {
				t.Fatalf("waiter %d: %v", i, err)
			}
			turn = &leases[i]
		}
		turn.Release(OK)
		if r.degraded.Load() != 0 || r.Queued(Decode) != 0 || s.Backends(Decode)[0].InFlight() != 0 {
			t.Errorf("%d counted, %d queued, %d in flight at the end", r.degraded.Load(), r.Queued(Decode), s.Backends(Decode)[0].InFlight())
		}
	})
}

// nobodyPasses fails if a request gets past the line, without a lease or with one.
func nobodyPasses(t *testing.T, s *Snapshot) {
	t.Helper()
	var other Lease
	if err := s.AcquireFor(aloneOnDecode, new(Lease)); err != ErrBusy {
		t.Errorf("a newcomer gets past the line, or the share is exceeded: %v", err)
	}
	if err := s.Acquire(Decode, 1, nil, &other); err != nil || s.Degrade(&other) {
		t.Errorf("a lease that is held (%v) gets past the line, or the share is exceeded", err)
	}
	other.Release(OK)
}

// A request that already has a slot does not get past the line by it.
func TestSlotDoesNotPassTheLineForTheShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := newRouterOf(t, 1, 1, func(c *Config) { c.DecodeMaxInFlight = 2 })
		s := share(r, 0.5)
		d := s.Backends(Decode)[0]
		held, other := leaseOn(t, s, d), leaseOn(t, s, d)
		var l Lease
		waits := wait(s, aloneOnDecode, &l, Line{2, time.Minute}, nil) // for a slot, because the share is free
		if s.Degrade(held) {
			t.Error("got past the line")
		}
		held.Release(ClientGone)
		if err := <-waits; err != nil || !l.degraded {
			t.Errorf("the first in the line: %v, counted %v", err, l.degraded)
		}
		l.Release(OK)
		other.Release(OK)
	})
}

// Without a cap there is no share to wait for, so such requests wait in the pool's own line.
func TestNoCapIsNoLineOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := newRouterOf(t, 1, 1, func(c *Config) { c.DecodeMaxInFlight = 1 })
		s := share(r, 1)
		held := leaseOn(t, s, s.Backends(Decode)[0])
		var alone, other Lease
		first := wait(s, aloneOnDecode, &alone, Line{2, time.Minute}, nil)
		second := wait(s, anyDecode, &other, Line{2, time.Minute}, nil)
		held.Release(OK)
		if err := <-first; err != nil || !pending(second) || r.degraded.Load() != 1 {
			t.Errorf("the first in the line: %v, %d counted", err, r.degraded.Load())
		}
		alone.Release(OK)
		if err := <-second; err != nil || r.degraded.Load() != 0 {
			t.Errorf("the second: %v, %d counted", err, r.degraded.Load())
		}
		other.Release(OK)
	})
}

func TestLineForTheShareEnds(t *testing.T) {
	for _, tc := range []struct {
		name string
		act  func(s *Snapshot, done chan struct{})
		want error
	}{
		{"time is up", func(*Snapshot, chan struct{}) { time.Sleep(time.Second) }, ErrQueueTimeout},
		{"the client leaves", func(_ *Snapshot, done chan struct{}) { close(done) }, ErrQueueLeft},
		{"decode goes down", func(s *Snapshot, _ chan struct{}) { s.Backends(Decode)[0].force(Down) }, ErrAllDown},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, _ := newRouterOf(t, 1, 1, func(c *Config) { c.DecodeMaxInFlight = 2 })
				s := share(r, 0.5)
				var held, l Lease
				if err := s.AcquireFor(aloneOnDecode, &held); err != nil {
					t.Fatal(err)
				}
				done := make(chan struct{})
				ended := wait(s, aloneOnDecode, &l, Line{5, time.Second}, done)
				tc.act(s, done)
				if err := <-ended; err != tc.want || l.Held() {
					t.Errorf("ended with %v, held %v; want %v", err, l.Held(), tc.want)
				}
				held.Release(OK)
				if r.degraded.Load() != 0 || r.Queued(Decode) != 0 {
					t.Errorf("%d counted, %d queued at the end", r.degraded.Load(), r.Queued(Decode))
				}
			})
		})
	}
}

// Whatever ends at the same time, the share is never exceeded, no part of it is lost, and no
// request waits while a part is free.
func TestShareRace(t *testing.T) {
	r, _ := newRouterOf(t, 1, 2, func(c *Config) { c.DecodeMaxInFlight = 2 })
	s := share(r, 0.5) // two of four slots
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			for j := range 300 {
				var l Lease
				w, done := anyDecode, make(chan struct{})
				w.Degraded = i%2 == 0
				if (i+j)%7 == 0 {
					close(done)
				}
				err := s.AcquireWait(w, &l, Line{12, 10 * time.Second}, done)
				if err != nil && err != ErrQueueLeft {
					t.Errorf("%v, degraded %v", err, w.Degraded)
				}
				if err == nil && j%3 == 0 {
					s.Degrade(&l)
				}
				if n := r.degraded.Load(); n > 2 {
					t.Errorf("%d degraded at once, the share is 2", n)
				}
				l.Release(OK)
			}
		})
	}
	wg.Wait()
	if r.degraded.Load() != 0 || r.Queued(Decode) != 0 {
		t.Errorf("%d counted, %d queued at the end", r.degraded.Load(), r.Queued(Decode))
	}
}

func TestOutage(t *testing.T) {
	r, _ := newRouterOf(t, 2, 1, nil)
	s := r.Snapshot()
	p := s.Backends(Prefill)
	for i, to := range []State{Unknown, Up, Down} {
		p[0].force(Down)
		p[1].force(to)
		if s.Outage() != (i == 2) {
			t.Errorf("one down and one %v: outage %v", to, s.Outage())
		}
		if s.Unjudged() != (i == 0) {
			t.Errorf("one down and one %v: unjudged %v", to, s.Unjudged())
		}
	}
	none, _ := newRouterOf(t, 0, 1, nil)
	never, _ := newRouterOf(t, 1, 1, func(c *Config) { c.PD.Mode = PDNever })
	never.Snapshot().Backends(Prefill)[0].force(Down)
	if none.Snapshot().Outage() || never.Snapshot().Outage() {
		t.Error("an outage of a pool that nobody is sent to")
	}
	found, _ := newRouterOf(t, 1, 1, func(c *Config) {
		c.Found = []string{c.Prefill[0].URL}
		c.Prefill[0].URL += "@auto"
	})
	for n := range found.Snapshot().Health().Fall {
		if !found.Snapshot().Unjudged() {
			t.Errorf("judged after %d checks that failed", n)
		}
		found.Snapshot().Backends(Prefill)[0].Observe(false)
	}
	if found.Snapshot().Unjudged() {
		t.Error("not judged although an engine does not tell its ranks")
	}
	never.Snapshot().Backends(Prefill)[0].force(Unknown)
	if none.Snapshot().Unjudged() || never.Snapshot().Unjudged() {
		t.Error("a pool that nobody is sent to has to be checked first")
	}
}

// A request without its prefill goes to an engine without a role once the share of those that only decode is spent.
func TestTheShareIsOfEnginesThatOnlyDecode(t *testing.T) {
	r, _ := roleless(t, 1, func(c *Config) { c.Decode, c.DecodeMaxInFlight = urls("d", 1), 4 })
	s := share(r, 0.25) // of two backends with 4 slots: 2 requests
	allUp(s)
	var got []string
	for range 7 {
		l := &Lease{}
		if err := s.AcquireFor(aloneOnDecode, l); err != nil {
			got = append(got, err.Error())
			continue
		}
		defer l.Release(OK)
		got = append(got, name(l.Backend))
	}
	slices.Sort(got)
	if want := []string{"d1", "d1", "e1", "e1", "e1", "e1", ErrBusy.Error()}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
