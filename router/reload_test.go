package router

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func names(backends []*Backend) string {
	var list []string
	for _, b := range backends {
		list = append(list, name(b))
	}
	return strings.Join(list, " ")
}

func TestReloadKeepsWhatStays(t *testing.T) {
	r, clock := newRouterOf(t, 2, 3, nil)
	old := r.Snapshot()
	d := old.Backends(Decode)
	stays := leaseOn(t, old, d[0])
	d[0].SetVersion("0.32.0")
	d[0].force(Up)
	end(t, old, d[1], Gateway, 4)
	script(t, r, clock, "p2d1 p2d1 p2d1")

	cfg := DefaultConfig()
	cfg.Prefill = MustEntries("http://p1:80", "http://p3:80")
	cfg.Decode = MustEntries("http://d4:80", "http://d2:80", "http://d1:80")
	cfg.Health.EjectAfter = 6
	var told Change
	change, err := r.Reload(cfg, 0.5, func(c Change) {
		told = c
		if r.Snapshot() != old {
			t.Error("requests see the new snapshot before it is prepared")
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if j, l := names(change.Joined), names(change.Left); j != "p3 d4" || l != "p2 d3" || names(told.Joined) != j || names(told.Left) != l {
		t.Errorf("joined %q, left %q; told %v", j, l, told)
	}
	s := r.Snapshot()
	if got := names(s.Backends(Decode)); got != "d4 d2 d1" || s.Backends(Decode)[2] != d[0] || s.Backends(Prefill)[0] != old.Backends(Prefill)[0] {
		t.Errorf("decode is %s; those that stay must stay the same objects", got)
	}
	checkKept(t, r, d[0], d[1])
	stays.Release(OK)
	if d[0].InFlight() != 0 {
		t.Errorf("%d in flight after the release", d[0].InFlight())
	}
}

// checkKept fails unless what was known before the reload, about a backend that lives and one that
// has failed, still holds.
func checkKept(t *testing.T, r *Router, lives, failed *Backend) {
	t.Helper()
	s := r.Snapshot()
	if lives.InFlight() != 1 || lives.Version() != "0.32.0" || lives.State() != Up {
		t.Errorf("%d in flight, version %q, %v after the reload", lives.InFlight(), lives.Version(), lives.State())
	}
	end(t, s, failed, Gateway, 1)
	if failed.Ejected() {
		t.Error("the new eject_after does not hold")
	}
	if end(t, s, failed, Gateway, 1); !failed.Ejected() {
		t.Error("failures of before the reload are lost")
	}
	if r.pairs.bans.Load() != nil || len(r.pairs.failures) != 0 {
		t.Error("the matrix holds a backend that has left")
	}
	if share := s.Backends(Decode)[0].share(r.now(), 30*time.Second); share != minShare {
		t.Errorf("who joins starts with a share of %v", share)
	}
	if lives.share(r.now(), 30*time.Second) != 1 {
		t.Error("who stays starts anew")
	}
}

// Leases on a backend that has left go on. Nobody gets another one, so that its engine may be stopped
// once these have ended.
func TestBackendThatLeftStaysValid(t *testing.T) {
	r, _ := newRouterOf(t, 0, 3, nil)
	old := r.Snapshot()
	d := old.Backends(Decode)
	leaves := leaseOn(t, old, d[2])
	reload(t, r, 0, 2)
	var l Lease
	if err := old.Acquire(Decode, 1, d[:2], &l); !errors.Is(err, ErrNoBackend) {
		t.Errorf("from the old snapshot: %v, %v", l.Backend, err)
	}
	if !d[2].Closed() || d[2].InFlight() != 1 {
		t.Errorf("%d in flight", d[2].InFlight())
	}
	leaves.Release(OK)
	if d[2].InFlight() != 0 {
		t.Errorf("%d in flight after all releases", d[2].InFlight())
	}
	if r.Eject(d[2], EjectFailures) {
		t.Error("ejected from a pool that it has left")
	}
}

func TestReloadIsAllOrNothing(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*Config)
	}{
		{"decode pool empty", func(c *Config) { c.Decode = nil }},
		{"bad prefill URL", func(c *Config) { c.Prefill = append(c.Prefill, Entry{URL: "p9:80"}) }},
		{"bad decode URL", func(c *Config) { c.Decode = append(c.Decode, Entry{URL: "ftp://d9"}) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, _ := newRouterOf(t, 1, 2, nil)
			old := r.Snapshot()
			cfg := DefaultConfig()
			cfg.Prefill, cfg.Decode = urls("p", 3), urls("d", 3)
			tc.change(&cfg)
			change, err := r.Reload(cfg, 1, func(Change) { t.Error("prepared") })
			if err == nil || change.Joined != nil || change.Left != nil {
				t.Errorf("error %v, change %v", err, change)
			}
			if r.Snapshot() != old {
				t.Error("the snapshot is another one")
			}
		})
	}
}

// A pool that shrinks may not be left with more than half of it ejected.
func TestReloadSparesHalf(t *testing.T) {
	r, clock := newRouterOf(t, 0, 4, nil)
	d := r.Snapshot().Backends(Decode)
	r.Eject(d[0], EjectFailures)
	clock.advance(time.Second)
	r.Eject(d[1], EjectFailures)
	reload(t, r, 0, 2)
	if d[0].Ejected() || !d[1].Ejected() {
		t.Errorf("ejected %v and %v, want the one that would have ended first lifted", d[0].Ejected(), d[1].Ejected())
	}
	reload(t, r, 0, 4)
	reload(t, r, 0, 1) // d1 alone
	r.Eject(d[0], EjectFailures)
	if d[0].Ejected() {
		t.Error("the only backend is ejected")
	}
}

// The order of turns continues over a reload that does not change the policy.
func TestReloadKeepsTheTurn(t *testing.T) {
	r, _ := newRouterOf(t, 0, 2, nil)
	got := ""
	for range 3 {
		got += picks(r.Snapshot(), Decode, 1)
		reload(t, r, 0, 2)
	}
	if got != "d1d2d1" {
		t.Errorf("turns %s", got)
	}
}

// The encode pool is a pool of its own: it may be empty, it takes no part in pairs, and nothing waits for it
// to be ready.
func TestEncodePool(t *testing.T) {
	r, _ := newRouterOf(t, 1, 1, nil)
	var l Lease
	if err := r.Snapshot().Acquire(Encode, 0, nil, &l); !errors.Is(err, ErrNoBackend) || r.Snapshot().Pooled(Encode) {
		t.Fatalf("a lease of an empty pool: %v", err)
	}
	cfg := DefaultConfig()
	cfg.Prefill, cfg.Decode, cfg.Encode = MustEntries("http://p1:80"), MustEntries("http://d1:80"), MustEntries("http://e1:80", "http://e2:80 state=drain")
	cfg.EncodeMaxInFlight = 1
	change, err := r.Reload(cfg, 1, nil)
	if err != nil || names(change.Joined) != "e1 e2" {
		t.Fatalf("joined %s, %v", names(change.Joined), err)
	}
	s := r.Snapshot()
	e := s.Backends(Encode)[0]
	if err := s.Acquire(Encode, 0, nil, &l); err != nil || l.Backend != e || e.Role.String() != "encode" {
		t.Fatalf("leased %v, %v", l.Backend, err)
	}
	var second Lease
	if err := s.Acquire(Encode, 0, nil, &second); !errors.Is(err, ErrBusy) {
		t.Errorf("beyond the cap: %v", err)
	}
	r.Pairs().Chill(e, true)
	if _, cold := s.Pairs().WarmUps(s); len(cold) > 0 {
		t.Errorf("an encode backend has partners: %v", cold)
	}
	for _, b := range append(s.Backends(Prefill), s.Backends(Decode)...) {
		b.force(Up)
	}
	e.force(Down)
	if !s.Ready(false) {
		t.Error("not ready without encode backends")
	}
	l.Release(OK)
	cfg.Encode = nil
	if change, err = r.Reload(cfg, 1, nil); err != nil || names(change.Left) != "e1 e2" || e.InFlight() != 0 {
		t.Errorf("left %s, %v, %d in flight", names(change.Left), err, e.InFlight())
	}
}
