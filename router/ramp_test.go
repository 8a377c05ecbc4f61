package router

import (
	"strings"
	"testing"
	"time"
)

// weight counts how many of n requests that stay open get the backend.
func weight(t *testing.T, s *Snapshot, b *Backend, n int, hold bool) (got int) {
	t.Helper()
	var leases []*Lease
	for range n {
		l := new(Lease)
		if err := s.Acquire(Decode, 1, nil, l); err != nil {
			t.Fatal(err)
		}
		if l.Backend == b {
			got++
		}
		if leases = append(leases, l); !hold {
			l.Release(ClientGone)
		}
	}
	for _, l := range leases {
		l.Release(ClientGone)
	}
	return got
}

func TestSlowStart(t *testing.T) {
	for _, began := range []struct {
		name string
		by   func(t *testing.T, r *Router, clock *handClock, b *Backend)
	}{
		{"down to up", func(t *testing.T, r *Router, clock *handClock, b *Backend) {
			b.force(Down)
			b.Observe(true)
			b.Observe(true)
		}},
		{"end of an ejection", func(t *testing.T, r *Router, clock *handClock, b *Backend) {
			r.Eject(b, EjectFailures)
			clock.advance(30 * time.Second)
		}},
		{"up during an ejection", func(t *testing.T, r *Router, clock *handClock, b *Backend) {
			r.Eject(b, EjectFailures)
			clock.advance(10 * time.Second)
			b.force(Down)
			b.force(Up)
			clock.advance(20 * time.Second)
		}},
		{"another engine", func(t *testing.T, r *Router, clock *handClock, b *Backend) {
			r.Eject(b, EjectFailures)
			b.Reset()
		}},
	} {
		t.Run(began.name, func(t *testing.T) {
			for _, at := range rampPoints() {
				for _, policy := range even() {
					checkRamp(t, policy, began.by, at)
				}
			}
		})
	}
}

// rampPoint is what a backend gets at an age of its ramp.
type rampPoint struct {
	age       time.Duration
	turns, of int // round_robin: of 200 turns, 100 would be the full share
	held      int // least_request: of 110 requests held, 55 would be
}

func rampPoints() []rampPoint {
	return []rampPoint{
		{0, 10, 200, 10},
		{3 * time.Second, 10, 200, 10},
		{15 * time.Second, 50, 200, 37},
		{24 * time.Second, 80, 200, 49},
		{30 * time.Second, 100, 200, 55},
	}
}

// checkRamp lets the second of two backends begin its ramp, and compares what it gets at that age.
func checkRamp(t *testing.T, policy string, began func(*testing.T, *Router, *handClock, *Backend), at rampPoint) {
	t.Helper()
	r, clock := newRouterOf(t, 0, 2, func(c *Config) { c.DecodePolicy = policy })
	s := r.Snapshot()
	b := s.Backends(Decode)[1]
	began(t, r, clock, b)
	clock.advance(at.age)
	if strings.HasPrefix(policy, "least_") {
		if got := weight(t, s, b, 110, true); got < at.held-1 || got > at.held+1 {
			t.Errorf("%v into its ramp it holds %d of 110 requests, want %d", at.age, got, at.held)
		}
		return
	}
	// A turn that is not taken goes to the other backend, so the rounds count, not the requests.
	requests := at.of/2 + at.turns
	if got := weight(t, s, b, requests, false); got < at.turns-1 || got > at.turns+1 {
		t.Errorf("%v into its ramp it takes %d of %d requests, want %d", at.age, got, requests, at.turns)
	}
}

func TestNoRampAtStart(t *testing.T) {
	for _, policy := range even() {
		r, _ := newRouterOf(t, 0, 2, func(c *Config) { c.DecodePolicy = policy })
		s := r.Snapshot()
		for _, b := range s.Backends(Decode) {
			b.Observe(true)
		}
		if got := weight(t, s, s.Backends(Decode)[1], 100, true); got != 50 {
			t.Errorf("%s: %d of 100 for one of two at start", policy, got)
		}
	}
}

func TestSlowStartOff(t *testing.T) {
	for _, policy := range even() {
		r, clock := newRouterOf(t, 0, 2, func(c *Config) { c.DecodePolicy, c.Health.SlowStart = policy, 0 })
		s := r.Snapshot()
		b := s.Backends(Decode)[1]
		r.Eject(b, EjectFailures)
		clock.advance(30 * time.Second)
		b.force(Down)
		b.force(Up)
		if got := weight(t, s, b, 100, true); got != 50 {
			t.Errorf("%s: %d of 100 with the slow start off", policy, got)
		}
	}
}

// A pool in which all backends ramp still serves all requests.
func TestAllRamp(t *testing.T) {
	for _, policy := range even() {
		r, _ := newRouterOf(t, 0, 3, func(c *Config) { c.DecodePolicy = policy })
		s := r.Snapshot()
		for _, b := range s.Backends(Decode) {
			b.force(Down)
			b.force(Up)
		}
		for _, b := range s.Backends(Decode) {
			if got := weight(t, s, b, 90, true); got < 25 || got > 35 {
				t.Errorf("%s: %s gets %d of 90", policy, b.URL, got)
			}
		}
	}
}

// The turns that a backend does not take are shared by the others.
func TestTurnsPassedOn(t *testing.T) {
	r, _ := newRouterOf(t, 0, 3, nil)
	s := r.Snapshot()
	s.Backends(Decode)[1].force(Down)
	got := picks(s, Decode, 100)
	if a, c := strings.Count(got, "d1"), strings.Count(got, "d3"); a != 50 || c != 50 {
		t.Errorf("d1 gets %d, d3 %d of 100", a, c)
	}
}

// Among idle backends, too, one that ramps gets more and more requests until it has its full share,
// and not nothing first and then everything.
func TestRampAmongIdleBackends(t *testing.T) {
	for _, policy := range even() {
		r, clock := newRouterOf(t, 0, 2, func(c *Config) { c.DecodePolicy = policy })
		s := r.Snapshot()
		b := s.Backends(Decode)[1]
		b.force(Down)
		b.force(Up)
		last := 0
		for age := range 11 { // tenths of the ramp
			got := strings.Count(picks(s, Decode, 200), name(b))
			// A turn that it does not take is lost to it, or the rotation gives it to another.
			share := float64(max(1, age)) / 10
			least, most := int(100*share)-6, int(200*share/(1+share))+6
			if got < least || got > most || got < last-4 {
				t.Errorf("%s: after %d/10 of its ramp %d of 200, want %d to %d", policy, age, got, least, most)
			}
			last = got
			clock.advance(s.Health().SlowStart / 10)
		}
	}
}
