package router

import (
	"fmt"
	"testing"
	"time"
)

// anyRole is a router over engines without a role, with a clock that is moved by hand.
func anyRole(t *testing.T, n int, change func(*Config)) *pricer {
	t.Helper()
	x := &pricer{now: time.Unix(1000, 0)}
	cfg := DefaultConfig()
	cfg.PD.Mode = PDAuto
	for _, url := range []string{"http://a:1", "http://b:1", "http://c:1"}[:n] {
		cfg.Engines = append(cfg.Engines, MustEntries(url)...)
	}
	if change != nil {
		change(&cfg)
	}
	r, err := New(cfg, 1, func() time.Time { return x.now })
	if err != nil {
		t.Fatal(err)
	}
	x.r, x.s = r, r.Snapshot()
	return x
}

// Where something else than the cost chooses an engine, Decide chooses the way.
func TestRouteLeavesOthersToDecide(t *testing.T) {
	free := Want{Role: Decode, Tokens: 1000}
	for name, tc := range map[string]struct {
		change func(*Config)
		want   func(*Want, *Snapshot)
		routed bool
	}{
		"nothing else":       {nil, func(*Want, *Snapshot) {}, true},
		"always":             {func(c *Config) { c.PD.Mode = PDAlways }, func(*Want, *Snapshot) {}, false},
		"never":              {func(c *Config) { c.PD.Mode = PDNever }, func(*Want, *Snapshot) {}, false},
		"a threshold":        {func(c *Config) { c.PD.ThresholdTokens = 9 }, func(*Want, *Snapshot) {}, false},
		"fixed roles":        {func(c *Config) { c.Prefill, c.Decode, c.Engines = c.Engines[:1], c.Engines[1:], nil }, func(*Want, *Snapshot) {}, false},
		"fixed roles beside": {func(c *Config) { c.Prefill, c.Engines = c.Engines[:1], c.Engines[1:] }, func(*Want, *Snapshot) {}, true},
		"a session":          {nil, func(w *Want, _ *Snapshot) { w.Key = 1 }, false},
		"a second try":       {nil, func(w *Want, s *Snapshot) { w.Skip = s.Backends(Decode)[:1] }, false},
		"a prefill":          {nil, func(w *Want, s *Snapshot) { w.Peer = s.Backends(Prefill)[0] }, false},
		"no prefill at all":  {nil, func(w *Want, _ *Snapshot) { w.Unbound = true }, false},
		"an engine that decodes no request alone": {nil, func(_ *Want, s *Snapshot) { s.Backends(Decode)[0].Bound.Store(true) }, false},
		"all down": {nil, func(_ *Want, s *Snapshot) {
			for _, b := range s.Backends(Decode) {
				eachRole(b, func(b *Backend) { b.setState(Down) })
			}
		}, false},
	} {
		x, w := anyRole(t, 3, tc.change), free
		tc.want(&w, x.s)
		if e := Route(x.s, w, -1, false); (e != nil) != tc.routed {
			t.Errorf("%s: %+v", name, e)
		}
	}
}

// An engine that is down is no part of any way, and a lone one serves whole.
func TestRouteAvoidsWhatIsDown(t *testing.T) {
	x := anyRole(t, 3, nil)
	for _, b := range x.s.Backends(Decode)[1:] {
		eachRole(b, func(b *Backend) { b.setState(Down) })
	}
	if all := candidates(x.s, &Want{Role: Decode}, x.s.prefill, x.s.decode, nil); len(all) != 1 {
		t.Errorf("the plan counts on %d engines", len(all))
	}
	for range 20 {
		var l Lease
		w := Want{Role: Decode, Tokens: 5000}
		e := Route(x.s, w, -1, false)
		if e == nil || e.Prefill != nil || e.Decode != x.s.Backends(Decode)[0] {
			t.Fatalf("%+v", e)
		}
		w.To = e.To(Decode)
		if err := x.s.AcquireFor(w, &l); err != nil {
			t.Fatal(err)
		}
		if l.Follow(e); l.Errand() != e || l.Backend != e.Decode {
			t.Fatal("the lease does not follow its errand")
		}
	}
}

// A lease gets the backend that is named, unless it may not be taken, and it ends its errand however it ends.
func TestLeaseFollowsItsErrand(t *testing.T) {
	x := anyRole(t, 2, nil)
	for i, end := range []func(*Lease){
		func(*Lease) {},
		func(l *Lease) { l.Compute(5000, true) },
		func(l *Lease) { l.Pull(5000, true) },
		func(l *Lease) { l.Pull(5000, true); l.Computed(); l.Ended(100) },
		func(l *Lease) { l.Compute(5000, true); l.Computed() },
	} {
		w, l := Want{Role: Decode, Tokens: 5000}, Lease{}
		e := Route(x.s, w, -1, false)
		w.To = e.To(Decode)
		if i == 0 { // somebody was quicker
			w.To = nil
			w.Skip = []*Backend{e.Decode}
		}
		if err := x.s.AcquireFor(w, &l); err != nil {
			t.Fatal(err)
		}
		if l.Follow(e); (l.Errand() == nil) != (i == 0) {
			t.Errorf("%d: %+v", i, l.Errand())
		}
		end(&l)
		l.Release(OK)
		if l.Errand() != nil {
			t.Errorf("%d: the errand goes on", i)
		}
	}
	if e := Route(x.s, Want{Role: Decode, Tokens: 5000}, -1, false); e.trip.Cost > 3 {
		t.Errorf("idle engines take %g s", e.trip.Cost)
	}
}

// The plans are told, with their reason, once some requests have come.
func TestPlansAreTold(t *testing.T) {
	x := anyRole(t, 2, nil)
	if all := Plans(x.r); len(all) != 0 {
		t.Errorf("%+v before any request", all)
	}
	said := ""
	OnPlan(x.r, func(p PlanNow) { said = p.Why })
	for range 40 {
		Route(x.s, Want{Role: Decode, Tokens: 5000}, 250, false)
		x.now = x.now.Add(125 * time.Millisecond)
	}
	all := Plans(x.r)
	if len(all) != 1 || all[0].Engines != 2 || all[0].Model != "" || all[0].Seconds <= 0 || all[0].Why == "" || all[0].Changes == 0 || all[0].Gain <= 0 || said == "" {
		t.Errorf("%+v, and %q for the log", all, said)
	}
}

// What is known of models that no engine lists any more is forgotten.
func TestFleetsOfModelsThatWereServed(t *testing.T) {
	x := anyRole(t, 2, nil)
	for i := range 20 {
		model := fmt.Sprint("m", i)
		for j, b := range x.s.Backends(Decode) {
			b.SetModels([]string{model, fmt.Sprint("of engine ", j)})
		}
		if Route(x.s, Want{Role: Decode, Tokens: 100, Model: []byte(model)}, -1, false) == nil {
			t.Fatal("no way")
		}
	}
	if n := len(x.r.fleets.byModel); n != 1 {
		t.Errorf("%d fleets are known, of one model", n)
	}
}

// What is known of engines that serve the same outlives a time in which they do not, and only plans in force are told.
func TestPlansAreThoseInForce(t *testing.T) {
	x := anyRole(t, 2, nil)
	list := func(more ...string) {
		all := x.s.Backends(Decode)
		all[0].SetModels(append([]string{"m"}, more...))
		all[1].SetModels([]string{"m"})
	}
	want := func(when, model string, routed bool) {
		t.Helper()
		for range 40 {
			if e := Route(x.s, Want{Role: Decode, Tokens: 5000, Model: []byte("m")}, 250, false); (e != nil) != routed {
				t.Fatalf("%s: %+v", when, e)
			}
			x.now = x.now.Add(125 * time.Millisecond)
		}
		if all := Plans(x.r); (len(all) == 1) != routed || routed && (len(all) != 1 || all[0].Model != model) {
			t.Errorf("%s: %+v", when, all)
		}
	}
	list()
	want("one model", "", true)
	first := x.r.fleets.byModel[""]
	list("lora")
	want("an adapter on one of them", "m", true)
	list()
	if want("one model again", "", true); x.r.fleets.byModel[""] != first {
		t.Error("what was known is lost")
	}
	cfg := DefaultConfig()
	cfg.PD.Mode, cfg.Prefill, cfg.Decode = PDAuto, MustEntries("http://a:1"), MustEntries("http://b:1")
	if _, err := x.r.Reload(cfg, 1, nil); err != nil {
		t.Fatal(err)
	}
	x.s = x.r.Snapshot()
	want("fixed roles", "", false)
}

// The KV cache of an engine is as large as its metrics say, and what others have there counts.
func TestCandidatesAsTheirMetricsSay(t *testing.T) {
	x := anyRole(t, 2, func(c *Config) { c.Engines[1].Weight = 0.5 })
	e := UnknownEngine()
	e.BlockSize, e.Blocks, e.Running, e.Waiting = 16, 1000, 5, 2
	x.s.Backends(Decode)[0].SetEngine(e, 0, time.Second)
	w := Want{Role: Decode, Tokens: 100}
	all := candidates(x.s, &w, x.s.prefill, x.s.decode, nil)
	if a, b := all[0], all[1]; a.Room != 16000 || a.Requests != 7 || a.Share != 1 || b.Room != 0 || b.Requests != 0 || b.Share != 0.5 {
		t.Errorf("%+v, %+v", a, b)
	}
}
