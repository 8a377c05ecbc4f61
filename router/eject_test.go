package router

import (
	"fmt"
	"testing"
	"time"
)

func TestFailuresEject(t *testing.T) {
	for _, tc := range []struct {
		name  string
		ends  []Outcome
		eject bool
	}{
		{"five failures of every kind", []Outcome{Refused, Gateway, Engine, Timeout, Gateway}, true},
		{"four", []Outcome{Gateway, Gateway, Gateway, Gateway}, false},
		{"a success between", []Outcome{Gateway, Gateway, Gateway, Gateway, OK, Gateway}, false},
		{"five after a success", []Outcome{Gateway, OK, Gateway, Gateway, Gateway, Gateway, Gateway}, true},
		{"a departure does not reset", []Outcome{Gateway, Gateway, ClientGone, Gateway, Gateway, Gateway}, true},
		{"a 4xx does not reset", []Outcome{Gateway, Gateway, ClientFault, Gateway, Gateway, Gateway}, true},
		{"departures do not count", []Outcome{ClientGone, ClientGone, ClientGone, ClientGone, ClientGone, ClientGone}, false},
		{"4xx do not count", []Outcome{ClientFault, ClientFault, ClientFault, ClientFault, ClientFault, ClientFault}, false},
		{"failed transfers belong to the pair", []Outcome{KVLoad, KVLoad, KVLoad, KVLoad, KVLoad, KVLoad}, false},
		{"a failed transfer does not reset", []Outcome{Gateway, Gateway, KVLoad, Gateway, Gateway, Gateway}, true},
		{"our key refused", []Outcome{Auth}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, _ := newRouterOf(t, 0, 2, nil)
			s := r.Snapshot()
			b := s.Backends(Decode)[0]
			for _, o := range tc.ends {
				end(t, s, b, o, 1)
			}
			want := "d1 d2 d1 d2"
			if tc.eject {
				want = "d2 d2 d2 d2"
			}
			if got := picks(s, Decode, 4); b.Ejected() != tc.eject || tc.eject && got != want {
				t.Errorf("ejected %v, picks %s; want %v, %s", b.Ejected(), got, tc.eject, want)
			}
		})
	}
}

func TestEjectionsGrow(t *testing.T) {
	r, clock := newRouterOf(t, 0, 2, nil)
	s := r.Snapshot()
	b := s.Backends(Decode)[0]
	// lasts fails the backend until it is ejected and returns for how long.
	lasts := func() time.Duration {
		end(t, s, b, Gateway, 5)
		for d := time.Duration(0); ; d += time.Second {
			if !b.Ejected() {
				return d
			}
			clock.advance(time.Second)
		}
	}
	for i := range 12 {
		want := min(time.Duration(i+1)*30*time.Second, 300*time.Second)
		if got := lasts(); got != want {
			t.Fatalf("ejection %d lasts %v, want %v", i+1, got, want)
		}
	}
	clock.advance(299 * time.Second)
	end(t, s, b, OK, 1)
	if got := lasts(); got != 300*time.Second {
		t.Errorf("%v after it had served for less than its last ejection", got)
	}
	clock.advance(300 * time.Second)
	if got := lasts(); got != 300*time.Second {
		t.Errorf("%v although it has served nothing since", got)
	}
	clock.advance(300 * time.Second)
	end(t, s, b, OK, 1)
	if got := lasts(); got != 30*time.Second {
		t.Errorf("%v after it had served as long as its last ejection, want a first one", got)
	}
}

func TestAtMostHalfIsEjected(t *testing.T) {
	for size, want := range map[int]int{1: 0, 2: 1, 3: 1, 4: 2, 5: 2, 8: 4} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			r, clock := newRouterOf(t, 0, size, nil)
			s := r.Snapshot()
			ejected := func() (n int) {
				for _, b := range s.Backends(Decode) {
					if b.Ejected() {
						n++
					}
				}
				return n
			}
			for _, b := range s.Backends(Decode) {
				end(t, s, b, Gateway, 7)
				end(t, s, b, Auth, 1)
				r.Eject(b, EjectStall)
			}
			if ejected() != want {
				t.Fatalf("%d of %d ejected, want %d", ejected(), size, want)
			}
			clock.advance(30 * time.Second)
			last := s.Backends(Decode)[size-1]
			if end(t, s, last, Gateway, 1); size > 1 && !last.Ejected() {
				t.Error("a backend that was spared is not ejected at its next failure, once there is room")
			}
		})
	}
}

func TestEjectedBackendReturnsToPicks(t *testing.T) {
	r, clock := newRouterOf(t, 0, 2, func(c *Config) { c.Health.SlowStart = 0 })
	s := r.Snapshot()
	b := s.Backends(Decode)[0]
	end(t, s, b, Gateway, 4)
	inFlight := leaseOn(t, s, b)
	end(t, s, b, Gateway, 1)
	b.force(Down)
	b.Observe(true)
	b.Observe(true)
	if b.State() != Up || !b.Ejected() {
		t.Fatal("a passed check has ended the ejection")
	}
	inFlight.Release(OK)
	if got := picks(s, Decode, 2); got != "d2 d2" {
		t.Errorf("a success of before has ended the ejection: %s", got)
	}
	end(t, s, b, Gateway, 9) // legs from before the ejection say nothing new
	clock.advance(30*time.Second - 1)
	if got := picks(s, Decode, 2); got != "d2 d2" {
		t.Errorf("picks %s before its time", got)
	}
	clock.advance(1)
	if got := picks(s, Decode, 2); got != "d1 d2" && got != "d2 d1" {
		t.Errorf("picks %s after its time", got)
	}
	end(t, s, b, Gateway, 4)
	if b.Ejected() {
		t.Error("failures of before the ejection count after it")
	}
}

func TestAllCandidatesEjected(t *testing.T) {
	for _, policy := range Policies() {
		t.Run(policy, func(t *testing.T) {
			r, clock := newRouterOf(t, 0, 4, func(c *Config) { c.DecodePolicy = policy })
			s := r.Snapshot()
			d := s.Backends(Decode)
			end(t, s, d[2], Gateway, 5)
			clock.advance(time.Second)
			end(t, s, d[0], Gateway, 5)
			d[1].force(Down)
			d[3].force(Down)
			if got := picks(s, Decode, 3); got != "d3 d3 d3" {
				t.Errorf("picked %s, want the one ejected first", got)
			}
			if got := picks(s, Decode, 1, d[2]); got != "d1" {
				t.Errorf("picked %s with d3 tried", got)
			}
			d[3].force(Up)
			if got := picks(s, Decode, 2); got != "d4 d4" {
				t.Errorf("picked %s with d4 up", got)
			}
		})
	}
}

func TestEjectOff(t *testing.T) {
	r, _ := newRouterOf(t, 0, 2, func(c *Config) { c.Health.EjectAfter = 0 })
	s := r.Snapshot()
	b := s.Backends(Decode)[0]
	end(t, s, b, Gateway, 20)
	end(t, s, b, Auth, 1)
	if r.Eject(b, EjectStall) || b.Ejected() {
		t.Error("ejected although switched off")
	}
}

func TestOnEject(t *testing.T) {
	r, _ := newRouterOf(t, 0, 2, nil)
	s := r.Snapshot()
	d := s.Backends(Decode)
	var got []string
	r.OnEject(func(e Ejection) {
		got = append(got, fmt.Sprintf("%s %s %v %d", name(e.Backend), e.Reason, e.For, e.Nth))
	})
	expect := func(want ...string) {
		t.Helper()
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("told of %q, want %q", got, want)
		}
		got = nil
	}
	end(t, s, d[0], Gateway, 4)
	expect()
	end(t, s, d[0], Gateway, 1)
	expect("d1 failures 30s 1")
	end(t, s, d[0], Gateway, 9)
	expect()
	// The other one is spared, which is reported once until it has succeeded.
	end(t, s, d[1], Gateway, 9)
	end(t, s, d[1], Auth, 2)
	expect("d2 failures 0s 1")
	end(t, s, d[1], OK, 1)
	end(t, s, d[1], Auth, 2)
	expect("d2 auth 0s 1")
	r.Eject(d[1], EjectStall)
	expect("d2 stall 0s 1")
}

// A slow engine that is ejected already is not spared, so the first time that it is spared after that is told.
func TestSparedIsToldAfterAnEjection(t *testing.T) {
	r, clock := newRouterOf(t, 0, 2, nil)
	d := r.Snapshot().Backends(Decode)
	var got []string
	r.OnEject(func(e Ejection) { got = append(got, fmt.Sprintf("%s %v", name(e.Backend), e.For)) })
	r.Eject(d[0], EjectSlow)
	r.Eject(d[0], EjectSlow)
	clock.advance(time.Minute)
	r.Eject(d[1], EjectStall)
	r.Eject(d[0], EjectSlow)
	r.Eject(d[0], EjectSlow)
	if want := "[d1 30s d2 30s d1 0s]"; fmt.Sprint(got) != want {
		t.Errorf("told of %v, want %s", got, want)
	}
}

// With eject_after 0 nothing ejects a backend, so a reload to that lifts what is in force, of a drained one too.
func TestReloadWithoutEjectionsLiftsThem(t *testing.T) {
	r, clock := newRouterOf(t, 2, 3, func(c *Config) { c.Health.SlowStart = 0 })
	clock.advance(time.Second)
	d := r.Snapshot().Backends(Decode)
	r.Eject(d[0], EjectFailures)
	r.Eject(r.Snapshot().Backends(Prefill)[1], EjectAuth)
	cfg := poolsWith(nil)
	cfg.DecodePolicy = "round_robin"
	if _, err := r.Reload(cfg, 1, nil); err != nil {
		t.Fatal(err)
	}
	if left, _, _ := d[0].Ejection(); left <= 0 {
		t.Error("a reload that changes nothing lifts an ejection")
	}
	cfg = poolsWith(map[string]AdminState{"p2": Drain})
	cfg.DecodePolicy, cfg.Health.EjectAfter, cfg.Health.SlowStart = "round_robin", 0, 0
	if _, err := r.Reload(cfg, 1, nil); err != nil {
		t.Fatal(err)
	}
	for _, role := range []Role{Prefill, Decode} {
		for _, m := range r.Snapshot().Members(role) {
			if left, why, _ := m.Ejection(); left > 0 {
				t.Errorf("%s is ejected for %v (%s)", name(m.Backend), left, why)
			}
		}
	}
	if got := picks(r.Snapshot(), Decode, 3); got != "d1 d2 d3" {
		t.Errorf("picked %s", got)
	}
}
