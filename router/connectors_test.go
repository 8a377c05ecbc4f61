package router

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// twoConnectors is a router with p1, p2 and d1, d2 of the usual connector and p3 and d3 of another.
func twoConnectors(t testing.TB, change func(*Config)) *Router {
	t.Helper()
	cfg := DefaultConfig()
	cfg.Prefill, cfg.Decode = urls("p", 3), urls("d", 3)
	cfg.Prefill[2].Connector = "other"
	cfg.Decode[2].Connector = "other"
	cfg.PrefillPolicy, cfg.DecodePolicy = "round_robin", "round_robin"
	if change != nil {
		change(&cfg)
	}
	r, err := New(cfg, 1, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// named is the backend of that name.
func named(t testing.TB, s *Snapshot, n string) *Backend {
	t.Helper()
	for _, b := range slices.Concat(s.Backends(Prefill), s.Backends(Decode)) {
		if name(b) == n {
			return b
		}
	}
	t.Fatalf("no backend %s", n)
	return nil
}

func TestBackendsOfTwoConnectorsMakeNoPair(t *testing.T) {
	for _, policy := range Policies() {
		t.Run(policy, func(t *testing.T) {
			r := twoConnectors(t, func(c *Config) { c.PrefillPolicy, c.DecodePolicy = policy, policy })
			s := r.Snapshot()
			for d, want := range map[string]string{"d1": "p1 p2", "d2": "p1 p2", "d3": "p3"} {
				like := named(t, s, d)
				w := Want{Role: Prefill, Peer: like, Like: like, Tokens: 10}
				if got := asked(t, s, w, 40); got != want {
					t.Errorf("with %s: %s, want %s", d, got, want)
				}
				if b := s.Pick(w); b.Connector != like.Connector {
					t.Errorf("with %s: picked %s", d, name(b))
				}
			}
			if got := asked(t, s, Want{Role: Decode, Tokens: 10}, 60); got != "d1 d2 d3" {
				t.Errorf("decode: %s", got)
			}
		})
	}
}

// Decode is chosen where a prefill can be had, and alone only where it serves a request alone.
func TestDecodeIsChosenWhereAPrefillCanBeHad(t *testing.T) {
	for name, tc := range map[string]struct {
		down  []string
		bound bool // d3 serves nothing alone
		want  Want
		got   string
	}{
		"all up":                               {nil, true, Want{}, "d1 d2 d3"},
		"the other P is down":                  {[]string{"p3"}, true, Want{}, "d1 d2"},
		"the usual Ps are down":                {[]string{"p1", "p2"}, true, Want{}, "d3"},
		"all Ps are down":                      {[]string{"p1", "p2", "p3"}, true, Want{}, "d1 d2"},
		"all Ps are down, and d1 and d2":       {[]string{"p1", "p2", "p3", "d1", "d2"}, true, Want{}, ErrAllDown.Error()},
		"alone":                                {nil, true, Want{Alone: true, Unbound: true}, "d1 d2"},
		"alone, where each serves it":          {nil, false, Want{Alone: true, Unbound: true}, "d1 d2 d3"},
		"alone, and the others are down":       {[]string{"d1", "d2"}, true, Want{Alone: true, Unbound: true}, ErrAllDown.Error()},
		"the other P has failed the request":   {nil, true, Want{Gone: []*Backend{nil}}, "d1 d2"},
		"the other P is down, and d1 and d2":   {[]string{"p3", "d1", "d2"}, false, Want{}, "d3"},
		"never a prefill, the other P is gone": {[]string{"p3"}, false, Want{Alone: true}, "d1 d2 d3"},
	} {
		t.Run(name, func(t *testing.T) {
			s := twoConnectors(t, nil).Snapshot()
			named(t, s, "d3").Bound.Store(tc.bound)
			for _, b := range tc.down {
				named(t, s, b).force(Down)
			}
			w := tc.want
			w.Role, w.Tokens = Decode, 10
			if len(w.Gone) > 0 {
				w.Gone = []*Backend{named(t, s, "p3")}
			}
			if got := asked(t, s, w, 40); got != tc.got {
				t.Errorf("got %s, want %s", got, tc.got)
			}
		})
	}
}

// The models of a request are looked for among engines that can make a pair.
func TestModelsOfTwoConnectors(t *testing.T) {
	r := twoConnectors(t, nil)
	s := r.Snapshot()
	serves(s, Prefill, "a", "a", "b")
	serves(s, Decode, "a", "b", "b")
	if got := asked(t, s, Want{Role: Decode, Model: []byte("b"), Tokens: 1}, 20); got != "d3" {
		t.Errorf("b is decoded on %s: d2 has no prefill backend for it", got)
	}
	if s.OnDecodeOnly([]byte("a")) || s.OnDecodeOnly([]byte("b")) {
		t.Error("a model with a pair counts as one that decode serves alone")
	}
	named(t, s, "d3").SetModels([]string{"c"})
	if !s.OnDecodeOnly([]byte("b")) {
		t.Error("p3 and d2 serve b, and make no pair")
	}
	like := named(t, s, "d2")
	if got := asked(t, s, Want{Role: Prefill, Model: []byte("b"), Like: like, Peer: like, Tokens: 1}, 5); got != ErrNoBackend.Error() {
		t.Errorf("prefill of b for d2 goes to %s", got)
	}
}

func TestReadyWithTwoConnectors(t *testing.T) {
	s := twoConnectors(t, nil).Snapshot()
	for _, b := range []string{"p1", "d3"} {
		named(t, s, b).force(Up)
	}
	if s.Ready(false) || !s.Ready(true) {
		t.Errorf("p1 and d3 make no pair, and d3 serves requests alone: ready %v, %v", s.Ready(false), s.Ready(true))
	}
	named(t, s, "d3").Bound.Store(true)
	if s.Ready(true) {
		t.Error("ready, although d3 serves nothing alone")
	}
	named(t, s, "p3").force(Up)
	if !s.Ready(false) {
		t.Error("p3 and d3 are a pair")
	}
}

// Requests that wait for one connector do not keep those from their slots that wait for the other.
func TestQueueOfTwoConnectors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := twoConnectors(t, func(c *Config) { c.PrefillMaxInFlight = 1 })
		s := r.Snapshot()
		var held [3]Lease
		want := func(d string) Want {
			like := named(t, s, d)
			return Want{Role: Prefill, Peer: like, Like: like, Model: []byte("m"), Tokens: 10}
		}
		for i, d := range []string{"d1", "d2", "d3"} {
			if err := s.AcquireFor(want(d), &held[i]); err != nil {
				t.Fatal(err)
			}
		}
		line := Line{Length: 10, Wait: time.Minute}
		got := make(chan string, 4)
		for _, d := range []string{"d1", "d1", "d3", "d1"} {
			go func() {
				var l Lease
				if err := s.AcquireWait(want(d), &l, line, nil); err != nil {
					got <- err.Error()
					return
				}
				got <- d + " " + name(l.Backend)
				l.Release(OK)
			}()
			synctest.Wait() // they join in this order
		}
		held[2].Release(OK)
		synctest.Wait()
		if n := len(got); n != 1 {
			t.Fatalf("%d served with p3 free", n)
		}
		if g := <-got; g != "d3 p3" {
			t.Errorf("served %s", g)
		}
		held[0].Release(OK)
		held[1].Release(OK)
		for range 3 {
			if g := <-got; g != "d1 p1" && g != "d1 p2" {
				t.Errorf("served %s", g)
			}
		}
		if q := &r.queues[Prefill]; q.waiting.Load() != 0 || len(q.needs) != 0 {
			t.Errorf("%d wait, needs %v", q.waiting.Load(), q.needs)
		}
	})
}

// A request for decode waits for any backend that is of use, and a prefill backend that comes up makes more
// of them.
func TestDecodeWaitsUntilAPrefillBackendComesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := twoConnectors(t, func(c *Config) { c.DecodeMaxInFlight = 1 })
		s := r.Snapshot()
		named(t, s, "d3").Bound.Store(true)
		named(t, s, "p3").force(Down)
		var held [2]Lease
		for i := range held {
			if err := s.AcquireFor(Want{Role: Decode, Tokens: 10}, &held[i]); err != nil || held[i].Backend.Connector != "" {
				t.Fatal(err, name(held[i].Backend))
			}
		}
		got := make(chan string, 1)
		go func() {
			var l Lease
			err := s.AcquireWait(Want{Role: Decode, Tokens: 10}, &l, Line{Length: 1, Wait: time.Minute}, nil)
			if err != nil {
				got <- err.Error()
				return
			}
			got <- name(l.Backend)
		}()
		synctest.Wait()
		if len(got) != 0 {
			t.Fatalf("served by %s while p3 is down", <-got)
		}
		for range 2 { // health.rise
			named(t, s, "p3").Observe(true)
		}
		if g := <-got; g != "d3" {
			t.Errorf("served by %s", g)
		}
	})
}

// An engine that a reload gives another connector is another backend: nobody pairs it by what it was.
func TestReloadChangesAConnector(t *testing.T) {
	r := twoConnectors(t, nil)
	old := r.Snapshot()
	was := named(t, old, "d2")
	cfg := DefaultConfig()
	cfg.Prefill, cfg.Decode = urls("p", 3), urls("d", 3)
	cfg.Prefill[2].Connector = "other"
	cfg.Decode[1].Connector = "other"
	cfg.Decode[2].Connector = "other"
	c, err := r.Reload(cfg, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Joined) != 1 || len(c.Left) != 1 || c.Left[0] != was || c.Joined[0].Connector != "other" || c.Joined[0].URL != was.URL {
		t.Errorf("joined %v, left %v", c.Joined, c.Left)
	}
	// A request that holds a handle of p1 finds d1 only, also where it began with the old pools.
	p1 := named(t, old, "p1")
	var l Lease
	if err := old.AcquireFor(Want{Role: Decode, Peer: p1, Like: p1, Skip: []*Backend{named(t, old, "d1")}}, &l); !errors.Is(err, ErrNoBackend) {
		t.Errorf("got %v, %v", l.Backend, err)
	}
	cfg.Prefill, cfg.Decode = MustEntries("http://p3:1 connector=other"), MustEntries("http://d3:1 connector=other")
	if _, err := r.Reload(cfg, 1, nil); err != nil {
		t.Fatal(err)
	}
	if err := old.AcquireFor(Want{Role: Decode, Peer: p1, Like: p1}, &l); !errors.Is(err, ErrNoBackend) {
		t.Errorf("a handle of the usual connector goes to %v: %v", l.Backend, err)
	}
}

// An engine that comes up is warmed with those that it can make a pair with.
func TestPartnersHaveTheConnector(t *testing.T) {
	r := twoConnectors(t, nil)
	s := r.Snapshot()
	for _, b := range slices.Concat(s.Backends(Prefill), s.Backends(Decode)) {
		b.force(Up)
	}
	r.Pairs().Chill(named(t, s, "d3"), true)
	r.Pairs().Chill(named(t, s, "d1"), true)
	_, cold := r.Pairs().WarmUps(s)
	var got []string
	for _, x := range cold {
		got = append(got, name(x.Prefill)+name(x.Decode))
	}
	if want := []string{"p1d1", "p2d1", "p3d3"}; !slices.Equal(got, want) {
		t.Errorf("warm-ups %v, want %v", got, want)
	}
	// d3 is cold with its only partner, which no warm pair of others hides.
	if got := asked(t, s, Want{Role: Decode, Tokens: 1}, 20); got != "d2" {
		t.Errorf("chosen %s", got)
	}
}

// A connector whose pairs are all busy or cold is still better than one without a prefill backend: what serves
// nothing alone would be refused there, and the rest would go to decode alone.
func TestPairsAreWaitedForBesideAConnectorWithoutPrefills(t *testing.T) {
	for _, bound := range []bool{false, true} {
		s := twoConnectors(t, func(c *Config) { c.DecodeMaxInFlight = 1 }).Snapshot()
		named(t, s, "p3").force(Down)
		named(t, s, "d3").Bound.Store(bound)
		var held [2]Lease
		for i := range held {
			if err := s.AcquireFor(Want{Role: Decode, Tokens: 10}, &held[i]); err != nil || held[i].Backend.Connector != "" {
				t.Fatal(err, name(held[i].Backend))
			}
		}
		if err := s.AcquireFor(Want{Role: Decode, Tokens: 10}, new(Lease)); err != ErrBusy {
			t.Errorf("d3 bound %v: %v, want %v", bound, err, ErrBusy)
		}
		named(t, s, "p1").force(Down)
		named(t, s, "p2").force(Down)
		var l Lease
		if err := s.AcquireFor(Want{Role: Decode, Tokens: 10}, &l); !bound && (err != nil || name(l.Backend) != "d3") {
			t.Errorf("without any prefill backend: %v", err)
		}
	}
	s := twoConnectors(t, nil).Snapshot()
	named(t, s, "p3").force(Down)
	s.Pairs().Chill(named(t, s, "p1"), true)
	s.Pairs().Chill(named(t, s, "p2"), true)
	if got := asked(t, s, Want{Role: Decode, Tokens: 10}, 40); got != "d1 d2" {
		t.Errorf("cold pairs: got %s, want d1 d2", got)
	}
}

// A line that is full of requests for one connector refuses none for another whose backends are free.
func TestFullQueueOfOneConnector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := twoConnectors(t, func(c *Config) { c.PrefillMaxInFlight = 1 }).Snapshot()
		var held [2]Lease
		want := func(d string) Want {
			like := named(t, s, d)
			return Want{Role: Prefill, Peer: like, Like: like, Model: []byte("m"), Tokens: 10}
		}
		for i := range held {
			if err := s.AcquireFor(want("d1"), &held[i]); err != nil {
				t.Fatal(err)
			}
		}
		line := Line{Length: 1, Wait: time.Minute}
		got := make(chan error, 1)
		go func() {
			var l Lease
			err := s.AcquireWait(want("d1"), &l, line, nil)
			l.Release(OK)
			got <- err
		}()
		synctest.Wait()
		var like, other Lease
		if err := s.AcquireWait(want("d2"), &like, line, nil); err != ErrQueueFull {
			t.Errorf("a request like the one in the full line: %v", err)
		}
		if err := s.AcquireWait(want("d3"), &other, line, nil); err != nil || name(other.Backend) != "p3" {
			t.Errorf("a request of another connector: %v", err)
		}
		var late Lease
		if err := s.AcquireWait(want("d3"), &late, line, nil); err != ErrQueueFull {
			t.Errorf("with p3 at its cap: %v", err)
		}
		held[0].Release(OK)
		if err := <-got; err != nil {
			t.Error(err)
		}
	})
}
