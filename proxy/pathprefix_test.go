package proxy_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"xpyd/router"
	"xpyd/sim"
)

// below serves each engine of a pool below a path of its own, all on one host, as an ingress does.
type below struct {
	server *httptest.Server
	mu     sync.Mutex
	seen   map[string]bool // paths of requests
	astray []string        // those below no engine
}

func newBelow(t *testing.T, c *router.Config) *below {
	t.Helper()
	b := &below{seen: map[string]bool{}}
	mux := http.NewServeMux()
	b.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		b.mu.Lock()
		b.seen[q.Method+" "+q.URL.Path] = true
		b.mu.Unlock()
		mux.ServeHTTP(w, q)
	}))
	t.Cleanup(b.server.Close)
	mux.HandleFunc("/", func(w http.ResponseWriter, q *http.Request) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.astray = append(b.astray, q.URL.Path)
		http.NotFound(w, q)
	})
	for name, pool := range map[string][]router.Entry{"/engines/p": c.Prefill, "/engines/d": c.Decode} {
		for i := range pool {
			engine, err := url.Parse(pool[i].URL)
			if err != nil {
				t.Fatal(err)
			}
			to := httputil.NewSingleHostReverseProxy(engine)
			to.FlushInterval = -1
			to.Transport = &http.Transport{DisableKeepAlives: true} // the shared one is closed by other tests that end their servers
			mux.Handle(name+"/", http.StripPrefix(name, to))
			pool[i].URL = b.server.URL + name
		}
	}
	return b
}

// Engines may be below a path. Every request to them goes there: legs, releases, checks, models, metrics.
func TestEnginesBelowAPath(t *testing.T) {
	var b *below
	r := newRig(t, rigOptions{
		router: func(c *router.Config) { polled(c); b = newBelow(t, c) },
		engine: func(o *sim.Options) { o.TokenLatency = 5 * time.Millisecond }, // the leaver's answer takes longer than its leaving
	})
	for _, c := range forms(prompt, 9) {
		a := r.call(c)
		r.expectWhole(c, a)
		if a.header.Get("X-Xpyd-Path") != "disaggregated" {
			t.Errorf("went by %v", a.header)
		}
	}
	for _, path := range []string{"/tokenize", "/v1/embeddings"} {
		if a := r.post(path, `{"model":"sim","prompt":"hello","input":"hello"}`); a.status != 200 {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	left := r.dialRaw()
	_, _ = io.WriteString(left, raw(forms(prompt, 1500)[1], "leaver"))
	_, _ = left.Read(make([]byte, 1))
	_ = left.Close()
	r.await("the leaver counted", func() bool { return r.metric("xpyd_client_gone_total") == 1 })
	if a := r.send(http.MethodGet, "/v1/models", ""); !strings.Contains(a.body, `"id":"sim"`) {
		t.Errorf("models: %s", a.body)
	}
	if a := r.send(http.MethodGet, "/version", ""); a.status != 200 {
		t.Errorf("version: %d %s", a.status, a.body)
	}
	r.expectNothingHeld()
	r.await("metrics read", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.seen["GET /engines/p/metrics"] && b.seen["GET /engines/d/metrics"]
	})
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.astray) > 0 {
		t.Errorf("requests beside the engines: %q", b.astray)
	}
	for _, path := range []string{
		"POST /engines/p/v1/completions", "POST /engines/d/v1/completions", "POST /engines/p/v1/chat/completions", "POST /engines/d/tokenize",
		"GET /engines/p/health", "GET /engines/d/health", "GET /engines/d/version", "GET /engines/p/v1/models",
	} {
		if !b.seen[path] {
			t.Errorf("no %s among %v", path, b.seen)
		}
	}
}
