package router

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// newRouterOf is a router with prefill backends p1… and decode backends d1…, the
// default configuration and round_robin, as change leaves it.
func newRouterOf(t testing.TB, prefill, decode int, change func(*Config)) (*Router, *handClock) {
	t.Helper()
	cfg := DefaultConfig()
	cfg.PrefillPolicy, cfg.DecodePolicy = "round_robin", "round_robin"
	cfg.Routing.PrefixMemory = 1 << 20
	cfg.Prefill, cfg.Decode = urls("p", prefill), urls("d", decode)
	if change != nil {
		change(&cfg)
	}
	clock := &handClock{now: time.Unix(1_000_000, 0)}
	r, err := New(cfg, 0.25, clock.time)
	if err != nil {
		t.Fatal(err)
	}
	seed(r, 1)
	return r, clock
}

func urls(name string, n int) (list []Entry) {
	for i := range n {
		list = append(list, MustEntries(fmt.Sprintf("http://%s%d:80", name, i+1))...)
	}
	return list
}

// name is the backend's host without its port.
func name(b *Backend) string {
	host, _, _ := strings.Cut(b.Host, ":")
	return host
}

// picks is the sequence of backends that n requests get one after the other. An error takes the
// place of a name.
func picks(s *Snapshot, role Role, n int, skip ...*Backend) string {
	var got []string
	for range n {
		var l Lease
		if err := s.Acquire(role, 1, skip, &l); err != nil {
			got = append(got, err.Error())
			continue
		}
		got = append(got, name(l.Backend))
		l.Release(ClientGone)
	}
	return strings.Join(got, " ")
}

// end ends n legs on the backend with the outcome.
func end(t testing.TB, s *Snapshot, b *Backend, o Outcome, n int) {
	t.Helper()
	for range n {
		l := leaseOn(t, s, b)
		l.Release(o)
	}
}

// leaseOn is a lease on that backend, even if no pick would choose it.
func leaseOn(t testing.TB, s *Snapshot, b *Backend) *Lease {
	t.Helper()
	if !b.inflight.reserve(s.pool(b.Role).limit) {
		t.Fatalf("%s is full", b.URL)
	}
	l := new(Lease)
	l.hold(b, &Want{Tokens: 1}, 0)
	return l
}

// force sets the backend's state to to, whatever rise and fall say.
func (b *Backend) force(to State) {
	b.router.mu.Lock()
	was := b.State()
	b.checkOKs.Store(0)
	b.checkFails.Store(0)
	b.enter(to)
	b.router.mu.Unlock()
	b.announce(was, to)
}

func TestObserve(t *testing.T) {
	for _, tc := range []struct {
		name   string
		checks string // + passed, - failed
		want   string // the state after each: ? unknown, + up, - down
	}{
		{"first success", "+", "+"},
		{"unknown falls too", "---", "??-"},
		{"a success between", "--+--", "??+++"},
		{"fall", "+---", "+++-"},
		{"down is left after two", "---++", "??--+"},
		{"rise is in a row", "---+-++", "??----+"},
		{"down again", "---++---", "??--+++-"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, _ := newRouterOf(t, 0, 1, nil)
			b := r.Snapshot().Backends(Decode)[0]
			got, was := "", b.State()
			for _, c := range tc.checks {
				changed := b.Observe(c == '+')
				if changed != (b.State() != was) {
					t.Errorf("changed %v from %v to %v", changed, was, b.State())
				}
				was = b.State()
				got += map[State]string{Unknown: "?", Up: "+", Down: "-"}[was]
			}
			if got != tc.want {
				t.Errorf("states %q after %q, want %q", got, tc.checks, tc.want)
			}
		})
	}
}

func TestSuspect(t *testing.T) {
	r, clock := newRouterOf(t, 0, 2, nil)
	s := r.Snapshot()
	b := s.Backends(Decode)[0]
	expect := func(want bool, when string) {
		t.Helper()
		if b.Suspect() != want {
			t.Errorf("suspect %v %s", !want, when)
		}
	}
	expect(true, "before the first check")
	b.Observe(true)
	expect(false, "when up")
	b.Observe(false)
	expect(true, "after one failed check")
	b.Observe(true)
	expect(false, "after the next one passed")
	end(t, s, b, ClientFault, 1)
	expect(false, "after a 4xx")
	end(t, s, b, Gateway, 1)
	expect(true, "after a failed leg")
	end(t, s, b, OK, 1)
	expect(false, "after a good leg")
	end(t, s, b, Gateway, 5)
	expect(true, "while ejected")
	clock.advance(30 * time.Second)
	expect(false, "after the ejection")
}

func TestDownIsNeverPicked(t *testing.T) {
	for _, policy := range Policies() {
		t.Run(policy, func(t *testing.T) {
			r, _ := newRouterOf(t, 0, 3, func(c *Config) { c.DecodePolicy = policy })
			s := r.Snapshot()
			d := s.Backends(Decode)
			d[1].force(Down)
			if got := picks(s, Decode, 9); strings.Contains(got, "d2") || !strings.Contains(got, "d1") || !strings.Contains(got, "d3") {
				t.Errorf("picked %s with d2 down", got)
			}
			var l Lease
			if err := s.Acquire(Decode, 1, []*Backend{d[0], d[2]}, &l); err != ErrNoBackend {
				t.Errorf("d2 down, the others tried: %v, want ErrNoBackend", err)
			}
			d[0].force(Down)
			d[2].force(Down)
			if err := s.Acquire(Decode, 1, nil, &l); !errors.Is(err, ErrAllDown) || !errors.Is(err, ErrNoBackend) || l.Held() {
				t.Errorf("all down: %v, held %v", err, l.Held())
			}
			if s.Pick(Want{Role: Decode}) != nil {
				t.Error("Pick names a backend that is down")
			}
			d[2].Observe(true)
			if err := s.Acquire(Decode, 1, nil, &l); !errors.Is(err, ErrAllDown) {
				t.Errorf("back after one passed check: %v", err)
			}
			d[2].Observe(true)
			if got := picks(s, Decode, 2); got != "d3 d3" {
				t.Errorf("picked %s after d3 came back", got)
			}
		})
	}
}

func TestFit(t *testing.T) {
	r, _ := newRouterOf(t, 0, 2, nil)
	s := r.Snapshot()
	d := s.Backends(Decode)
	end(t, s, d[0], Auth, 1)
	d[1].force(Down)
	if d[0].Fit() || d[1].Fit() {
		t.Error("an ejected or a down backend is fit for dispatch")
	}
	d[1].force(Up)
	if !d[1].Fit() {
		t.Error("unfit although up")
	}
}

func TestOnDown(t *testing.T) {
	r, _ := newRouterOf(t, 0, 2, nil)
	s := r.Snapshot()
	b := s.Backends(Decode)[0]
	var calls [5]int
	leases := make([]*Lease, len(calls))
	for i := range leases {
		leases[i] = leaseOn(t, s, b)
		leases[i].OnDown(func() { calls[i]++ })
	}
	leases[0].Release(OK)
	leases[1].OnDown(nil)
	leases[2].OnDown(func() { calls[2] += 10 })
	leaseOn(t, s, s.Backends(Decode)[1]).OnDown(func() { t.Error("called for another backend") })

	b.Observe(false)
	b.Observe(false)
	if calls != [5]int{} {
		t.Fatalf("calls %v before the backend was down", calls)
	}
	b.Observe(false)
	if want := [5]int{0, 0, 10, 1, 1}; calls != want {
		t.Fatalf("calls %v, want %v: not those released or taken back, the last one given, the rest", calls, want)
	}
	b.Observe(false)
	b.force(Up)
	b.force(Down)
	if calls[3] != 1 {
		t.Errorf("called %d times", calls[3])
	}
	late := leaseOn(t, s, b)
	called := false
	late.OnDown(func() { called = true })
	if !called {
		t.Error("not called at once on a backend that is down already")
	}
	var none Lease
	none.OnDown(func() { t.Error("called for a lease that holds nothing") })
	none.OnDown(nil)
}

// A function that runs when its lease is released has ended when Release returns.
func TestReleaseWaitsForOnDown(t *testing.T) {
	r, _ := newRouterOf(t, 0, 1, nil)
	s := r.Snapshot()
	b := s.Backends(Decode)[0]
	l := leaseOn(t, s, b)
	running, let, released := make(chan struct{}), make(chan struct{}), make(chan struct{})
	ended := false
	l.OnDown(func() { close(running); <-let; ended = true })
	go b.force(Down)
	<-running
	other := leaseOn(t, s, b)
	other.Release(OK) // no lock is held over a function
	go func() { l.Release(ClientGone); close(released) }()
	select {
	case <-released:
		t.Fatal("released while the function ran")
	case <-time.After(20 * time.Millisecond):
	}
	close(let)
	<-released
	if !ended {
		t.Fatal("released before the function had ended")
	}
}
