package router

import (
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// poolsWith is a configuration of p1, p2 and d1 to d3, in which some have a state.
func poolsWith(states map[string]AdminState) Config {
	cfg := DefaultConfig()
	for _, name := range []string{"p1", "p2", "d1", "d2", "d3"} {
		entry := "http://" + name + ":80"
		if s := states[name]; s != "" {
			entry += " state=" + string(s)
		}
		if name[0] == 'p' {
			cfg.Prefill = append(cfg.Prefill, MustEntries(entry)...)
		} else {
			cfg.Decode = append(cfg.Decode, MustEntries(entry)...)
		}
	}
	return cfg
}

func TestDrainedBackendsGetNothingAndComeBack(t *testing.T) {
	r, _ := newRouterOf(t, 2, 3, nil)
	old := r.Snapshot()
	d := old.Backends(Decode)
	has := leaseOn(t, old, d[1])
	change, err := r.Reload(poolsWith(map[string]AdminState{"d2": Drain, "d3": Disabled}), 1, nil)
	if err != nil || len(change.Joined)+len(change.Left)+len(change.Resumed) != 0 {
		t.Fatalf("%v, %v", change, err)
	}
	s := r.Snapshot()
	if got := names(s.Backends(Decode)); got != "d1" || len(s.Members(Decode)) != 3 || s.AdminState(d[1]) != Drain || s.AdminState(d[2]) != Disabled {
		t.Errorf("ready are %s of %d; %s %s", got, len(s.Members(Decode)), s.AdminState(d[1]), s.AdminState(d[2]))
	}
	for _, snap := range []*Snapshot{old, s} { // a request may still have the old one
		for range 20 {
			var l Lease
			if err := snap.Acquire(Decode, 10, nil, &l); err != nil || l.Backend != d[0] {
				t.Fatalf("a lease on %v, %v", l.Backend, err)
			}
			l.Release(OK)
		}
	}
	if !d[1].Closed() || d[1].Drained() || !d[2].Drained() {
		t.Error("d2 is drained while it has a lease, or d3 is not")
	}
	d[1].HandleIssued()
	has.Release(OK)
	if d[1].Drained() {
		t.Error("d2 is drained while it has a handle")
	}
	if d[1].HandleEnded(); !d[1].Drained() {
		t.Error("d2 is not drained")
	}
	change, err = r.Reload(poolsWith(nil), 1, nil)
	if err != nil || names(change.Resumed) != "d2 d3" {
		t.Fatalf("%v, %v", names(change.Resumed), err)
	}
	got := map[*Backend]int{}
	for range 300 {
		var l Lease
		if err := r.Snapshot().Acquire(Decode, 10, nil, &l); err != nil {
			t.Fatal(err)
		}
		got[l.Backend]++
		l.Release(OK)
	}
	if got[d[1]] == 0 || got[d[2]] == 0 {
		t.Errorf("those that are back get %d and %d of 300", got[d[1]], got[d[2]])
	}
}

// A pool of which nobody is ready is not the same as no pool.
func TestNobodyReady(t *testing.T) {
	r, _ := newRouterOf(t, 2, 3, nil)
	if _, err := r.Reload(poolsWith(map[string]AdminState{"p1": Drain, "p2": Disabled}), 1, nil); err != nil {
		t.Fatal(err)
	}
	s := r.Snapshot()
	for _, m := range s.Members(Decode) {
		m.force(Up)
	}
	if !s.Pooled(Prefill) || !s.Outage() || s.Ready(false) || !s.Ready(true) {
		t.Errorf("pooled %v, outage %v, ready %v, %v", s.Pooled(Prefill), s.Outage(), s.Ready(false), s.Ready(true))
	}
	var l Lease
	if err := s.Acquire(Prefill, 1, nil, &l); !errors.Is(err, ErrNoBackend) {
		t.Errorf("%v", err)
	}
	if _, err := r.Reload(poolsWith(map[string]AdminState{"d1": Drain, "d2": Drain, "d3": Drain}), 1, nil); err != nil {
		t.Fatal(err)
	}
	if s := r.Snapshot(); s.Ready(true) || !errors.Is(s.Acquire(Decode, 1, nil, &l), ErrNoBackend) || s.Advice().Decode.Backends != 0 {
		t.Error("a pool of drained backends serves")
	}
}

// A request that still has an old snapshot takes what is there now, but never the engine that holds the
// blocks of its other leg.
func TestOldSnapshotTurnsToTheNewOne(t *testing.T) {
	r, _ := newRouterOf(t, 2, 3, nil)
	old := r.Snapshot()
	p1 := old.Backends(Prefill)[0]
	cfg := DefaultConfig()
	cfg.Prefill, cfg.Decode = MustEntries("http://p2:80"), MustEntries("http://p1:80") // p1 has changed its role
	if _, err := r.Reload(cfg, 1, nil); err != nil {
		t.Fatal(err)
	}
	var l Lease
	if err := old.AcquireFor(Want{Role: Decode, Tokens: 1, Peer: p1}, &l); !errors.Is(err, ErrNoBackend) {
		t.Errorf("%v is to pull from itself, %v", l.Backend, err)
	}
	if err := old.AcquireFor(Want{Role: Decode, Tokens: 1, Peer: old.Backends(Prefill)[1]}, &l); err != nil || l.Backend.URL != "http://p1:80" || l.Backend.Role != Decode {
		t.Errorf("%v, %v", l.Backend, err)
	}
	if b := old.Pick(Want{Role: Decode}); b == nil || b != l.Backend {
		t.Errorf("%v is picked", b)
	}
	l.Release(OK)
}

// A request that waits for a slot while the engine of its other leg changes its role does not get that
// engine, whose blocks it could not pull from itself.
func TestWaitersNeverGetTheEngineOfTheirOtherLeg(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		capped := func(c *Config) { c.PrefillMaxInFlight = 1 }
		r, _ := newRouterOf(t, 1, 2, capped)
		s := r.Snapshot()
		p1, d1 := s.Backends(Prefill)[0], s.Backends(Decode)[0]
		held := leaseOn(t, s, p1)
		var own, other Lease
		tied := wait(s, Want{Role: Prefill, Tokens: 1, Peer: d1}, &own, Line{9, time.Minute}, nil)
		free := wait(s, Want{Role: Prefill, Tokens: 1, Peer: s.Backends(Decode)[1]}, &other, Line{9, time.Minute}, nil)
		cfg := DefaultConfig()
		cfg.Prefill, cfg.Decode = MustEntries(p1.URL, d1.URL), MustEntries("http://d2:80") // d1 has changed its role
		capped(&cfg)
		if _, err := r.Reload(cfg, 1, nil); err != nil {
			t.Fatal(err)
		}
		if pending(free) || other.Backend.URL != d1.URL {
			t.Errorf("the slot of d1 is not given to the request that may have it")
		}
		if !pending(tied) {
			t.Fatalf("%s is to pull from itself", own.Backend.URL)
		}
		held.Release(OK)
		if err := <-tied; err != nil || own.Backend != p1 {
			t.Errorf("%v, %v", own.Backend, err)
		}
	})
}

// A backend that was removed by force stays down, although its engine passes the checks: a request that
// has reserved it, and comes to it only now, goes elsewhere.
func TestAbandonedBackendsStayDown(t *testing.T) {
	r, _ := newRouterOf(t, 1, 2, nil)
	d1 := r.Snapshot().Backends(Decode)[0]
	leaseOn(t, r.Snapshot(), d1)
	for range 5 {
		d1.Observe(true)
	}
	cfg := DefaultConfig()
	cfg.Prefill, cfg.Decode = urls("p", 1), MustEntries("http://d2:80")
	if _, err := r.Reload(cfg, 1, nil); err != nil {
		t.Fatal(err)
	}
	d1.Abandon()
	for range 5 {
		d1.Observe(true)
	}
	if d1.Fit() {
		t.Errorf("a check brings it back: %s", d1.State())
	}
}

// No lease begins on a backend after it was found drained, whatever races.
func TestNoLeaseAfterDrained(t *testing.T) {
	r, _ := newRouterOf(t, 2, 3, nil)
	d1 := r.Snapshot().Backends(Decode)[0]
	var drained, late atomic.Bool
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for range 8 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				var l Lease
				if r.Snapshot().Acquire(Decode, 1, nil, &l) != nil {
					continue
				}
				if l.Backend == d1 && drained.Load() {
					late.Store(true)
				}
				l.Release(OK)
				runtime.Gosched() // otherwise each turn takes 10 ms on one processor
			}
		})
	}
	for range 200 {
		if _, err := r.Reload(poolsWith(map[string]AdminState{"d1": Drain}), 1, nil); err != nil {
			t.Fatal(err)
		}
		for !d1.Drained() { // leases last for moments
			runtime.Gosched()
		}
		drained.Store(true)
		for range 50 {
			runtime.Gosched()
		}
		drained.Store(false)
		if _, err := r.Reload(poolsWith(nil), 1, nil); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	wg.Wait()
	if late.Load() {
		t.Error("a lease began on a drained backend")
	}
}

func TestEntryWithState(t *testing.T) {
	for text, want := range map[string]string{
		"http://a:1 state=drain":             "http://a:1 state=drain",
		"http://a:1 state=ready":             "http://a:1",
		"http://a:1 state=disabled weight=2": "http://a:1 weight=2 state=disabled",
	} {
		if e, err := ParseEntry(text); err != nil || e.String() != want {
			t.Errorf("%s: %s, %v", text, e, err)
		}
	}
	if _, err := ParseEntry("http://a:1 state=off"); err == nil || !strings.Contains(err.Error(), "state=drain") {
		t.Errorf("%v", err)
	}
}
