package router

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// runs gives the backends of a role their releases, in order; "" stays unknown.
func runs(s *Snapshot, role Role, releases ...string) {
	for i, v := range releases {
		s.Backends(role)[i].SetVersion(v)
	}
}

// couples are the pairs that n requests make, which take decode first, as "d1p1 d2p2", in order.
func couples(t *testing.T, s *Snapshot, n int) string {
	t.Helper()
	var all []string
	for _, d := range strings.Fields(asked(t, s, Want{Role: Decode, Tokens: 10}, n)) {
		like := named(t, s, d)
		for _, p := range strings.Fields(asked(t, s, Want{Role: Prefill, Like: like, Peer: like, Tokens: 10}, n)) {
			all = append(all, d+p)
		}
	}
	return strings.Join(all, " ")
}

// Engines of one release make pairs while there are such. Without any, all do.
func TestBackendsOfOneReleaseMakePairs(t *testing.T) {
	for name, tc := range map[string]struct {
		prefill, decode []string
		down            string
		want            string
		mismatch        string
	}{
		"all equal":                        {[]string{"0.32.0", "0.32.0"}, []string{"0.32.0", "0.32.0"}, "", "d1p1 d1p2 d2p1 d2p2", ""},
		"half is newer":                    {[]string{"0.32.1", "0.32.0"}, []string{"0.32.1", "0.32.0"}, "", "d1p1 d2p2", ""},
		"P is newer":                       {[]string{"0.32.1", "0.32.0"}, []string{"0.32.0", "0.32.0"}, "", "d1p2 d2p2", ""},
		"D is newer":                       {[]string{"0.32.0", "0.32.0"}, []string{"0.32.1", "0.32.0"}, "", "d2p1 d2p2", ""},
		"the old P is down":                {[]string{"0.33.0", "0.32.0"}, []string{"0.33.0", "0.32.0"}, "p2", "d1p1", ""},
		"the new D is down":                {[]string{"0.33.0", "0.32.0"}, []string{"0.33.0", "0.32.0"}, "d1", "d2p2", ""},
		"another build of one release":     {[]string{"0.32.0+cu129", "0.32.0"}, []string{"0.32.0", "0.32.0+cu129"}, "", "d1p2 d2p1", ""},
		"unknown pairs with any":           {[]string{"", "0.32.0"}, []string{"0.32.1", "0.32.0"}, "", "d1p1 d2p1 d2p2", ""},
		"no two are equal":                 {[]string{"0.32.1", "0.32.1"}, []string{"0.32.0", "0.31.0"}, "", "d1p1 d1p2 d2p1 d2p2", "(prefill: 0.32.1; decode: 0.31.0, 0.32.0)"},
		"the only two equal ones are down": {[]string{"0.32.0", "0.32.1"}, []string{"0.32.0", "0.31.0"}, "p1 d1", "d2p2", "(prefill: 0.32.1; decode: 0.31.0)"},
	} {
		for _, policy := range Policies() {
			t.Run(fmt.Sprintf("%s/%s", name, policy), func(t *testing.T) {
				r, _ := newRouterOf(t, 2, 2, func(c *Config) { c.PrefillPolicy, c.DecodePolicy = policy, policy })
				s := r.Snapshot()
				runs(s, Prefill, tc.prefill...)
				runs(s, Decode, tc.decode...)
				for _, b := range strings.Fields(tc.down) {
					named(t, s, b).force(Down)
				}
				if got := couples(t, s, 40); got != tc.want {
					t.Errorf("pairs %s, want %s", got, tc.want)
				}
				if got := s.Mismatch(); !strings.Contains(got, tc.mismatch) || (got == "") != (tc.mismatch == "") || s.Advice().Mismatch != got {
					t.Errorf("mismatch: %q, want %q", got, tc.mismatch)
				}
			})
		}
	}
}

// A reload keeps what is known, and an engine that runs another release now is known as that.
func TestReleaseOfAnUpgradedEngine(t *testing.T) {
	r, _ := newRouterOf(t, 2, 3, nil)
	s := r.Snapshot()
	runs(s, Prefill, "0.32.0", "0.33.0")
	runs(s, Decode, "0.32.0", "0.32.0", "0.33.0")
	if got := couples(t, s, 40); got != "d1p1 d2p1 d3p2" {
		t.Errorf("before: %s", got)
	}
	if _, err := r.Reload(poolsWith(map[string]AdminState{"d3": Drain}), 1, nil); err != nil {
		t.Fatal(err)
	}
	s = r.Snapshot()
	if got := couples(t, s, 40); got != "d1p1 d2p1" {
		t.Errorf("without d3: %s", got)
	}
	named(t, s, "d1").SetVersion("0.33.0")
	if got := couples(t, s, 40); got != "d1p2 d2p1" {
		t.Errorf("d1 is upgraded: %s", got)
	}
}

// A handle goes to engines of its release, and so does the request that gives it back.
func TestHandleStaysWithItsRelease(t *testing.T) {
	r, _ := newRouterOf(t, 2, 3, nil)
	s := r.Snapshot()
	runs(s, Prefill, "0.32.0", "0.33.0")
	runs(s, Decode, "0.32.0", "0.33.0", "0.33.0")
	p, d := named(t, s, "p2"), s.Backends(Decode)
	for range 10 {
		if b := s.Pick(Want{Role: Decode, Peer: p, Like: p}); b == nil || b == d[0] {
			t.Fatalf("a handle of p2 goes to %v", b)
		}
	}
	if b := s.Pick(Want{Role: Decode, Peer: p, Like: p, Skip: d[1:]}); b != nil {
		t.Errorf("a handle of p2 goes to %s", name(b))
	}
	if got := asked(t, s, Want{Role: Decode, Like: d[1], Peer: p, Skip: d[1:2], Tokens: 1}, 10); got != "d3" {
		t.Errorf("d2 is replaced by %s", got)
	}
	if got := asked(t, s, Want{Role: Decode, Alone: true, Unbound: true, Tokens: 1}, 10); got != "d1 d2 d3" {
		t.Errorf("alone: %s", got)
	}
}

// If the engines of one release are spent, a round with those of another may follow.
func TestOthersAreOfAnotherRelease(t *testing.T) {
	r, _ := newRouterOf(t, 2, 2, nil)
	s := r.Snapshot()
	runs(s, Prefill, "0.32.0", "0.33.0")
	runs(s, Decode, "0.32.0", "0.33.0")
	p, d := s.Backends(Prefill), s.Backends(Decode)
	w := Want{Role: Decode, Like: d[0], Gone: p[:1], Skip: d[:1]}
	if !s.Others(w) {
		t.Error("p2 and d2 are left")
	}
	if got := asked(t, s, Want{Role: Decode, Gone: p[:1], Tokens: 1}, 10); got != "d2" {
		t.Errorf("p1 has failed, and %s is asked", got)
	}
	w.Gone = p
	if s.Others(w) {
		t.Error("no prefill backend is left")
	}
}

// Requests that wait for one release do not keep others from the slots of another.
func TestQueueOfTwoReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := newRouterOf(t, 2, 2, func(c *Config) { c.PrefillMaxInFlight = 1 })
		s := r.Snapshot()
		runs(s, Prefill, "0.32.0", "0.33.0")
		runs(s, Decode, "0.32.0", "0.33.0")
		want := func(d *Backend) Want { return Want{Role: Prefill, Like: d, Peer: d, Model: []byte("m"), Tokens: 1} }
		d := s.Backends(Decode)
		var held [2]Lease
		var leases [3]Lease
		for i := range held {
			if err := s.AcquireFor(want(d[i]), &held[i]); err != nil {
				t.Fatal(err)
			}
		}
		old, later := wait(s, want(d[0]), &leases[0], Line{10, time.Minute}, nil), wait(s, want(d[0]), &leases[1], Line{10, time.Minute}, nil)
		newer := wait(s, want(d[1]), &leases[2], Line{10, time.Minute}, nil)
		held[1].Release(OK)
		if !pending(old) || !pending(later) || pending(newer) {
			t.Error("the slot of p2 is not for the request that waits for its release")
		}
		held[0].Release(OK)
		if pending(old) || !pending(later) {
			t.Error("the slot of p1 is not for the first that waits for its release")
		}
		d[0].SetVersion("0.33.0") // its request may go to p2 now
		<-newer
		leases[2].Release(OK)
		if pending(later) {
			t.Error("the one that waits with d1 does not get the slot of p2, now that both are of one release")
		}
	})
}

// Pairs of two releases are not warmed up, and no page says that they are cold.
func TestWarmUpsOfOneRelease(t *testing.T) {
	r, _ := newRouterOf(t, 2, 2, nil)
	s := r.Snapshot()
	for _, role := range []Role{Prefill, Decode} {
		runs(s, role, "0.32.0", "0.33.0")
		for _, b := range s.Backends(role) {
			b.force(Up)
		}
	}
	due := func() string {
		_, cold := r.Pairs().WarmUps(s)
		var all []string
		for _, x := range cold {
			all = append(all, name(x.Prefill)+name(x.Decode))
		}
		return strings.Join(all, " ")
	}
	for _, b := range s.Backends(Prefill) {
		r.Pairs().Chill(b, true)
	}
	if got := due(); got != "p1d1 p2d2" {
		t.Errorf("due: %s", got)
	}
	d2 := named(t, s, "d2")
	r.Pairs().Chill(d2, true)
	d2.SetVersion("0.32.0")
	if got := due(); got != "p1d1" {
		t.Errorf("d2 has another release, due: %s", got)
	}
	if _, cold := s.Partners(d2); len(cold) > 0 {
		t.Errorf("d2 is cold with %s", names(cold))
	}
}

// Where some backends of a pool serve nothing without a prefill, requests without one go to the others only.
func TestAPoolOfWhichSomeServeAlone(t *testing.T) {
	alone := Want{Role: Decode, Alone: true, Unbound: true, Tokens: 1}
	for _, policy := range Policies() {
		t.Run(policy, func(t *testing.T) {
			r, _ := newRouterOf(t, 1, 3, func(c *Config) { c.DecodePolicy = policy })
			s := r.Snapshot()
			named(t, s, "d1").Bound.Store(true)
			named(t, s, "d3").Bound.Store(true)
			if got := asked(t, s, alone, 20); got != "d2" || !s.StandAlone(nil) {
				t.Errorf("requests without a prefill went to %s; some backend serves them: %v", got, s.StandAlone(nil))
			}
			named(t, s, "p1").force(Down)
			named(t, s, "d2").force(Down)
			if got := asked(t, s, alone, 20); got != ErrAllDown.Error() || s.Ready(true) {
				t.Errorf("the only backend that serves such requests is down, and they went to %s; ready: %v", got, s.Ready(true))
			}
			named(t, s, "d2").Bound.Store(true)
			if s.StandAlone(nil) {
				t.Error("no backend serves requests without a prefill, and the snapshot says that one does")
			}
		})
	}
}
