package router

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

// roleless is a router of n engines without a role, e1 and so on, and as many with one as are named.
func roleless(t testing.TB, n int, change func(*Config)) (*Router, *handClock) {
	t.Helper()
	return newRouterOf(t, 0, 0, func(c *Config) {
		c.Engines = urls("e", n)
		if change != nil {
			change(c)
		}
	})
}

// twinOf are the two backends of the engine with that place in the pools.
func twinOf(t testing.TB, s *Snapshot, i int) (p, d *Backend) {
	t.Helper()
	p, d = s.Backends(Prefill)[i], s.Backends(Decode)[i]
	if p.Twin() != d || d.Twin() != p || p.URL != d.URL {
		t.Fatalf("%s and %s are no twins", p.URL, d.URL)
	}
	return p, d
}

// Each policy, for each D: the prefill goes to every other engine and never to D's own.
func TestNoRequestHasBothLegsOnOneEngine(t *testing.T) {
	for _, policy := range Policies() {
		r, _ := roleless(t, 3, func(c *Config) { c.PrefillPolicy, c.DecodePolicy = policy, policy })
		s := r.Snapshot()
		for i := range 3 {
			_, d := twinOf(t, s, i)
			dl := leaseOn(t, s, d)
			got := map[string]int{}
			for key := range uint64(60) {
				want := Want{Role: Prefill, Tokens: 100, Like: d, Key: key, Prefix: []uint64{key + 1}, Conversation: key}
				var l Lease
				if err := s.AcquireFor(want, &l); err != nil {
					t.Fatal(policy, err)
				}
				got[l.Backend.URL]++
				if p := s.Pick(want); p == nil || p == d.Twin() {
					t.Errorf("%s: Pick names %v", policy, p.Name())
				}
				l.Release(OK)
			}
			if got[d.URL] > 0 || len(got) < 2 {
				t.Errorf("%s: prefills for %s went to %v", policy, d.URL, got)
			}
			dl.Release(OK)
		}
	}
}

// The other engine is down: no prefill, not even on D's own engine, and the router says that the request is to go whole.
func TestALoneEngineServesWhole(t *testing.T) {
	r, _ := roleless(t, 2, nil)
	s := r.Snapshot()
	_, d := twinOf(t, s, 0)
	allUp(s)
	want := Want{Role: Prefill, Like: d}
	if s.Lone(d, want) {
		t.Error("lone while the other engine is up")
	}
	p2, d2 := twinOf(t, s, 1)
	for range 3 {
		d2.Observe(false)
	}
	if p2.State() != Down || d2.State() != Down {
		t.Fatalf("states %s and %s", p2.State(), d2.State())
	}
	var l Lease
	if err := s.AcquireFor(want, &l); !errors.Is(err, ErrNoBackend) {
		t.Errorf("a prefill on %s, %v", l.Backend.Name(), err)
	}
	if !s.Lone(d, want) {
		t.Error("not lone")
	}
	if s.Outage() || !s.Ready(false) {
		t.Errorf("outage %v, ready %v", s.Outage(), s.Ready(false))
	}
}

// A handle of one engine goes to no decode on that engine, also if the roles changed while the request was under way.
func TestNoHandleGoesBackToItsEngine(t *testing.T) {
	r, _ := newRouterOf(t, 1, 1, nil)
	old := r.Snapshot()
	p := old.Backends(Prefill)[0]
	cfg := DefaultConfig()
	cfg.Engines, cfg.Decode = slices.Clone(cfg.Prefill), urls("d", 2)
	cfg.Engines = urls("p", 1) // p1 may decode now
	if _, err := r.Reload(cfg, 1, nil); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*Snapshot{old, r.Snapshot()} {
		for range 20 {
			var l Lease
			if err := s.AcquireFor(Want{Role: Decode, Peer: p, Skip: old.Backends(Decode)}, &l); err != nil || SharesEngine(p, l.Backend) {
				t.Fatalf("%v, %v", l.Backend, err)
			}
			l.Release(OK)
		}
	}
}

// What concerns the process is true of both roles; failures of legs are not.
func TestTwinsShareWhatConcernsTheProcess(t *testing.T) {
	r, clock := roleless(t, 4, nil)
	s := r.Snapshot()
	p, d := twinOf(t, s, 0)
	d.SetModels([]string{"m"})
	d.SetVersion("1")
	d.SetLongest(7)
	if len(p.Models()) != 1 || p.Version() != "1" || p.Longest() != 7 {
		t.Errorf("%v %s %d", p.Models(), p.Version(), p.Longest())
	}
	end(t, s, d, Refused, 1)
	if p.refusedUntil.Load() == 0 || p.failures.Load() != 1 {
		t.Error("P does not know that a connection was refused")
	}
	end(t, s, p, Engine, 4)
	if d.failures.Load() != 1 || d.Ejected() || !p.Ejected() {
		t.Errorf("D has %d failures, ejected %v and %v", d.failures.Load(), p.Ejected(), d.Ejected())
	}
	d.Reset()
	if p.Ejected() || d.failures.Load() != 0 {
		t.Error("a restart does not end the failures of both")
	}
	p.Defer(time.Minute)
	if d.refusedUntil.Load() < int64(time.Minute) {
		t.Error("a Retry-After to P does not count for D")
	}
	r.Eject(d, EjectStall)
	if !p.Ejected() || !d.Ejected() {
		t.Error("an engine that hangs is ejected in one role only")
	}
	then := time.Now().Add(-time.Second)
	d.Restarted(then)
	if !p.RestartedAfter(then) {
		t.Error("P has not restarted")
	}
	clock.advance(time.Minute)
	e := UnknownEngine()
	e.Running, e.Waiting, e.KVUsage = 3, 1, 0.5
	d.SetEngine(e, 1, time.Second)
	if p.Engine() == nil || p.External() != 3 || d.External() != 3 {
		t.Errorf("external %v and %v", p.External(), d.External())
	}
	down := 0
	pl, dl := leaseOn(t, s, p), leaseOn(t, s, d)
	pl.OnDown(func() { down++ })
	dl.OnDown(func() { down++ })
	for range 3 {
		d.Observe(false)
	}
	if p.State() != Down || down != 2 {
		t.Errorf("P is %s, and %d legs know it", p.State(), down)
	}
}

// What an engine has in one role counts where it is chosen for the other, by each policy that looks at loads.
func TestTheLoadOfAnEngineIsThatOfBothRoles(t *testing.T) {
	for _, policy := range []string{"least_request", "least_tokens", "power_of_two", "power_of_two_tokens", "prefix"} {
		r, _ := roleless(t, 2, func(c *Config) { c.PrefillPolicy, c.DecodePolicy = policy, policy })
		s := r.Snapshot()
		p, d := twinOf(t, s, 0)
		for role, busy := range map[Role]*Backend{Decode: p, Prefill: d} {
			var held []*Lease
			for range 8 {
				l := new(Lease)
				busy.inflight.reserve(0)
				l.hold(busy, &Want{Tokens: 1000}, 0)
				held = append(held, l)
			}
			for range 8 {
				var l Lease
				if err := s.AcquireFor(Want{Role: role, Tokens: 1000, Prefix: []uint64{1, 2}, Conversation: 3}, &l); err != nil || l.Backend == busy.Twin() {
					t.Errorf("%s: the %s goes to the engine that has 8 requests, %v", policy, role, err)
				}
				held = append(held, &l)
				if l.Held() {
					l.Release(OK)
				}
			}
			for _, l := range held {
				l.Release(OK)
			}
		}
	}
}

// The cap of decode is on all that the engine has; that of prefill is on prefills, so that no two requests wait for each
// other's slots. A prefill that ends makes room for a decode that waits.
func TestCapsOfAnEngineWithoutARole(t *testing.T) {
	r, _ := roleless(t, 1, func(c *Config) { c.PrefillMaxInFlight, c.DecodeMaxInFlight = 1, 2 })
	s := r.Snapshot()
	p, d := twinOf(t, s, 0)
	first, second := leaseOn(t, s, d), leaseOn(t, s, d)
	var third Lease // though D is full
	if err := s.Acquire(Prefill, 1, nil, &third); err != nil {
		t.Fatal(err)
	}
	if p.InFlight() != 1 || d.InFlight() != 2 {
		t.Fatalf("%d and %d", p.InFlight(), d.InFlight())
	}
	second.Release(OK)
	var l Lease
	if err := s.Acquire(Decode, 1, nil, &l); !errors.Is(err, ErrBusy) {
		t.Errorf("a lease on an engine with a prefill and an answer, %v", err)
	}
	done := make(chan error, 1)
	go func() {
		done <- s.AcquireWait(Want{Role: Decode, Alone: true}, &l, Line{Length: 1, Wait: time.Minute}, nil)
	}()
	for r.Queued(Decode) == 0 {
		time.Sleep(time.Millisecond)
	}
	third.Release(OK)
	if err := <-done; err != nil {
		t.Error(err)
	}
	l.Release(OK)
	first.Release(OK)
}

// A request that goes whole on an engine without a role is no degradation, whatever share such requests have.
func TestNothingIsDegradedWithoutRoles(t *testing.T) {
	r, _ := roleless(t, 1, nil)
	s := share(r, 0)
	_, d := twinOf(t, s, 0)
	l := leaseOn(t, s, d)
	if !s.Degrade(l) || r.degraded.Load() != 0 {
		t.Errorf("%d are degraded", r.degraded.Load())
	}
	l.Release(OK)
	if err := s.AcquireFor(Want{Role: Decode, Degraded: true}, l); err != nil || r.degraded.Load() != 0 {
		t.Errorf("%v, %d are degraded", err, r.degraded.Load())
	}
	l.Release(OK)
}

// Roles change while requests run: the role that stays keeps its load and health, and one that comes knows what is known
// of the process.
func TestAnEngineGetsAndLosesARole(t *testing.T) {
	r, _ := roleless(t, 2, nil)
	s := r.Snapshot()
	p, d := twinOf(t, s, 0)
	d.SetVersion("1")
	d.Observe(true)
	l := leaseOn(t, s, d)
	one := DefaultConfig()
	one.Decode, one.Engines = urls("e", 1), urls("e", 2)[1:]
	change, err := r.Reload(one, 1, nil)
	if err != nil || len(change.Left) != 1 || change.Left[0] != p || p.Twin() != nil || d.Twin() != nil || !p.Closed() || d.Closed() {
		t.Fatalf("%v, %v; twins %v %v", change, err, p.Twin(), d.Twin())
	}
	both := DefaultConfig()
	both.Engines = urls("e", 2)
	if change, err = r.Reload(both, 1, nil); err != nil || len(change.Joined) != 1 {
		t.Fatal(change, err)
	}
	if n := r.Snapshot().Backends(Prefill)[0]; n == p || n.Twin() != d || n.Version() != "1" || n.State() != Up || d.InFlight() != 1 {
		t.Errorf("version %q, %s, %d in flight", n.Version(), n.State(), d.InFlight())
	}
	l.Release(OK)
}

// No pair of an engine with itself is cold, warmed up or banned.
func TestAnEngineIsNoPairWithItself(t *testing.T) {
	r, _ := roleless(t, 3, nil)
	s := r.Snapshot()
	allUp(s)
	p, d := twinOf(t, s, 0)
	r.Pairs().Chill(p, true)
	r.Pairs().Chill(d, true)
	if got := dueNames(s); got != "e1e2 e1e3 e2e1 e3e1" {
		t.Errorf("due are %s", got)
	}
	if s.Pairable(Pair{p, d}) {
		t.Error("an engine may hand blocks over to itself")
	}
	// With its pairs to all others cold, an engine is passed over for the others.
	var l Lease
	if err := s.AcquireFor(Want{Role: Prefill, Like: s.Backends(Decode)[1], Peer: s.Backends(Decode)[1]}, &l); err != nil || name(l.Backend) != "e3" {
		t.Errorf("%s, %v", name(l.Backend), err)
	}
	l.Release(OK)
}

// One engine without a role beside two that only decode: it does the prefills of all, and serves requests whole only while
// neither of the two can.
func TestTheOnlyEngineThatPrefills(t *testing.T) {
	r, _ := roleless(t, 1, func(c *Config) { c.Decode = urls("d", 2) })
	s := r.Snapshot()
	allUp(s)
	if got := picksFor(s, Want{Role: Decode}, 4); got != "d1 d2 d1 d2" {
		t.Errorf("decodes go to %s", got)
	}
	for _, d := range s.Backends(Decode)[:2] {
		d.force(Down)
	}
	if got := picksFor(s, Want{Role: Decode}, 2); got != "e1 e1" {
		t.Errorf("decodes go to %s", got)
	}
}

// picksFor are the backends that n such requests get, one after the other.
func picksFor(s *Snapshot, w Want, n int) string {
	var got []string
	for range n {
		var l Lease
		if err := s.AcquireFor(w, &l); err != nil {
			got = append(got, err.Error())
			continue
		}
		got = append(got, name(l.Backend))
		l.Release(OK)
	}
	return strings.Join(got, " ")
}
