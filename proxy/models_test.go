package proxy_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"xpyd/kvparams"
	"xpyd/proxy"
	"xpyd/router"
	"xpyd/sim"
)

// byName gives the n-th P and the n-th D the n-th model.
func byName(models ...string) func(o *sim.Options) {
	return func(o *sim.Options) {
		i := int(o.Name[len(o.Name)-1] - '0')
		o.Model = models[i%len(models)]
	}
}

// ask sends a completion for the model.
func (r *rig) ask(model string, header ...string) answer {
	r.t.Helper()
	return r.post("/v1/completions", fmt.Sprintf(`{"model":%q,"prompt":%q,"max_tokens":3}`, model, prompt), header...)
}

// legCounts counts the legs that each engine has had.
func legCounts(engines []*sim.Engine) (counts []int) {
	for _, e := range engines {
		counts = append(counts, len(slices.DeleteFunc(e.Requests(), func(rec sim.Record) bool { return strings.HasSuffix(rec.RequestID, "-release") })))
	}
	return counts
}

func TestRequestsGoToTheEnginesOfTheirModel(t *testing.T) {
	r := newRig(t, rigOptions{prefill: 4, decode: 4, engine: byName("a", "b", "b", "b")})
	for i := range 12 {
		model := []string{"a", "b"}[i%2]
		if a := r.ask(model); a.status != 200 || !strings.Contains(a.body, `"model":"`+model+`"`) {
			t.Fatalf("%s: %d %s", model, a.status, a.body)
		}
	}
	want := []int{6, 2, 2, 2}
	r.await("recorded", func() bool { return len(legs(r.prefill, "prefill")) == 12 && len(legs(r.decode, "decode")) == 12 })
	if p, d := legCounts(r.prefill), legCounts(r.decode); !slices.Equal(p, want) || !slices.Equal(d, want) {
		t.Errorf("legs at P %v, at D %v, want %v at both", p, d, want)
	}
	if a := r.ask("nope"); a.status != 404 || !strings.Contains(a.body, "NotFoundError") {
		t.Errorf("a model that nobody serves: %d %s, want the engine's own 404", a.status, a.body)
	}
	for range 4 {
		if a := r.post("/tokenize", `{"model":"a","prompt":"x"}`); a.status != 200 {
			t.Errorf("tokenize: %d %s", a.status, a.body)
		}
	}
	a := r.send("GET", "/v1/models", "")
	if !strings.Contains(a.body, `"id":"a"`) || strings.Count(a.body, `"id":"b"`) != 1 {
		t.Errorf("models: %s, want each of both once", a.body)
	}
	r.expectNothingHeld()
}

// A request may name no model. Both of its legs go to engines of one model, whichever leg begins first.
func TestRequestsWithoutAModelStayWithOne(t *testing.T) {
	together(t)
	for _, name := range []string{"nixl", "mooncake", "sglang", "offloading-p2p"} {
		t.Run(name, func(t *testing.T) {
			dialect, _ := kvparams.Lookup(name)
			r := newRig(t, rigOptions{prefill: 2, decode: 2, dialect: dialect, engine: byName("a", "b"), router: func(c *router.Config) {
				c.DecodePolicy = "random" // the turns of the two pools are then not the same
			}})
			for range 12 {
				if a := r.post("/v1/completions", fmt.Sprintf(`{"prompt":%q,"max_tokens":3}`, prompt)); a.status != 200 || a.header.Get("X-Xpyd-Path") != "disaggregated" {
					t.Fatalf("%d %s %s", a.status, a.header.Get("X-Xpyd-Path"), a.body)
				}
			}
			if p, d := legCounts(r.prefill), legCounts(r.decode); !slices.Equal(p, d) {
				t.Errorf("legs at P %v, at D %v, want as many at both engines of a model", p, d)
			}
		})
	}
}

// An engine with another model answers a release with 404, and frees nothing.
func TestReleaseGoesToAnEngineOfTheModel(t *testing.T) {
	r := newRig(t, rigOptions{decode: 6, engine: func(o *sim.Options) {
		o.Model = "a"
		if o.Role == sim.RoleDecode {
			byName("a", "b", "b", "b", "b", "a")(o)
		}
	}})
	if err := r.decode[0].SetFault(sim.Fault{Kind: sim.FaultStatus, Value: 500, Leg: "D"}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if a := r.ask("a"); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	r.await("given back", func() bool { return r.metric(`xpyd_kv_handles_total{end="released"}`) > 0 })
	r.expectNothingHeld()
}

func TestSessionsKeepTheirEngines(t *testing.T) {
	r := newRig(t, rigOptions{prefill: 4, decode: 4, router: func(c *router.Config) { c.Affinity.Headers = []string{"X-Session-ID", "X-User"} }})
	for i := range 6 {
		header := []string{"x-session-id", fmt.Sprint("s", i)}
		if i%2 > 0 {
			header[0] = "X-User"
		}
		before := [2][]int{legCounts(r.prefill), legCounts(r.decode)}
		for _, c := range forms(prompt, 3) {
			r.expectWhole(c, r.call(c, header...))
		}
		r.await("recorded", func() bool { return len(legs(r.decode, "decode")) == 4*(i+1) })
		for j, engines := range [2][]*sim.Engine{r.prefill, r.decode} {
			after, had := legCounts(engines), 0
			for k := range after {
				if after[k] > before[j][k] {
					had++
				}
			}
			if had != 1 {
				t.Errorf("session %d was on %d engines: %v, then %v", i, had, before[j], after)
			}
		}
	}
	if n := legCounts(r.decode); slices.Max(n) == 24 {
		t.Errorf("all sessions are on one engine: %v", n)
	}
	// Without the header the policy decides.
	before := legCounts(r.decode)
	for range 4 {
		c := forms(prompt, 3)[0]
		r.expectWhole(c, r.call(c))
	}
	r.await("recorded", func() bool { return len(legs(r.decode, "decode")) == 28 })
	for i, n := range legCounts(r.decode) {
		if n != before[i]+1 {
			t.Errorf("round robin without a session: %v, then %v", before, legCounts(r.decode))
			break
		}
	}
}

// The engines' lists are read again while they are up.
func TestModelsAreListedAnew(t *testing.T) {
	r := newRig(t, rigOptions{decode: 2, router: func(c *router.Config) { c.Health.Interval = time.Millisecond }})
	r.server.BelieveModels("gone")
	r.await("listed anew", func() bool { return r.server.ModelsKnown() })
}

// A model that only decode engines list is served by them alone, in any number. The log says so
// once, and says when it is over.
func TestModelOnDecodeOnly(t *testing.T) {
	const warning, over = `"message":"models listed by only one pool`, `"message":"prefill and decode backends list the same models"`
	var pools router.Config
	engine := func(o *sim.Options) {
		o.TokenLatency = 5 * time.Millisecond
		if o.Model = "a"; o.Name == "decode-1" {
			o.Model = "b"
		}
	}
	share := func(c *proxy.Config) { c.DecodeOnly.MaxShare = 0 }
	r := newRig(t, rigOptions{decode: 2, engine: engine, config: share, router: func(c *router.Config) { pools = *c }})
	r.await("told", func() bool { return strings.Contains(r.logs.String(), warning) })
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			a := r.post("/v1/completions", fmt.Sprintf(`{"model":"b","prompt":%q,"max_tokens":20}`, prompt))
			if a.status != 200 || pathOf(a) != "decode_only no_prefill_model" {
				t.Errorf("%d %s by %s", a.status, a.body, pathOf(a))
			}
		})
	}
	all.Wait()
	if a := r.ask("a"); a.status != 200 || pathOf(a) != "disaggregated none" {
		t.Errorf("the other model: %d %s by %s", a.status, a.body, pathOf(a))
	}
	if a := r.ask("nope"); a.status != 404 || pathOf(a) != "disaggregated none" {
		t.Errorf("a model that nobody lists: %d by %s, want the prefill engine's own 404", a.status, pathOf(a))
	}
	if n := r.metric(`xpyd_decisions_total{path="decode_only",reason="no_prefill_model"}`); n != 10 {
		t.Errorf("%v counted, want 10", n)
	}
	logs := r.logs.String()
	if strings.Count(logs, warning) != 1 || !strings.Contains(logs, `"only_decode":["b"],"only_prefill":[]`) {
		t.Errorf("want one warning that names b: %s", logs)
	}
	reload := func() {
		t.Helper()
		if err := r.server.Reload(pools); err != nil {
			t.Fatal(err)
		}
	}
	known := pools.Prefill
	pools.Prefill = append(slices.Clone(known), router.MustEntries("http://127.0.0.1:1")...) // which may list b, for all that is known
	reload()
	if strings.Contains(r.logs.String(), over) {
		t.Errorf("over, says the log, as a backend joins whose models are not known: %s", r.logs)
	}
	pools.Prefill, pools.Decode = known, pools.Decode[:1]
	reload()
	if !strings.Contains(r.logs.String(), over) {
		t.Errorf("nothing says that it is over: %s", r.logs)
	}
	r.expectNothingHeld()
}

// If decode may not compute prompts, the prefill engine says that it has no such model.
func TestModelOnDecodeOnlyThatMayNot(t *testing.T) {
	r := newRig(t, rigOptions{decode: 2, engine: byName("a", "b"), config: func(c *proxy.Config) { c.DecodeOnly.Enabled = false }})
	if a := r.ask("b"); a.status != 404 || pathOf(a) != "disaggregated none" {
		t.Errorf("%d %s by %s, want the prefill engine's 404", a.status, a.body, pathOf(a))
	}
	r.await("told", func() bool { return strings.Contains(r.logs.String(), "those of decode are refused by prefill") })
}

// If no request gets a prefill, the model is not the reason.
func TestModelOnDecodeOnlyWithoutSplits(t *testing.T) {
	r := newRig(t, rigOptions{decode: 2, engine: byName("a", "b"), router: func(c *router.Config) { c.PD.Mode = router.PDNever }})
	if a := r.ask("b"); a.status != 200 || pathOf(a) != "decode_only pd_never" {
		t.Errorf("%d %s by %s", a.status, a.body, pathOf(a))
	}
}

// An adapter that was loaded on some engines, or unloaded on some, is looked for at the first 404, and not when the lists
// are due again.
func TestModelsAreListedAnewAfterA404(t *testing.T) {
	together(t)
	for name, knows := range map[string][]string{"loaded": {"a"}, "unloaded": {"a", "sim"}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, rigOptions{prefill: 2, decode: 2, engine: byName("a", "sim"), router: func(c *router.Config) {
				c.Health.Interval, c.Health.SuspectInterval = time.Hour, time.Hour
			}})
			r.server.BelieveModels(knows...)
			r.await("found", func() bool {
				for range 4 { // wherever the turns are
					if r.ask("a").status != 200 || r.ask("sim").status != 200 {
						return false
					}
				}
				return true
			})
		})
	}
}

// A request that meets an engine which has unloaded its model is served by another one that lists it, whichever leg it is.
// One for a model that all have unloaded gets the engine's 404.
func TestUnloadedModelIsServedElsewhere(t *testing.T) {
	together(t)
	for _, name := range []string{"nixl", "mooncake"} {
		t.Run(name, func(t *testing.T) {
			dialect, _ := kvparams.Lookup(name)
			r := newRig(t, rigOptions{prefill: 2, decode: 2, dialect: dialect, engine: byName("a", "sim"), router: func(c *router.Config) {
				c.Health.Interval, c.Health.SuspectInterval = time.Hour, time.Hour
			}})
			for range 4 { // wherever the turns are
				for _, model := range []string{"a", "sim"} {
					r.server.BelieveModels("a", "sim", "gone")
					if a := r.ask(model); a.status != 200 {
						t.Errorf("%s: %d %s", model, a.status, a.body)
					}
				}
			}
			r.expectNothingHeld()
			if a := r.ask("gone"); a.status != 404 || !strings.Contains(a.body, "NotFoundError") {
				t.Errorf("a model that all have unloaded: %d %s", a.status, a.body)
			}
			r.expectNothingHeld()
		})
	}
}

// A model that only prefill engines list is refused before any of them computes.
func TestModelOnPrefillOnly(t *testing.T) {
	r := newRig(t, rigOptions{prefill: 2, engine: byName("a", "b")})
	if a := r.ask("b"); a.status != 404 || a.code() != "model_not_found" {
		t.Errorf("%d %s", a.status, a.body)
	}
	if n := len(legs(r.prefill, "prefill")); n > 0 {
		t.Errorf("%d prefills", n)
	}
}

// The list of models has what decode engines serve, whatever prefill engines list.
func TestModelsThatAreListed(t *testing.T) {
	r := newRig(t, rigOptions{prefill: 2, decode: 2, engine: func(o *sim.Options) {
		o.Model = map[string]string{"prefill-0": "a", "prefill-1": "p", "decode-0": "a", "decode-1": "d"}[o.Name]
	}})
	a := r.send("GET", "/v1/models", "")
	for model, want := range map[string]int{"a": 1, "d": 1, "p": 0} {
		if n := strings.Count(a.body, `"id":"`+model+`"`); n != want {
			t.Errorf("%s is listed %d times, want %d: %s", model, n, want, a.body)
		}
	}
}
