package router

import (
	"slices"
	"testing"
	"time"
)

// The lock of a queue is held while its line is served. So a slot that comes free must not have every
// waiter of a model without one tried, however long the line is.
func TestLongLineOfOneModelIsServedQuickly(t *testing.T) {
	const waiters = 10_000
	for name, flows := range map[string]int{"one client": 1, "as many clients": waiters} {
		t.Run(name, func(t *testing.T) {
			r, _ := newRouterOf(t, 0, 3, func(c *Config) { c.DecodeMaxInFlight = 1 })
			s := r.Snapshot()
			serves(s, Decode, "a", "b", "c")
			want := func(model string, i int) Want {
				return Want{Role: Decode, Model: []byte(model), Alone: true, Flow: uint64(i % flows)}
			}
			var full, other Lease
			if err := s.AcquireFor(want("a", 0), &full); err != nil {
				t.Fatal(err)
			}
			q := &r.queues[Decode]
			ended := make(chan error, waiters)
			leases := make([]Lease, waiters)
			for i := range waiters {
				q.join(r, &waiter{want: want("a", i), lease: &leases[i], ended: ended}, waiters)
			}
			var took []time.Duration // the least says what the router needs, on a busy machine too
			for range 20 {
				if err := s.AcquireWait(want("b", 0), &other, Line{waiters + 1, 0}, nil); err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				other.Release(OK)
				took = append(took, time.Since(began))
			}
			if least := slices.Min(took); least > time.Millisecond {
				t.Errorf("a release took %v at least", least)
			}
			full.Release(OK)
			if err := <-ended; err != nil || heldOf(leases) != 1 {
				t.Errorf("%v, %d served", err, heldOf(leases))
			}
		})
	}
}

// heldOf counts the leases that are held.
func heldOf(leases []Lease) (n int) {
	for i := range leases {
		if leases[i].Held() {
			n++
		}
	}
	return n
}

// Waiters for another model, and those that some backend is ruled out for, are served past a model that
// has no slot.
func TestLineIsServedPastAModelWithoutASlot(t *testing.T) {
	r, _ := newRouterOf(t, 0, 4, func(c *Config) { c.DecodeMaxInFlight = 1 })
	s := r.Snapshot()
	serves(s, Decode, "a", "a", "b", "c")
	d := s.Backends(Decode)
	busy := make([]*Lease, len(d))
	for i, b := range d {
		busy[i] = leaseOn(t, s, b)
	}
	q := &r.queues[Decode]
	var leases [6]Lease
	ended := make([]chan error, len(leases))
	for i, w := range []Want{
		{Model: []byte("a"), Skip: d[:1]}, {Model: []byte("b")}, {Model: []byte("b")}, {Model: []byte("a"), Skip: d[1:2]}, {Model: []byte("a")}, {Model: []byte("c")},
	} {
		w.Role, w.Alone = Decode, true
		ended[i] = make(chan error, 1)
		q.join(r, &waiter{want: w, lease: &leases[i], ended: ended[i]}, 10)
	}
	for _, step := range []struct{ free, served int }{{3, 5}, {0, 3}, {1, 0}, {2, 1}} {
		busy[step.free].Release(OK)
		select {
		case err := <-ended[step.served]:
			if err != nil || leases[step.served].Backend != d[step.free] {
				t.Errorf("%v: %v", step, err)
			}
		default:
			t.Fatalf("a slot of %s: waiter %d is not served", name(d[step.free]), step.served)
		}
	}
	leases[0].Release(OK)
	leases[1].Release(OK)
	for _, i := range []int{2, 4} {
		if err := <-ended[i]; err != nil {
			t.Errorf("waiter %d: %v", i, err)
		}
	}
	if n := q.waiting.Load(); n != 0 || len(q.needs) != 0 {
		t.Errorf("%d wait, needs %v", n, q.needs)
	}
}
