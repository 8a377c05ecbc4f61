package router

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// script plays failed and good transfers, "p1d2 p1d1+ 30s": a + is one that worked, and a duration
// moves the clock.
func script(t *testing.T, r *Router, clock *handClock, steps string) {
	t.Helper()
	s := r.Snapshot()
	for _, step := range strings.Fields(steps) {
		var p, d int
		if _, err := fmt.Sscanf(step, "p%dd%d", &p, &d); err != nil {
			wait, err := time.ParseDuration(step)
			if err != nil {
				t.Fatal(err)
			}
			clock.advance(wait)
			continue
		}
		report := s.Pairs().Failed
		if strings.HasSuffix(step, "+") {
			report = s.Pairs().Worked
		}
		report(Pair{s.Backends(Prefill)[p-1], s.Backends(Decode)[d-1]})
	}
}

// verdict lists the ejected backends and the banned pairs.
func verdict(r *Router) string {
	var list []string
	s := r.Snapshot()
	for _, role := range []Role{Prefill, Decode} {
		for _, b := range s.Backends(role) {
			if b.Ejected() {
				list = append(list, name(b))
			}
		}
	}
	for _, p := range s.Backends(Prefill) {
		for _, d := range s.Backends(Decode) {
			if bn := r.pairs.banOf(Pair{p, d}); bn != nil && bn.until.Load() > r.now() {
				list = append(list, name(p)+name(d))
			}
		}
	}
	return strings.Join(list, " ")
}

func TestPairBlame(t *testing.T) {
	for _, tc := range []struct {
		name, steps, want string
	}{
		{"two of one pair", "p1d1 p1d1", ""},
		{"three of one pair ban it", "p1d1 p1d1 p1d1", "p1d1"},
		{"the pair worked between", "p1d1 p1d1 p1d1+ p1d1", ""},
		{"its ends work with others", "p1d1 p1d2+ p2d1+ p1d1 p1d2+ p2d1+ p1d1", "p1d1"},
		{"not within a minute", "p1d1 30s p1d1 30s p1d1", ""},
		{"just within a minute", "p1d1 30s p1d1 29s p1d1", "p1d1"},
		{"three with one P on two D", "p1d1 p1d2 p1d1", "p1"},
		{"three with one P on three D", "p1d1 p1d2 p1d3", "p1"},
		{"three with one D on two P", "p1d1 p2d1 p1d1", "d1"},
		{"P worked between", "p1d1 p1d2 p1d3+ p1d1", ""},
		{"D worked between", "p1d1 p2d1 p3d1+ p1d1", ""},
		{"P's failures not within a minute", "p1d1 59s p1d2 1s p1d1", ""},
		{"another P's success does not help", "p1d1 p1d2 p2d2+ p1d1", "p1"},
		{"all different", "p1d1 p2d2 p3d3", ""},
		{"two of each of two", "p1d1 p1d1 p2d2 p2d2", ""},
		{"banned first, then P blamed", "p1d1 p1d1 p1d1 p1d2", "p1 p1d1"},
		{"what ejected P does not speak against D", "p1d1 p1d2 p1d1 p2d1 p2d1", "p1"},
		{"nothing is left of it after the ejection", "p1d1 p1d2 p1d1 30s p1d1 p1d2", ""},
		{"a ban ends by time", "p1d1 p1d1 p1d1 60s", ""},
		{"the probe fails", "p1d1 p1d1 p1d1 60s p1d1", "p1d1"},
		{"the probe works", "p1d1 p1d1 p1d1 60s p1d1+ p1d1", ""},
		{"a late success ends the ban", "p1d1 p1d1 p1d1 p1d1+", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, clock := newRouterOf(t, 4, 4, nil)
			script(t, r, clock, tc.steps)
			if got := verdict(r); got != tc.want {
				t.Errorf("against %q, want %q", got, tc.want)
			}
		})
	}
}

// A P that cannot be ejected is not banned with all Ds instead.
func TestBlameOfTheOnlyPrefill(t *testing.T) {
	r, clock := newRouterOf(t, 1, 3, nil)
	script(t, r, clock, "p1d1 p1d2 p1d3 p1d1 p1d2 p1d3 p1d1 p1d2 p1d3")
	if got := verdict(r); got != "" {
		t.Errorf("against %q", got)
	}
}

// paired lists the backends of n requests whose other leg is on peer.
func paired(s *Snapshot, role Role, peer *Backend, n int) string {
	var got []string
	for range n {
		var l Lease
		if err := s.AcquireFor(Want{Role: role, Peer: peer}, &l); err != nil {
			got = append(got, err.Error())
			continue
		}
		got = append(got, name(l.Backend))
		l.Release(ClientGone)
	}
	return strings.Join(got, " ")
}

func TestBannedPairIsAvoided(t *testing.T) {
	for _, policy := range Policies() {
		t.Run(policy, func(t *testing.T) {
			r, clock := newRouterOf(t, 4, 2, func(c *Config) { c.PrefillPolicy, c.DecodePolicy = policy, policy })
			s := r.Snapshot()
			p, d := s.Backends(Prefill), s.Backends(Decode)
			script(t, r, clock, "p1d1 p1d1 p1d1")
			if got := paired(s, Prefill, d[0], 12); strings.Contains(got, "p1") || !strings.Contains(got, "p2") || !strings.Contains(got, "p3") {
				t.Errorf("with d1: %s", got)
			}
			if got := paired(s, Prefill, d[1], 12); !strings.Contains(got, "p1") {
				t.Errorf("with d2: %s", got)
			}
			if got := paired(s, Decode, p[0], 4); got != "d2 d2 d2 d2" {
				t.Errorf("with p1: %s", got)
			}
			if got := picks(s, Prefill, 12); !strings.Contains(got, "p1") {
				t.Errorf("alone: %s", got)
			}
			// The only one left is still taken.
			var l Lease
			if err := s.AcquireFor(Want{Role: Prefill, Peer: d[0], Skip: p[1:]}, &l); err != nil || l.Backend != p[0] {
				t.Errorf("with the others tried: %v, %v", l.Backend, err)
			}
			l.Release(ClientGone)
			// If all are banned, the one that has been banned longest is taken.
			script(t, r, clock, "p1d1+ p3d1 p3d1 p3d1 p4d1+ 1s p1d1 p1d1 p1d1 p4d1+ 1s p2d1 p2d1 p2d1")
			p[3].force(Down)
			if got := verdict(r); got != "p1d1 p2d1 p3d1" {
				t.Fatalf("against %q", got)
			}
			if got := paired(s, Prefill, d[0], 3); got != "p3 p3 p3" {
				t.Errorf("all banned with d1: %s, want the one banned first", got)
			}
		})
	}
}

// With only one P, a D that cannot load from it must not even be reserved.
func TestDecodeWithoutAPartnerIsAvoided(t *testing.T) {
	r, clock := newRouterOf(t, 2, 2, nil)
	s := r.Snapshot()
	script(t, r, clock, "p1d1 p1d1 p1d1")
	if got := paired(s, Decode, nil, 6); !strings.Contains(got, "d1") {
		t.Errorf("%s: d1 has another partner", got)
	}
	s.Backends(Prefill)[1].force(Down)
	if got := paired(s, Decode, nil, 4); got != "d2 d2 d2 d2" {
		t.Errorf("%s: d1's only partner is banned with it", got)
	}
	if got := picks(s, Decode, 4); !strings.Contains(got, "d1") {
		t.Errorf("%s: a request without a prefill may go to d1", got)
	}
	clock.advance(banFor)
	if got := paired(s, Decode, nil, 6); strings.Count(got, "d1") != 1 {
		t.Errorf("%s: one request probes", got)
	}
}

func TestProbeOfABannedPair(t *testing.T) {
	r, clock := newRouterOf(t, 2, 1, nil)
	s := r.Snapshot()
	p, d := s.Backends(Prefill), s.Backends(Decode)[0]
	ban := func() { script(t, r, clock, "p1d1 p1d1 p1d1") }
	probes := func() int { return strings.Count(paired(s, Prefill, d, 6), "p1") }
	ban()
	clock.advance(banFor - 1)
	if n := probes(); n != 0 {
		t.Fatalf("%d requests before the ban ended", n)
	}
	clock.advance(1)
	if n := probes(); n != 1 {
		t.Fatalf("%d requests probe, want one", n)
	}
	if n := probes(); n != 0 {
		t.Fatalf("%d more while the probe is out", n)
	}
	clock.advance(banFor)
	if n := probes(); n != 1 {
		t.Fatalf("%d requests probe after the first never told, want one", n)
	}
	s.Pairs().Failed(Pair{p[0], d})
	clock.advance(banFor - 1)
	if n := probes(); n != 0 {
		t.Fatalf("%d requests after the probe failed", n)
	}
	clock.advance(1)
	if n := probes(); n != 1 {
		t.Fatalf("%d requests probe again, want one", n)
	}
	s.Pairs().Worked(Pair{p[0], d})
	if n := probes(); n != 3 {
		t.Fatalf("%d of 6 after the probe worked, want half", n)
	}
	if r.pairs.bans.Load() != nil || r.pairs.recent.Load() != 0 {
		t.Error("the matrix is not empty again")
	}
}

// A probe that finds its backend full is not spent.
func TestProbeIsGivenBack(t *testing.T) {
	r, clock := newRouterOf(t, 1, 1, nil)
	s := r.Snapshot()
	p, d := s.Backends(Prefill)[0], s.Backends(Decode)[0]
	script(t, r, clock, "p1d1 p1d1 p1d1 60s")
	w := Want{Role: Prefill, Peer: d}
	q := s.query(&w, s.pool(w.Role))
	c, ok := q.pairs.probe(p, q.now)
	if !ok || !q.pairs.banned(p, q.now) {
		t.Fatalf("claimed %v, and others see the pair banned %v; want both", ok, q.pairs.banned(p, q.now))
	}
	c.giveBack()
	if q.pairs.banned(p, q.now) {
		t.Error("still claimed")
	}
}

func TestForget(t *testing.T) {
	r, clock := newRouterOf(t, 2, 2, nil)
	s := r.Snapshot()
	p, d := s.Backends(Prefill), s.Backends(Decode)
	script(t, r, clock, "p1d1 p1d1 p1d1 p2d2 p2d2 p2d2 p1d2")
	if got := verdict(r); got != "p1 p1d1 p2d2" && got != "p1 d2 p1d1 p2d2" {
		t.Fatalf("against %q", got)
	}
	end(t, s, p[1], Gateway, 3)
	end(t, s, d[0], Gateway, 4)
	end(t, s, p[1], Refused, 1)
	p[0].Reset()
	p[1].Reset()
	if got := picks(s, Prefill, 30); !strings.Contains(got, "p2") {
		t.Errorf("picked %s: p2 is passed over for a connection that its last engine refused", got)
	}
	d[1].Reset()
	if got := verdict(r); got != "" {
		t.Errorf("against %q after both engines restarted", got)
	}
	if share := p[0].share(r.now(), 30*time.Second); share != minShare {
		t.Errorf("share %v, want that of a slow start", share)
	}
	clock.advance(31 * time.Second)
	end(t, s, p[0], Gateway, 5)
	if p[0].ejections.Load() != 1 {
		t.Errorf("its next ejection is number %d", p[0].ejections.Load())
	}
	if end(t, s, p[1], Gateway, 1); p[1].failures.Load() != 1 {
		t.Errorf("%d failures in a row, want those since the restart", p[1].failures.Load())
	}
	if d[0].failures.Load() != 4 {
		t.Error("another backend's failures were dropped")
	}
}

func TestFailuresOfAPairAreBounded(t *testing.T) {
	r, _ := newRouterOf(t, 1, 1, nil)
	s := r.Snapshot()
	for range 1000 {
		s.Pairs().Failed(Pair{s.Backends(Prefill)[0], s.Backends(Decode)[0]})
	}
	if n := len(r.pairs.failures); n > kvFailures {
		t.Errorf("%d failures kept of one pair", n)
	}
}
