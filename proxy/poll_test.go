package proxy_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"xpyd/proxy"
	"xpyd/router"
	"xpyd/sim"
)

const pollEvery = 20 * time.Millisecond

func polled(c *router.Config) { c.Routing.Poll = pollEvery }

// metered is a decode engine that answers every completion at once, and whose metrics are
// the test's.
type metered struct {
	*stub
	mu    sync.Mutex
	page  func(w http.ResponseWriter, r *http.Request)
	asked atomic.Int64
}

func newMetered(t *testing.T, page string) *metered {
	t.Helper()
	m := &metered{stub: newStub(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"id":"c","object":"text_completion","created":1,"model":"sim","choices":[{"index":0,"text":"a","finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}`)
	})}
	m.serve(page)
	m.wrap(func(rest http.HandlerFunc, w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics" {
			rest(w, r)
			return
		}
		m.asked.Add(1)
		m.mu.Lock()
		page := m.page
		m.mu.Unlock()
		page(w, r)
	})
	return m
}

func (m *metered) serve(page string) {
	m.serveFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, page) })
}

func (m *metered) serveFunc(page func(w http.ResponseWriter, r *http.Request)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.page = page
}

func enginePage(running, waiting int, usage string) string {
	return fmt.Sprintf("process_start_time_seconds 1.5e+09\nvllm:num_requests_running{engine=\"0\"} %d.0\nvllm:num_requests_waiting{engine=\"0\"} %d.0\n"+
		"vllm:kv_cache_usage_perc{engine=\"0\"} %s\nvllm:prefix_cache_queries_total{engine=\"0\"} 20.0\nvllm:prefix_cache_hits_total{engine=\"0\"} 10.0\n"+
		"vllm:cache_config_info{block_size=\"16\",engine=\"0\",num_gpu_blocks=\"100\"} 1.0\n", running, waiting, usage)
}

// shown is a backend as GET /backends shows it.
type shown struct {
	Role, URL, State string
	InFlight         int64   `json:"in_flight"`
	TokensInFlight   int64   `json:"tokens_in_flight"`
	Elsewhere        float64 `json:"elsewhere"`
	Engine           map[string]float64
	EngineUnknown    string `json:"engine_unknown"`
	Drained          bool
}

func (r *rig) backends() (all []shown) {
	r.t.Helper()
	var body struct{ Backends []shown }
	if err := json.Unmarshal([]byte(r.adminText("/backends")), &body); err != nil {
		r.t.Fatal(err)
	}
	return body.Backends
}

// backend returns the one with the URL.
func (r *rig) backend(url string) (b shown) {
	r.t.Helper()
	for _, b = range r.backends() {
		if b.URL == url {
			return b
		}
	}
	r.t.Fatalf("no backend %s", url)
	return b
}

func TestEngineStateIsShown(t *testing.T) {
	m := newMetered(t, enginePage(3, 2, "0.25"))
	r := newRig(t, rigOptions{prefill: -1, router: func(c *router.Config) { polled(c); m.asDecode(c); c.Routing.Poll = time.Minute },
		config: func(c *proxy.Config) { c.BackendAPIKey = "secret" }, before: func(*rig) {
			m.serveFunc(func(w http.ResponseWriter, req *http.Request) {
				if req.Header.Get("Authorization") != "Bearer secret" {
					http.Error(w, "key", http.StatusUnauthorized)
					return
				}
				_, _ = io.WriteString(w, enginePage(3, 2, "0.25"))
			})
		}})
	r.await("read", func() bool { b := r.backend(m.server.URL); return b.Engine != nil && b.EngineUnknown == "" })
	r.await("counted", func() bool { return r.metric(`xpyd_engine_polls_total{result="ok"}`) == 1 })
	b := r.backend(m.server.URL)
	want := map[string]float64{"running": 3, "waiting": 2, "kv_usage": .25, "kv_tokens": 1600, "block_size": 16,
		"prefix_cache_queries": 20, "prefix_cache_hits": 10, "started": 1.5e9, "restarts": 0}
	delete(b.Engine, "age")
	if fmt.Sprint(b.Engine) != fmt.Sprint(want) || b.Role != "decode" || b.State != "up" || b.Elsewhere != 5 || b.EngineUnknown != "" {
		t.Errorf("%+v, want the engine's %v", b, want)
	}
	for name, want := range map[string]float64{
		"xpyd_engine_requests_running": 3, "xpyd_engine_requests_waiting": 2, "xpyd_engine_kv_usage_ratio": .25, "xpyd_engine_requests_elsewhere": 5,
		"xpyd_engine_prefix_cache_queries_total": 20, "xpyd_engine_prefix_cache_hits_total": 10, `xpyd_engine_polls_total{result="ok"}`: 1,
	} {
		if got := r.metric(name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if age := r.metric("xpyd_engine_state_age_seconds"); age <= 0 || age > 60 {
		t.Errorf("age of the reading: %v s", age)
	}
	if strings.Contains(r.logs.String()+r.metricsText(), "secret") {
		t.Error("the key is in log or metrics")
	}
}

// What xpyd itself has in flight is not external load.
func TestOwnRequestsAreNotElsewhere(t *testing.T) {
	b := newBarrier(sim.PhasePrefillStart, 0)
	r := newRig(t, rigOptions{router: polled, engine: func(o *sim.Options) { o.Hook = b.hook }})
	t.Cleanup(b.open)
	got := make(chan answer, 1)
	c := forms(prompt, 3)[0]
	go func() { got <- r.call(c) }()
	<-b.reached
	p := r.prefill[0].URL()
	r.await("the request in the engine's own count", func() bool { return r.backend(p).Engine["running"]+r.backend(p).Engine["waiting"] == 1 })
	if s := r.backend(p); s.InFlight != 1 || s.TokensInFlight < 1 || s.Elsewhere != 0 {
		t.Errorf("%+v, want one in flight and none elsewhere", s)
	}
	b.open()
	r.expectWhole(c, r.soon(got))
}

// unusable are metrics that say nothing about the load, or not everything.
func unusable() map[string]func(w http.ResponseWriter, r *http.Request) {
	text := func(s string) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, s) }
	}
	return map[string]func(http.ResponseWriter, *http.Request){
		"none": http.NotFound,
		"an error": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, enginePage(9, 9, "1"), http.StatusInternalServerError)
		},
		"other names":        text("sglang:num_running_reqs 3\n"),
		"lies":               text(enginePage(-4, -2, "NaN")),
		"empty":              text(""),
		"a page without end": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 5<<20)) },
		"a page cut off": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "999")
			_, _ = io.WriteString(w, enginePage(9, 9, "1"))
		},
		"a connection closed": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	}
}

func TestEngineWithoutUsableMetrics(t *testing.T) {
	together(t)
	for name, page := range unusable() {
		t.Run(name, func(t *testing.T) {
			m := newMetered(t, "")
			m.serveFunc(page)
			r := newRig(t, rigOptions{prefill: -1, router: func(c *router.Config) { polled(c); m.asDecode(c) }})
			r.await("said", func() bool { return strings.Contains(r.logs.String(), "engine's load is not known") })
			if a := r.call(call{prompt: prompt, tokens: 1}); a.status != 200 {
				t.Fatalf("status %d, %v\n%s", a.status, a.err, r.logs)
			}
			b := r.backend(m.server.URL)
			if b.State != "up" || b.Engine != nil || b.EngineUnknown == "" || b.Elsewhere != 0 || r.metric("xpyd_backend_ejected") != 0 {
				t.Errorf("%+v: want it up, its engine unknown", b)
			}
			if text := r.metricsText(); strings.Contains(text, "xpyd_engine_requests_running{") || strings.Contains(text, "xpyd_engine_state_age_seconds{") {
				t.Error("there are series of an engine that told nothing")
			}
			before := m.asked.Load()
			r.await("two more readings", func() bool { return m.asked.Load() >= before+2 })
			m.serve(enginePage(1, 0, "0.5"))
			r.await("said that it is back", func() bool { return strings.Contains(r.logs.String(), "engine's load is known again") })
			r.await("known", func() bool { b := r.backend(m.server.URL); return b.Engine["running"] == 1 && b.EngineUnknown == "" })
			if n := strings.Count(r.logs.String(), "engine's load is not known"); n != 1 {
				t.Errorf("said %d times\n%s", n, r.logs)
			}
		})
	}
}

// A page that has a part of the figures counts for that part.
func TestEngineThatTellsAPart(t *testing.T) {
	m := newMetered(t, enginePage(2, 1, "57.5"))
	r := newRig(t, rigOptions{prefill: -1, router: func(c *router.Config) { polled(c); m.asDecode(c) }})
	r.await("said", func() bool {
		return strings.Contains(r.logs.String(), "vllm:kv_cache_usage_perc has an impossible value")
	})
	before := m.asked.Load()
	r.await("asked as often as any", func() bool { return m.asked.Load() >= before+20 })
	r.await("known in part", func() bool {
		b := r.backend(m.server.URL)
		_, ok := b.Engine["kv_usage"]
		return !ok && b.Engine["running"] == 2 && b.Elsewhere > 0 && strings.Contains(b.EngineUnknown, "kv_cache_usage_perc")
	})
}

// Metrics that come no more soon count for nothing, and requests go on.
func TestEngineStateGrowsOld(t *testing.T) {
	m := newMetered(t, enginePage(5, 0, "0.5"))
	r := newRig(t, rigOptions{prefill: -1, router: func(c *router.Config) { polled(c); m.asDecode(c) }})
	r.await("read", func() bool { return r.backend(m.server.URL).Elsewhere == 5 })
	m.serveFunc(http.NotFound)
	r.await("forgotten", func() bool { b := r.backend(m.server.URL); return b.Engine == nil && b.Elsewhere == 0 })
	if b := r.backend(m.server.URL); b.Engine == nil && b.EngineUnknown == "" {
		t.Errorf("%+v: want to be told why", b)
	}
	r.await("told of the 404", func() bool { return strings.Contains(r.backend(m.server.URL).EngineUnknown, "404") })
}

// A reading that takes longer than the last one counts leaves the state unknown, and the pages say
// so.
func TestEngineThatIsSlowToTell(t *testing.T) {
	m := newMetered(t, enginePage(5, 0, "0.5"))
	r := newRig(t, rigOptions{prefill: -1, router: func(c *router.Config) {
		polled(c)
		m.asDecode(c)
		c.Health.Timeout = time.Minute // the reading's, too
	}})
	r.await("read", func() bool { return r.backend(m.server.URL).Elsewhere == 5 })
	asked := make(chan struct{}, 1)
	m.serveFunc(func(_ http.ResponseWriter, q *http.Request) {
		select {
		case asked <- struct{}{}:
		default:
		}
		<-q.Context().Done()
	})
	<-asked
	r.await("forgotten", func() bool { return r.backend(m.server.URL).Engine == nil })
	if b := r.backend(m.server.URL); b.EngineUnknown != "the last reading is too old" {
		t.Errorf("%+v: want to be told why", b)
	}
}

func TestEngineThatRestartsIsNoticed(t *testing.T) {
	m := newMetered(t, enginePage(0, 0, "0"))
	r := newRig(t, rigOptions{prefill: -1, router: func(c *router.Config) { polled(c); m.asDecode(c) }})
	r.await("read", func() bool { return r.backend(m.server.URL).Engine != nil })
	m.serve(strings.Replace(enginePage(0, 0, "0"), "1.5e+09", "1.6e+09", 1))
	r.await("noticed", func() bool { return r.backend(m.server.URL).Engine["restarts"] == 1 })
	r.await("said", func() bool { return strings.Contains(r.logs.String(), "engine has restarted") })
}

func TestNoReadingsWithoutAnInterval(t *testing.T) {
	m := newMetered(t, enginePage(1, 0, "0"))
	r := newRig(t, rigOptions{prefill: -1, router: m.asDecode})
	if b := r.backend(m.server.URL); b.Engine != nil || b.EngineUnknown != "routing.poll is 0" || m.asked.Load() != 0 {
		t.Errorf("%+v, asked %d times", b, m.asked.Load())
	}
}

// A reload adds and removes engines, and changes the interval.
func TestReadingsFollowAReload(t *testing.T) {
	a, b := newMetered(t, enginePage(1, 0, "0")), newMetered(t, enginePage(2, 0, "0"))
	r := newRig(t, rigOptions{prefill: -1, router: func(c *router.Config) { polled(c); a.asDecode(c) }})
	r.await("read", func() bool { return a.asked.Load() > 0 })
	next := router.DefaultConfig()
	polled(&next)
	b.asDecode(&next)
	if err := r.server.Reload(next); err != nil {
		t.Fatal(err)
	}
	r.await("the new one read", func() bool { return r.backend(b.server.URL).Engine["running"] == 2 })
	before := a.asked.Load() // one may have been under way
	seen := b.asked.Load()
	r.await("more readings", func() bool { return b.asked.Load() >= seen+5 })
	if n := a.asked.Load(); n > before+1 {
		t.Errorf("%d readings of an engine that was removed", n-before)
	}
	next.Routing.Poll = 0
	if err := r.server.Reload(next); err != nil {
		t.Fatal(err)
	}
	r.await("forgotten", func() bool { return r.backend(b.server.URL).Engine == nil })
	if why := r.backend(b.server.URL).EngineUnknown; why != "routing.poll is 0" {
		t.Errorf("unknown because %q", why)
	}
}

// Readings that hang delay neither requests, nor other readings, nor the shutdown.
func TestReadingsThatHang(t *testing.T) {
	release := make(chan struct{})
	hang := newMetered(t, "")
	hang.serveFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	t.Cleanup(func() { close(release) })
	good := newMetered(t, enginePage(2, 0, "0"))
	r := newRig(t, rigOptions{prefill: -1, decode: 2, router: func(c *router.Config) {
		polled(c)
		c.Decode = router.MustEntries(hang.server.URL, good.server.URL)
	}})
	r.await("a reading that hangs", func() bool { return hang.asked.Load() > 0 })
	before := good.asked.Load()
	r.await("readings of the other", func() bool { return good.asked.Load() >= before+5 })
	for range 4 {
		if a := r.call(call{prompt: prompt, tokens: 1}); a.status != 200 {
			t.Fatalf("status %d, %v", a.status, a.err)
		}
	}
	if r.metric("xpyd_backend_up") != 2 {
		t.Error("a reading that hangs took its backend down")
	}
}

// An engine may be in both pools. What xpyd has there in one role is no external load in the other.
func TestEngineInBothPools(t *testing.T) {
	hold := make(chan struct{})
	m := newMetered(t, enginePage(1, 0, "0"))
	m.wrap(func(rest http.HandlerFunc, w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/completions" {
			<-hold
		}
		rest(w, r)
	})
	r := newRig(t, rigOptions{router: func(c *router.Config) { polled(c); m.asPrefill(c); m.asDecode(c) }})
	letGo := sync.OnceFunc(func() { close(hold) })
	t.Cleanup(letGo)
	elsewhere := func() (p, d float64) {
		for _, b := range r.backends() {
			if b.Role == "prefill" {
				p = b.Elsewhere
			} else {
				d = b.Elsewhere
			}
		}
		return p, d
	}
	r.await("a stranger's request on both", func() bool { p, d := elsewhere(); return p == 1 && d == 1 })
	got := make(chan answer, 1)
	go func() { got <- r.call(call{prompt: prompt, tokens: 1, more: `,"echo":true,"logprobs":1`}) }() // goes to D alone
	r.await("in flight", func() bool { return r.metric("xpyd_in_flight") == 1 })
	r.await("our own request on both", func() bool {
		p, d := elsewhere()
		b := r.backends()
		return p == 0 && d == 0 && b[0].Engine["running"] == 1 && b[1].Engine["running"] == 1
	})
	letGo()
	if a := r.soon(got); a.status != 200 {
		t.Errorf("status %d, %v", a.status, a.err)
	}
}

// A shorter interval counts from the reload on, not from the next reading of the longer one.
func TestReloadShortensTheIntervalAtOnce(t *testing.T) {
	m := newMetered(t, enginePage(3, 2, "0.25"))
	var pools router.Config
	r := newRig(t, rigOptions{prefill: -1, router: func(c *router.Config) { polled(c); m.asDecode(c); c.Routing.Poll = time.Hour; pools = *c }})
	r.await("read", func() bool { return r.backend(m.server.URL).Engine != nil })
	m.serve(enginePage(7, 0, "0.25"))
	pools.Routing.Poll = 20 * time.Millisecond
	if err := r.server.Reload(pools); err != nil {
		t.Fatal(err)
	}
	r.await("read again", func() bool { return r.backend(m.server.URL).Engine["running"] == 7 })
}
