package router

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// serves tells the router what the backends of a role list, in their order. Models are separated by
// commas, and "" is a backend whose list is unknown.
func serves(s *Snapshot, role Role, lists ...string) {
	for i, list := range lists {
		if list != "" {
			s.Backends(role)[i].SetModels(strings.Split(list, ","))
		}
	}
}

// asked are all backends that n requests for the model get, in the order of their names.
func asked(t *testing.T, s *Snapshot, w Want, n int) string {
	t.Helper()
	got := map[string]bool{}
	for range n {
		var l Lease
		if err := s.AcquireFor(w, &l); err != nil {
			return err.Error()
		}
		got[name(l.Backend)] = true
		l.Release(ClientGone)
	}
	var names []string
	for n := range got {
		names = append(names, n)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func TestRequestsGoToTheBackendsOfTheirModel(t *testing.T) {
	for _, tc := range []struct {
		name  string
		lists []string
		model string
		want  string
	}{
		{"one model", []string{"m", "m", "m"}, "m", "d1 d2 d3"},
		{"one model, another is asked for", []string{"m", "m", "m"}, "x", "d1 d2 d3"},
		{"nothing known yet", []string{"", "", ""}, "m", "d1 d2 d3"},
		{"two models", []string{"a", "b", "b"}, "b", "d2 d3"},
		{"the other", []string{"a", "b", "b"}, "a", "d1"},
		{"an adapter on one", []string{"base", "base,lora", "base"}, "lora", "d2"},
		{"its base on all", []string{"base", "base,lora", "base"}, "base", "d1 d2 d3"},
		{"unknown is any", []string{"a", "", "b"}, "a", "d1 d2"},
		{"nobody lists it", []string{"a", "b", "b"}, "x", "d1 d2 d3"},
		{"none is named", []string{"a", "b", "b"}, "", "d1 d2 d3"},
		{"the same in another order", []string{"a,b", "b,a", "a,b"}, "b", "d1 d2 d3"},
	} {
		for _, policy := range Policies() {
			t.Run(tc.name+"/"+policy, func(t *testing.T) {
				r, _ := newRouterOf(t, 0, 3, func(c *Config) { c.DecodePolicy = policy })
				serves(r.Snapshot(), Decode, tc.lists...)
				w := Want{Role: Decode, Model: []byte(tc.model), Alone: true}
				if tc.model == "" {
					w.Model = nil
				}
				if got := asked(t, r.Snapshot(), w, 40); got != tc.want {
					t.Errorf("got %s, want %s", got, tc.want)
				}
			})
		}
	}
}

// Without a model both legs go to engines of one model.
func TestLegsWithoutAModelMatch(t *testing.T) {
	r, _ := newRouterOf(t, 3, 2, nil)
	s := r.Snapshot()
	serves(s, Prefill, "a", "b", "b")
	serves(s, Decode, "a", "b")
	for i, want := range []string{"p1", "p2 p3"} {
		if got := asked(t, s, Want{Role: Prefill, Peer: s.Backends(Decode)[i]}, 20); got != want {
			t.Errorf("with %s: %s, want %s", name(s.Backends(Decode)[i]), got, want)
		}
	}
}

// A backend of another model is no alternative, because it would answer that it does not know the
// model.
func TestNoBackendOfTheModelIsLeft(t *testing.T) {
	r, _ := newRouterOf(t, 0, 3, nil)
	s := r.Snapshot()
	serves(s, Decode, "a", "b", "b")
	a := s.Backends(Decode)[0]
	var l Lease
	if err := s.AcquireFor(Want{Role: Decode, Model: []byte("a"), Skip: []*Backend{a}, Alone: true}, &l); !errors.Is(err, ErrNoBackend) {
		t.Errorf("tried before: %v", err)
	}
	a.force(Down)
	if err := s.AcquireFor(Want{Role: Decode, Model: []byte("a"), Alone: true}, &l); err != ErrAllDown {
		t.Errorf("down: %v", err)
	}
	if b := s.Pick(Want{Role: Decode, Model: []byte("a")}); b != nil {
		t.Errorf("picked %s", b.URL)
	}
	if got := asked(t, s, Want{Role: Decode, Model: []byte("b"), Alone: true}, 8); got != "d2 d3" {
		t.Errorf("the other model: %s", got)
	}
}

// While the only engine of a model is drained, its requests are told to come back, as when it is down.
// They do not go to an engine that would say that there is no such model.
func TestModelOfADrainedBackend(t *testing.T) {
	r, _ := newRouterOf(t, 2, 3, nil)
	serves(r.Snapshot(), Prefill, "a,x", "b,y")
	serves(r.Snapshot(), Decode, "a,x", "b,y", "b,y")
	d1 := r.Snapshot().Backends(Decode)[0]
	if _, err := r.Reload(poolsWith(map[string]AdminState{"p1": Drain, "d1": Disabled}), 1, nil); err != nil {
		t.Fatal(err)
	}
	s := r.Snapshot()
	for model, want := range map[string]string{"a": ErrNoBackend.Error(), "b": "d2 d3", "c": "d2 d3"} {
		if got := asked(t, s, Want{Role: Decode, Model: []byte(model), Alone: true}, 40); got != want {
			t.Errorf("%s: %s, want %s", model, got, want)
		}
	}
	if s.OnDecodeOnly([]byte("a")) || s.RoleOf([]byte("a")) != Decode || len(s.OneSided(Decode))+len(s.OneSided(Prefill)) != 0 || !s.ModelsKnown() {
		t.Errorf("on decode only: %v, of %v; on one side: %v, %v", s.OnDecodeOnly([]byte("a")), s.RoleOf([]byte("a")), s.OneSided(Decode), s.OneSided(Prefill))
	}
	d1.SetModels([]string{"z"}) // it comes back with another model
	if got := asked(t, s, Want{Role: Decode, Model: []byte("a"), Alone: true}, 40); got != "d2 d3" {
		t.Errorf("a model that is nowhere: %s", got)
	}
	if _, err := r.Reload(poolsWith(nil), 1, nil); err != nil {
		t.Fatal(err)
	}
	if got := asked(t, r.Snapshot(), Want{Role: Decode, Model: []byte("z"), Alone: true}, 40); got != "d1" {
		t.Errorf("z: %s", got)
	}
}

func TestModelsComeAndGo(t *testing.T) {
	r, _ := newRouterOf(t, 0, 2, nil)
	s := r.Snapshot()
	want := func(when, model, backends string) {
		t.Helper()
		if got := asked(t, r.Snapshot(), Want{Role: Decode, Model: []byte(model), Alone: true}, 60); got != backends {
			t.Errorf("%s: %s goes to %s, want %s", when, model, got, backends)
		}
	}
	serves(s, Decode, "a", "a")
	want("one model", "a", "d1 d2")
	serves(s, Decode, "a,lora", "a")
	want("an adapter is loaded", "lora", "d1")
	want("an adapter is loaded", "a", "d1 d2")
	serves(s, Decode, "a", "a")
	want("and unloaded", "lora", "d1 d2")
	if s.Mixed(Decode) {
		t.Error("all list the same, and models are still looked up")
	}
	serves(s, Decode, "a", "b")
	want("another engine on d2", "b", "d2")
	reload(t, r, 0, 3)
	want("d3 joins", "b", "d2 d3")
	serves(r.Snapshot(), Decode, "a", "b", "a")
	want("and tells", "b", "d2")
	want("and tells", "a", "d1 d3")
	reload(t, r, 0, 1)
	want("d1 is left", "b", "d1")
	if r.Snapshot().Mixed(Decode) {
		t.Error("one backend, and models are looked up")
	}
}

// Pairs of engines with different models are not warmed up.
func TestStrangersAreNotWarmedUp(t *testing.T) {
	r, _ := newRouterOf(t, 2, 3, nil)
	s := r.Snapshot()
	allUp(s)
	serves(s, Prefill, "a", "b")
	serves(s, Decode, "a,lora", "b", "")
	for _, role := range []Role{Prefill, Decode} {
		for _, b := range s.Backends(role) {
			s.Pairs().Chill(b, true)
		}
	}
	var got []string
	for _, x := range allDue(s) {
		got = append(got, name(x.Prefill)+name(x.Decode))
	}
	if want := []string{"p1d1", "p1d3", "p2d2", "p2d3"}; !slices.Equal(got, want) {
		t.Errorf("%v are due, want %v", got, want)
	}
}

// A request that waits for one model does not delay requests for another.
func TestQueueIsNotHeldUpByAnotherModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := newRouterOf(t, 0, 2, func(c *Config) { c.DecodeMaxInFlight = 1 })
		s := r.Snapshot()
		serves(s, Decode, "a", "b")
		want := func(model string) Want { return Want{Role: Decode, Model: []byte(model), Alone: true} }
		var busy, waits, other Lease
		if err := s.AcquireFor(want("a"), &busy); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- s.AcquireWait(want("a"), &waits, Line{10, time.Minute}, nil) }()
		synctest.Wait()
		if err := s.AcquireWait(want("b"), &other, Line{10, 0}, nil); err != nil || name(other.Backend) != "d2" {
			t.Errorf("the other model: %v", err)
		}
		busy.Release(OK)
		if err := <-ended; err != nil || name(waits.Backend) != "d1" {
			t.Errorf("the one that waited: %v", err)
		}
		waits.Release(OK)
		other.Release(OK)
	})
}

// A request whose model goes down hears it, though those ahead of it wait for another model.
func TestQueueTellsThatAModelIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := newRouterOf(t, 0, 2, func(c *Config) { c.DecodeMaxInFlight = 1 })
		s := r.Snapshot()
		serves(s, Decode, "a", "b")
		var a, b, waits, other Lease
		want := func(model string) Want { return Want{Role: Decode, Model: []byte(model), Alone: true} }
		if s.AcquireFor(want("a"), &a) != nil || s.AcquireFor(want("b"), &b) != nil {
			t.Fatal("no lease")
		}
		first := wait(s, want("a"), &waits, Line{10, time.Minute}, nil)
		second := wait(s, want("b"), &other, Line{10, time.Minute}, nil)
		b.Backend.force(Down)
		synctest.Wait()
		if pending(second) {
			t.Error("the request waits on, and no engine of its model is up")
		}
		a.Release(OK)
		b.Release(OK)
		if err := <-first; err != nil {
			t.Error(err)
		}
		if err := <-second; err != ErrAllDown {
			t.Errorf("%v, want ErrAllDown", err)
		}
		waits.Release(OK)
	})
}

func TestModelsCostNothing(t *testing.T) {
	for _, lists := range [][]string{{"m", "m", "m", "m"}, {"a", "b", "a", "b"}} {
		r, _ := newRouterOf(t, 4, 4, func(c *Config) { c.PrefillPolicy, c.DecodePolicy = "least_request", "least_request" })
		s := r.Snapshot()
		serves(s, Prefill, lists...)
		serves(s, Decode, lists...)
		model := []byte(lists[1])
		var d, p Lease
		if n := testing.AllocsPerRun(100, func() {
			if s.AcquireFor(Want{Role: Decode, Model: model}, &d) != nil || s.AcquireFor(Want{Role: Prefill, Model: model, Peer: d.Backend}, &p) != nil {
				t.Fatal("no lease")
			}
			p.Release(OK)
			d.Release(OK)
		}); n != 0 {
			t.Errorf("%q: %v allocations", lists, n)
		}
	}
}

// A model counts as served by decode alone only if each prefill backend has said what it serves.
func TestModelsOfOnePool(t *testing.T) {
	for _, tc := range []struct {
		name            string
		prefill, decode []string
		model           string
		onDecode        bool
		sided           [2]string // only prefill, only decode
	}{
		{"the same", []string{"a", "a"}, []string{"a", "a"}, "a", false, [2]string{}},
		{"decode has more", []string{"a", "a"}, []string{"a,b", "a,c"}, "b", true, [2]string{"", "b c"}},
		{"decode has another", []string{"a", "a"}, []string{"b", "b"}, "b", true, [2]string{"a", "b"}},
		{"what both have", []string{"a", "a"}, []string{"a,b", "a"}, "a", false, [2]string{"", "b"}},
		{"nobody has", []string{"a", "a"}, []string{"a", "a"}, "x", false, [2]string{}},
		{"one prefill has", []string{"a", "a,b"}, []string{"a", "b"}, "b", false, [2]string{}},
		{"one prefill is not known", []string{"a", ""}, []string{"a", "b"}, "b", false, [2]string{}},
		{"one decode is not known", []string{"a,c", "a,c"}, []string{"", "b"}, "b", true, [2]string{"", "b"}},
		{"no decode is known", []string{"a", "a"}, []string{"", ""}, "b", false, [2]string{}},
		{"no prefill pool", nil, []string{"a", "b"}, "b", false, [2]string{}},
		{"no model is named", []string{"a", "a"}, []string{"b", "b"}, "", false, [2]string{"a", "b"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, _ := newRouterOf(t, len(tc.prefill), len(tc.decode), nil)
			s := r.Snapshot()
			serves(s, Prefill, tc.prefill...)
			serves(s, Decode, tc.decode...)
			var model []byte
			if tc.model != "" {
				model = []byte(tc.model)
			}
			if got := s.OnDecodeOnly(model); got != tc.onDecode {
				t.Errorf("on decode only: %v, want %v", got, tc.onDecode)
			}
			for role, want := range tc.sided {
				if got := strings.Join(s.OneSided(Role(role)), " "); got != want {
					t.Errorf("only at %s: %q, want %q", Role(role), got, want)
				}
			}
		})
	}
}
