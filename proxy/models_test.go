package proxy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"xpyd/router"
	"xpyd/sim"
)

// byName gives each engine the model of its place: the n-th P and the n-th D that of n.
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
	r.server.ForgetModels()
	r.await("listed anew", func() bool { return r.server.ModelsKnown() })
}
