package router

import (
	"testing"
	"time"
)

// A wedged engine is passed over while there is another, and its legs without a byte go there. It is down only later, and then
// its streams end and its health checks bring it no more.
func TestWedge(t *testing.T) {
	r, _ := newRouterOf(t, 0, 2, nil)
	s := r.Snapshot()
	b := s.Backends(Decode)[0]
	b.force(Up)
	var leg, stream, blocks int
	waiting, begun := leaseOn(t, s, b), leaseOn(t, s, b)
	waiting.OnDown(func() { leg++ })
	begun.OnDown(func() { t.Error("called after it was replaced") })
	begun.OnWedged(func() { stream++ })
	var source Watch
	source.On(b, func() { blocks++ })
	expect := func(when string, wantLeg, wantStream, wantBlocks int) {
		t.Helper()
		if leg != wantLeg || stream != wantStream || blocks != wantBlocks {
			t.Errorf("%s: %d legs, %d streams, %d users of its blocks are told", when, leg, stream, blocks)
		}
	}

	Wedge(b, Wedged{Since: time.Unix(1, 0)})
	b.Defer(time.Second)
	expect("wedged", 1, 0, 0)
	if got := picks(s, Decode, 4); got != "d2 d2 d2 d2" || b.State() != Up {
		t.Errorf("wedged: picks %s, state %s", got, b.State())
	}
	end(t, s, b, Gateway, 9)
	if b.Ejected() {
		t.Error("ejected for the legs that left it")
	}
	Wedge(b, Wedged{Since: time.Unix(1, 0), Down: true})
	expect("down", 1, 1, 1)
	b.Observe(true)
	b.Observe(true)
	if b.State() != Down || !b.Hung() || b.Irreplaceable() {
		t.Errorf("down: state %s, hung %v, irreplaceable %v", b.State(), b.Hung(), b.Irreplaceable())
	}
	begun.OnWedged(func() { stream++ })
	expect("a stream that begins late", 1, 2, 1)

	Unwedge(b, true)
	if b.State() != Up || b.Hung() || b.Trouble.Wedged() != nil {
		t.Errorf("back: state %s, hung %v", b.State(), b.Hung())
	}
	begun.OnWedged(func() { stream++ })
	b.force(Down)
	expect("down by its checks", 1, 2, 1)
}

// The only engine of its pool keeps its legs until it is down, because they would end for certain.
func TestWedgeWithoutAnotherEngine(t *testing.T) {
	r, _ := newRouterOf(t, 0, 2, nil)
	s := r.Snapshot()
	d := s.Backends(Decode)
	told := 0
	leaseOn(t, s, d[0]).OnDown(func() { told++ })
	Wedge(d[1], Wedged{})
	Wedge(d[0], Wedged{})
	if told != 0 {
		t.Error("a leg left for an engine that is wedged too")
	}
	if got := picks(s, Decode, 2); got == "" || d[0].State() == Down {
		t.Errorf("picks %s", got)
	}
	Wedge(d[0], Wedged{Down: true})
	if told != 1 {
		t.Error("a leg stays on an engine that is down")
	}
	Unwedge(d[0], false)
	if d[0].State() != Down {
		t.Error("an engine that has gone comes up")
	}
	d[0].Observe(true)
	d[0].Observe(true)
	if d[0].State() != Up {
		t.Error("its checks do not bring it back")
	}
}

// What an engine has to compute says how long it may take. For a prompt that is much longer than any before there is no price.
func TestExpected(t *testing.T) {
	r, _ := newRouterOf(t, 2, 1, nil)
	s := r.Snapshot()
	p := s.Backends(Prefill)[0]
	expect := func(when string, b *Backend, known bool, least, most time.Duration) {
		t.Helper()
		if took, ok := Expected(b); ok != known || took < least || took > most {
			t.Errorf("%s: %v, %v", when, took, ok)
		}
	}
	expect("idle", p, true, 0, 0)
	lease := func(tokens int) *Lease {
		l := new(Lease)
		if err := s.Acquire(Prefill, tokens, []*Backend{s.Backends(Prefill)[1]}, l); err != nil {
			t.Fatal(err)
		}
		return l
	}
	first := lease(1000)
	expect("before any price", p, false, 0, 0)
	for range 10 {
		r.Prefilled(0, 1000, time.Second)
	}
	expect("a usual prompt", p, true, 900*time.Millisecond, 1100*time.Millisecond)
	second := lease(1000)
	expect("two", p, true, 1800*time.Millisecond, 2200*time.Millisecond)
	first.Release(OK)
	second.Release(OK)
	lease(60_000)
	expect("far longer than any", p, false, 0, 0)
}

// A slow engine takes as much of its weight as its speed allows.
func TestSlowEngineGetsItsShare(t *testing.T) {
	r, _ := newRouterOf(t, 0, 2, nil)
	s := r.Snapshot()
	count := func() (n int) {
		for range 400 {
			var l Lease
			if err := s.Acquire(Decode, 1, nil, &l); err != nil {
				t.Fatal(err)
			}
			if l.Backend == s.Backends(Decode)[0] {
				n++
			}
			l.Release(OK)
		}
		return n
	}
	if n := count(); n != 200 {
		t.Fatalf("%d of 400 go to one of two", n)
	}
	Slowed(s.Backends(Decode)[0], &Slow{Ratio: 0.25})
	if n := count(); n < 60 || n > 100 {
		t.Errorf("%d of 400 go to one that has a quarter of the other's speed, want 80 or so", n)
	}
	Slowed(s.Backends(Decode)[0], nil)
	if n := count(); n != 200 {
		t.Errorf("%d of 400 once it is fast again", n)
	}
}
