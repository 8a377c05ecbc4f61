package router

import (
	"strings"
	"testing"
	"time"
)

// names lists pairs as verdict does.
func pairNames(pairs []Pair) string {
	var list []string
	for _, x := range pairs {
		list = append(list, name(x.Prefill)+name(x.Decode))
	}
	return strings.Join(list, " ")
}

func allDue(s *Snapshot) []Pair {
	probes, cold := s.Pairs().WarmUps(s)
	return append(probes, cold...)
}

func dueNames(s *Snapshot) string { return pairNames(allDue(s)) }

func allUp(s *Snapshot) {
	for _, role := range []Role{Prefill, Decode} {
		for _, b := range s.Backends(role) {
			b.Observe(true)
		}
	}
}

func TestColdPairsArePassedOver(t *testing.T) {
	r, clock := newRouterOf(t, 2, 2, nil)
	s := r.Snapshot()
	allUp(s)
	p, d := s.Backends(Prefill), s.Backends(Decode)
	s.Pairs().Chill(p[0], true)
	if got := dueNames(s); got != "p1d1 p1d2" {
		t.Fatalf("due: %q", got)
	}
	pick := func(want Want) string {
		t.Helper()
		var l Lease
		if err := s.AcquireFor(want, &l); err != nil {
			t.Fatal(err)
		}
		defer l.Release(OK)
		return name(l.Backend)
	}
	for range 4 {
		if got := pick(Want{Role: Prefill, Peer: d[0]}); got != "p2" {
			t.Fatalf("prefill with d1: %s, although p1d1 is cold", got)
		}
		if got := pick(Want{Role: Prefill, Peer: d[0], Skip: []*Backend{p[1]}}); got != "p1" {
			t.Fatalf("the only prefill left: %s", got)
		}
	}
	s.Pairs().Worked(Pair{p[0], d[0]})
	if got := dueNames(s); got != "p1d2" {
		t.Fatalf("due after p1d1 has worked: %q", got)
	}
	s.Pairs().Warm(Pair{p[0], d[1]})
	if got := dueNames(s); got != "" {
		t.Fatalf("due after all are warm: %q", got)
	}
	s.Pairs().Chill(p[0], true)
	clock.advance(coldFor)
	seen := map[string]bool{}
	for range 4 {
		seen[pick(Want{Role: Prefill, Peer: d[0]})] = true
	}
	if !seen["p1"] || dueNames(s) != "p1d1 p1d2" {
		t.Errorf("after %v a cold backend must take its share and stay due: %v, %q", coldFor, seen, dueNames(s))
	}
}

func TestAllColdIsAsNoneCold(t *testing.T) {
	r, _ := newRouterOf(t, 2, 2, nil)
	s := r.Snapshot()
	allUp(s)
	for _, b := range s.Backends(Prefill) {
		s.Pairs().Chill(b, true)
	}
	seen := map[string]int{}
	for range 8 {
		var l Lease
		if err := s.AcquireFor(Want{Role: Decode}, &l); err != nil {
			t.Fatal(err)
		}
		seen[name(l.Backend)]++
		l.Release(OK)
	}
	if seen["d1"] != 4 || seen["d2"] != 4 {
		t.Errorf("%v, want the usual rotation", seen)
	}
}

func TestDownPairsAreNotWarmed(t *testing.T) {
	r, _ := newRouterOf(t, 1, 2, nil)
	s := r.Snapshot()
	s.Pairs().Chill(s.Backends(Prefill)[0], false)
	if got := dueNames(s); got != "" {
		t.Fatalf("due before any check: %q", got)
	}
	s.Backends(Prefill)[0].Observe(true)
	s.Backends(Decode)[1].Observe(true)
	if got := dueNames(s); got != "p1d2" {
		t.Fatalf("due: %q", got)
	}
}

func TestBannedPairIsDueBeforeItsBanEnds(t *testing.T) {
	r, clock := newRouterOf(t, 2, 1, nil)
	s := r.Snapshot()
	allUp(s)
	script(t, r, clock, "p1d1 p1d1 p1d1")
	if got := dueNames(s); got != "" {
		t.Fatalf("due at once: %q", got)
	}
	clock.advance(banFor - time.Second)
	if got := dueNames(s); got != "p1d1" {
		t.Fatalf("due at the end of the ban: %q", got)
	}
	if got := dueNames(s); got != "" {
		t.Fatalf("due twice: %q", got)
	}
	clock.advance(2 * time.Second) // the ban would be over, but for the probe
	for range 4 {
		var l Lease
		if err := s.AcquireFor(Want{Role: Prefill, Peer: s.Backends(Decode)[0]}, &l); err != nil || name(l.Backend) != "p2" {
			t.Fatalf("a request became the probe: %v %v", l.Backend, err)
		}
		l.Release(OK)
	}
	s.Pairs().Worked(Pair{s.Backends(Prefill)[0], s.Backends(Decode)[0]})
	if got := verdict(r); got != "" {
		t.Errorf("still banned after a probe that worked: %s", got)
	}
}

// A partner that is down for long keeps its pairs cold, and the others must not pay for that.
func TestWarmPairPaysNothingForColdOnes(t *testing.T) {
	r, _ := newRouterOf(t, 2, 1, nil)
	s := r.Snapshot()
	p, d := s.Backends(Prefill), s.Backends(Decode)
	s.Pairs().Chill(d[0], false)
	s.Pairs().Worked(Pair{p[0], d[0]})
	if n := testing.AllocsPerRun(100, func() { s.Pairs().Worked(Pair{p[0], d[0]}) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestFirstCheckLeavesAJoinedBackendPassedOver(t *testing.T) {
	r, _ := newRouterOf(t, 2, 1, nil)
	s := r.Snapshot()
	allUp(s)
	p, d := s.Backends(Prefill), s.Backends(Decode)
	s.Pairs().Chill(p[0], true)  // as it joins
	s.Pairs().Chill(p[0], false) // as its first check passes
	for range 8 {
		var l Lease
		if err := s.AcquireFor(Want{Role: Prefill, Peer: d[0]}, &l); err != nil || l.Backend == p[0] {
			t.Fatalf("%v %v, want the warm one", l.Backend, err)
		}
		l.Release(OK)
	}
}

func TestPairThatCannotBeProbedIsProbedByARequest(t *testing.T) {
	r, clock := newRouterOf(t, 2, 1, nil)
	s := r.Snapshot()
	allUp(s)
	d := s.Backends(Decode)[0]
	script(t, r, clock, "p1d1 p1d1 p1d1")
	for range 3 * 60 * 2 { // three minutes of checks
		clock.advance(500 * time.Millisecond)
		for _, x := range allDue(s) {
			s.Pairs().Unprobed(x)
			s.Pairs().Warm(x)
		}
		var l Lease
		if err := s.AcquireFor(Want{Role: Prefill, Peer: d}, &l); err != nil {
			t.Fatal(err)
		}
		got := name(l.Backend)
		l.Release(OK)
		if got == "p1" {
			return
		}
	}
	t.Error("banned for three minutes, and no request was the probe")
}

func TestBackendThatLeftIsNotKnownAgain(t *testing.T) {
	r, _ := newRouterOf(t, 2, 1, nil)
	s := r.Snapshot()
	left, d := s.Backends(Prefill)[1], s.Backends(Decode)[0]
	reload(t, r, 1, 1)
	r.Pairs().Chill(left, true)
	for range kvFailures {
		s.Pairs().Failed(Pair{left, d}) // by requests that it still serves
	}
	if r.pairs.known() {
		t.Error("something is kept of a backend that has left, and nobody will forget it")
	}
}

func TestLargePoolsAreWarmedInPart(t *testing.T) {
	r, _ := newRouterOf(t, 40, 40, nil)
	s := r.Snapshot()
	allUp(s)
	with := map[*Backend]int{}
	for _, role := range []Role{Prefill, Decode} {
		for _, b := range s.Backends(role) {
			s.Pairs().Chill(b, true)
		}
	}
	_, due := s.Pairs().WarmUps(s)
	for _, x := range due {
		with[x.Prefill]++
		with[x.Decode]++
	}
	if most := 80 * warmPartners; len(due) > most {
		t.Errorf("%d pairs due, want at most %d of 1,600", len(due), most)
	}
	for b, n := range with {
		if n < warmPartners {
			t.Errorf("%s is warmed with %d, want at least %d", b.URL, n, warmPartners)
		}
	}
	if q := s.query(&Want{Role: Decode}, s.decode); q.pairs.cold {
		t.Error("picks look for cold pairs in a pool of which none is passed over")
	}
	for _, x := range due {
		s.Pairs().Warm(x)
	}
	if r.pairs.known() {
		t.Errorf("%d backends are cold yet", r.pairs.colds.Load())
	}
}

func TestLargePoolsAreWarmedWithWhatIsUp(t *testing.T) {
	r, _ := newRouterOf(t, 40, 40, nil)
	s := r.Snapshot()
	allUp(s)
	for _, d := range s.Backends(Decode)[:20] {
		for d.State() != Down {
			d.Observe(false)
		}
	}
	for _, p := range s.Backends(Prefill)[:5] {
		s.Pairs().Chill(p, true)
	}
	if due := allDue(s); len(due) != 5*warmPartners {
		t.Errorf("%d pairs due of 5 engines that came up beside 20 that are up", len(due))
	}
}
