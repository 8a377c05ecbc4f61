package proxy_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"xpyd/proxy"
	"xpyd/router"
	"xpyd/sim"
)

// expectReady fails unless /readyz, on both ports, and its gauge say so.
func (r *rig) expectReady(ready bool, says string) {
	r.t.Helper()
	want := map[bool]int{true: 200, false: 503}[ready]
	a := r.send(http.MethodGet, "/readyz", "")
	if a.status != want || !strings.Contains(a.body, says) || !strings.Contains(r.adminText("/readyz"), says) {
		r.t.Errorf("readyz %d %q, on the admin port %q, want %d with %q", a.status, a.body, r.adminText("/readyz"), want, says)
	}
	if gauge := r.metric("xpyd_ready"); (gauge == 1) != ready {
		r.t.Errorf("xpyd_ready %v", gauge)
	}
	if a := r.send(http.MethodGet, "/livez", ""); a.status != 200 {
		r.t.Errorf("livez %d", a.status)
	}
}

// failing makes the rig's engines fail each completion in that way. "" ends it.
func (r *rig) failing(engines []*sim.Engine, kind string) {
	r.t.Helper()
	f := sim.Fault{}
	if kind != "" {
		var err error
		if f, err = sim.ParseFault(kind); err != nil {
			r.t.Fatal(err)
		}
	}
	for _, e := range engines {
		if err := e.SetFault(f); err != nil {
			r.t.Fatal(err)
		}
	}
}

// callUntil sends completions one after the other until ok.
func (r *rig) callUntil(what string, ok func() bool) {
	r.t.Helper()
	c := forms(prompt, 3)[0]
	r.await(what, func() bool {
		r.call(c)
		return ok()
	})
}

// A pool that answers no completion is not ready, however healthy its engines say they are, until
// one token comes through again.
func TestReadyMeansThatACompletionIsServed(t *testing.T) {
	together(t)
	for _, tc := range []struct {
		name            string
		prefill, decode string // how these engines fail
		prefills        int
		alone           bool // decode_only.enabled
	}{
		{"both answer 500", "status=500", "status=500", 1, true},
		{"decode answers 500", "", "status=500", 1, true},
		{"decode hangs up", "", "rst", 1, true},
		{"blocks do not come", "", "kvfail", 1, true},
		{"decode gives nothing", "", "zero", 1, true},
		{"prefill answers 500, and decode may not stand in", "status=500", "", 1, false},
		{"no prefill pool, decode answers 503", "", "status=503", -1, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, rigOptions{prefill: tc.prefills, config: func(c *proxy.Config) { c.DecodeOnly.Enabled = tc.alone }})
			r.server.HastenReadiness()
			r.failing(r.prefill, tc.prefill)
			r.failing(r.decode, tc.decode)
			r.callUntil("unready", func() bool { return !r.server.Ready() })
			r.expectReady(false, "not ready: no completion succeeds, nor does a probe of one token")
			r.failing(r.prefill, "")
			r.failing(r.decode, "")
			r.await("ready again", r.server.Ready) // without any client
			r.expectReady(true, "ok")
			if said := r.logs.String(); !strings.Contains(said, `"not ready: no completion succeeds`) || !strings.Contains(said, `"ready again"`) {
				t.Errorf("not said in the log: %s", said)
			}
			c := forms(prompt, 3)[0]
			r.expectWhole(c, r.call(c))
			r.expectNothingHeld()
		})
	}
}

// The process stays ready if a whole prefill pool fails while decode computes prompts, if one
// engine of several fails, and if the fault is the client's.
func TestReadyWhileThereIsASoundWay(t *testing.T) {
	together(t)
	for _, tc := range []struct {
		name string
		act  func(r *rig)
	}{
		{"prefill fails, decode stands in", func(r *rig) { r.failing(r.prefill, "status=500") }},
		{"one decode engine of two fails", func(r *rig) { r.failing(r.decode[:1], "status=500") }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, rigOptions{decode: 2})
			r.server.HastenReadiness()
			tc.act(r)
			for over := time.Now().Add(150 * time.Millisecond); time.Now().Before(over); {
				r.call(forms(prompt, 3)[0])
				if !r.server.Ready() {
					t.Fatalf("unready\n%s", r.logs)
				}
			}
		})
	}
	for _, tc := range []struct{ name, path, body string }{
		{"no JSON", "/v1/completions", `{`},
		{"unknown model", "/v1/completions", `{"model":"other","prompt":"x","max_tokens":3}`},
		{"refused by decode", "/v1/completions", `{"model":"sim","prompt":"x","max_tokens":1000000000}`},
		{"answered 429", "/v1/completions", `{"model":"sim","prompt":"x [[D:status=429]]","max_tokens":3,"n":2}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, rigOptions{engine: func(o *sim.Options) { o.MaxModelLen = 4000 }})
			r.server.HastenReadiness()
			for range 4 {
				if a := r.post(tc.path, tc.body); a.status < 400 || a.status >= 500 {
					t.Fatalf("%d %s", a.status, a.body)
				}
			}
			if n := r.server.CompletionsFailing(); n != 0 {
				t.Errorf("%d of them count against the engines", n)
			}
		})
	}
}

// One client's requests that make engines fail do not make the process unready for others, because
// the probe succeeds.
func TestOneClientsFailuresDoNotMakeUnready(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.server.HastenReadiness()
	c := forms(prompt+"[[D:status=500]]", 3)[0]
	r.await("probed", func() bool {
		r.call(c)
		if !r.server.Ready() {
			t.Fatalf("unready\n%s", r.logs)
		}
		return strings.Contains(r.logs.String(), "stays ready")
	})
	r.expectReady(true, "ok")
}

// A completion that is served ends it at once. Here the probes go on failing.
func TestServedCompletionMakesReady(t *testing.T) {
	pass := make(chan struct{})
	d := newStub(t, func(w http.ResponseWriter, q *http.Request) {
		probe := strings.HasPrefix(q.Header.Get("X-Request-Id"), "xpyd-ready-")
		select {
		case <-pass:
			if !probe {
				w.Header().Set("Content-Type", "application/json")
				_, _ = w.Write([]byte(wholeAnswer))
				return
			}
		default:
		}
		http.Error(w, "{}", http.StatusInternalServerError)
	})
	r := newRig(t, rigOptions{prefill: -1, router: d.asDecode})
	r.server.HastenReadiness()
	r.callUntil("unready", func() bool { return !r.server.Ready() })
	close(pass)
	if a := r.call(forms(prompt, 3)[0]); a.status != 200 {
		t.Fatalf("%d %s: a process that is not ready still serves", a.status, a.body)
	}
	r.await("ready at once", r.server.Ready) // the client has its answer a moment before the request is counted
}

// What the health checks see makes a process unready by itself, and no longer than they see it.
// Nothing is held against engines that come back.
func TestEnginesThatWereDownAreReadyAtOnce(t *testing.T) {
	r := newRig(t, rigOptions{router: func(c *router.Config) {
		c.Health.Interval, c.Health.SuspectInterval = 10*time.Millisecond, 10*time.Millisecond
	}})
	r.server.HastenReadiness()
	r.decode[0].Kill()
	r.await("unready", func() bool { return !r.server.Ready() })
	for range 5 {
		r.call(forms(prompt, 3)[0])
	}
	r.expectReady(false, "not ready: no decode engine is up")
	if n := r.server.CompletionsFailing(); n != 0 {
		t.Errorf("%d failures held against the engines", n)
	}
	if err := r.decode[0].Restart(); err != nil {
		t.Fatal(err)
	}
	r.await("ready", r.server.Ready)
	if strings.Contains(r.logs.String(), `"not ready: no completion`) {
		t.Errorf("judged by what the health checks saw\n%s", r.logs)
	}
}

// If only clients with keys of their own may use the engines, the proxy's probes say nothing, so
// failures do not make it unready. If the proxy's own key is wrong, they do.
func TestReadinessBehindKeys(t *testing.T) {
	together(t)
	for _, tc := range []struct {
		name, key string // xpyd's own
		ready     bool
	}{{"the clients' keys", "", true}, {"a wrong key of xpyd's", "wrong", false}} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, rigOptions{
				engine: func(o *sim.Options) { o.APIKey = "right" },
				config: func(c *proxy.Config) { c.BackendAPIKey = tc.key },
			})
			r.server.HastenReadiness()
			if tc.ready {
				r.failing(r.decode, "status=500")
			}
			c := forms(prompt, 3)[0]
			r.await("probed", func() bool {
				if a := r.call(c, "Authorization", "Bearer right"); a.status < 500 {
					t.Fatalf("%d %s", a.status, a.body)
				}
				return !r.server.Ready() || strings.Contains(r.logs.String(), "stays ready")
			})
			if r.server.Ready() != tc.ready {
				t.Errorf("ready: %v\n%s", !tc.ready, r.logs)
			}
			r.failing(r.decode, "") // for the releases
		})
	}
}
