package router

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// home is where a session's requests go, one after the other.
func home(t *testing.T, s *Snapshot, key uint64, skip ...*Backend) *Backend {
	t.Helper()
	var l Lease
	if err := s.AcquireFor(Want{Role: Decode, Key: key, Skip: skip, Alone: true}, &l); err != nil {
		t.Fatal(err)
	}
	l.Release(OK)
	return l.Backend
}

// homes are the backends of the sessions 0 to n-1, and how many each one has.
func homes(t *testing.T, s *Snapshot, n int) (of []*Backend, counts []int) {
	t.Helper()
	counts = make([]int, len(s.Backends(Decode)))
	for i := range n {
		b := home(t, s, session(i))
		of = append(of, b)
		counts[slices.Index(s.Backends(Decode), b)]++
	}
	return of, counts
}

func session(i int) uint64 { return KeyOf(fmt.Appendf(nil, "session-%d", i)) }

func TestASessionStays(t *testing.T) {
	for _, policy := range Policies() {
		r, _ := newRouterOf(t, 0, 8, func(c *Config) { c.DecodePolicy = policy })
		s := r.Snapshot()
		first, counts := homes(t, s, 4000)
		shares(t, policy, counts, []float64{1, 1, 1, 1, 1, 1, 1, 1}, 0.15)
		again, _ := homes(t, s, 4000)
		if !slices.Equal(first, again) {
			t.Errorf("%s: sessions move", policy)
		}
	}
}

// Two routers that know the same backends in another order agree.
func TestRoutersAgreeOnSessions(t *testing.T) {
	a, _ := newRouterOf(t, 0, 5, nil)
	b, _ := newRouterOf(t, 0, 5, func(c *Config) { slices.Reverse(c.Decode) })
	for i := range 200 {
		if x, y := home(t, a.Snapshot(), session(i)), home(t, b.Snapshot(), session(i)); x.URL != y.URL {
			t.Fatalf("session %d: %s and %s", i, x.URL, y.URL)
		}
	}
}

// The sessions of a backend that is down are spread over all others, and no other session moves.
// They return with it.
func TestSessionsOfADownBackendAreSpread(t *testing.T) {
	for _, tc := range []struct {
		name string
		out  func(r *Router, b *Backend)
		back func(r *Router, clock *handClock, b *Backend)
	}{
		{"down", func(r *Router, b *Backend) { b.force(Down) }, func(r *Router, clock *handClock, b *Backend) { b.force(Up) }},
		{"ejected", func(r *Router, b *Backend) { r.Eject(b, EjectFailures) }, func(r *Router, clock *handClock, b *Backend) { clock.advance(30 * time.Second) }},
		{"refuses", func(r *Router, b *Backend) { b.Defer(time.Second) }, func(r *Router, clock *handClock, b *Backend) { clock.advance(time.Second) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, clock := newRouterOf(t, 0, 5, nil)
			s := r.Snapshot()
			before, counts := homes(t, s, 3000)
			gone := s.Backends(Decode)[0]
			tc.out(r, gone)
			during, load := homes(t, s, 3000)
			for i, b := range during {
				if b == gone || before[i] != gone && b != before[i] {
					t.Fatalf("session %d goes from %s to %s", i, before[i].URL, b.URL)
				}
			}
			for i := range load {
				load[i] -= counts[i]
			}
			shares(t, "what the others get more", load[1:], []float64{1, 1, 1, 1}, 0.3)
			tc.back(r, clock, gone)
			clock.advance(time.Hour)
			if after, _ := homes(t, s, 3000); !slices.Equal(after, before) {
				t.Error("sessions have not come home")
			}
		})
	}
}

func TestSessionsGoToAnotherOnARetry(t *testing.T) {
	r, _ := newRouterOf(t, 0, 5, nil)
	s := r.Snapshot()
	second := map[*Backend]bool{}
	for i := range 300 {
		if b := home(t, s, session(i)); b == s.Backends(Decode)[0] {
			second[home(t, s, session(i), b)] = true
		}
	}
	if len(second) != 4 || second[s.Backends(Decode)[0]] {
		t.Errorf("%d second choices, want each of the 4 others to be one", len(second))
	}
}

// A session that is as busy as all others together is spread over the pool, so that no backend gets
// more than loadBound times the mean.
func TestABusySessionIsBounded(t *testing.T) {
	r, _ := newRouterOf(t, 0, 4, nil)
	s := r.Snapshot()
	leases := make([]Lease, 200)
	for i := range leases {
		if err := s.AcquireFor(Want{Role: Decode, Key: session(1), Alone: true}, &leases[i]); err != nil {
			t.Fatal(err)
		}
		var most int64
		for _, b := range s.Backends(Decode) {
			most = max(most, b.InFlight())
		}
		if bound := max(freeLoad, int64(loadBound*float64(i+1)/4)+1); most > bound {
			t.Fatalf("%d of %d in flight on one of four, want at most %d", most, i+1, bound)
		}
		if i < freeLoad && leases[i].Backend != leases[0].Backend {
			t.Fatalf("request %d at once is too many for its backend", i+1)
		}
	}
	if n := leases[0].Backend.InFlight(); n < 60 {
		t.Errorf("its own backend has %d of 200, want it filled to the bound first", n)
	}
}

// A backend that comes up gets its sessions back bit by bit, and those that it has stay.
func TestSessionsComeHomeWithTheRamp(t *testing.T) {
	r, clock := newRouterOf(t, 0, 4, nil)
	s := r.Snapshot()
	b := s.Backends(Decode)[1]
	b.force(Down)
	b.force(Up)
	var before []*Backend
	for tenth := range 11 {
		now, counts := homes(t, s, 4000)
		share := float64(max(1, tenth)) / 10
		shares(t, fmt.Sprintf("%d/10 of the ramp", tenth), counts, []float64{1, share, 1, 1}, 0.2)
		for i := range before {
			if before[i] == b && now[i] != b {
				t.Fatalf("session %d leaves again in the ramp", i)
			}
		}
		before = now
		clock.advance(s.Health().SlowStart / 10)
	}
}

func TestPromptsThatBeginAlikeStayTogether(t *testing.T) {
	r, _ := newRouterOf(t, 0, 6, func(c *Config) { c.DecodePolicy = "consistent_hash" })
	s := r.Snapshot()
	seen := map[*Backend]bool{}
	for i := range 60 {
		at := map[*Backend]bool{}
		for turn := range 5 { // each turn is longer
			prefix := []uint64{mix(uint64(i)), uint64(turn), uint64(turn * turn)}
			var l Lease
			if err := s.AcquireFor(Want{Role: Decode, Prefix: prefix[:1+turn%3], Alone: true}, &l); err != nil {
				t.Fatal(err)
			}
			l.Release(OK)
			at[l.Backend], seen[l.Backend] = true, true
		}
		if len(at) != 1 {
			t.Errorf("prompt %d: its turns go to %d backends", i, len(at))
		}
	}
	if len(seen) != 6 {
		t.Errorf("60 prompts go to %d of 6 backends", len(seen))
	}
	if got := picks(s, Decode, 7); got != "d1 d2 d3 d4 d5 d6 d1" {
		t.Errorf("nothing to go by: %s", got)
	}
}
