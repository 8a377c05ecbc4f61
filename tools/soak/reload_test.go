package soak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"xpyd/tools/completion"
	"xpyd/tools/process"
	"xpyd/tools/tally"
)

// idleRun is a run without a proxy, with one engine in the configuration.
func idleRun(t *testing.T) (*reload, *backend) {
	t.Helper()
	r := newReload(ReloadOptions{})
	r.plan.begin = time.Now().Add(-time.Hour)
	t.Cleanup(r.backends.close)
	if err := r.backends.fill(1); err != nil {
		t.Fatal(err)
	}
	return r, r.backends.in[0]
}

func (r *reload) said() string { return fmt.Sprint(errors.Join(r.faultsFound()...)) }

// ago returns an id of a client's request that began d ago.
func (r *reload) ago(d time.Duration) string {
	return fmt.Sprintf("%s%d-1-2-12345678", reloadID, (time.Since(r.plan.begin) - d).Nanoseconds())
}

func TestReloadEngineTellsWhatComesTooLate(t *testing.T) {
	const minute = time.Minute
	for name, c := range map[string]struct {
		left time.Duration // how long ago; 0 if it is in the configuration
		id   string        // of a leg, "" for a check
		ago  time.Duration // when the client's request began
		want string
	}{
		"in, request":                           {id: "client", want: ""},
		"in, check":                             {want: ""},
		"left, request from before":             {left: minute, id: "client", ago: 2 * minute, want: ""},
		"left, request from after":              {left: minute, id: "client", ago: minute / 2, want: "requests to a backend that has left"},
		"left, release from after":              {left: minute, id: "release", ago: minute / 2, want: "requests to a backend that has left"},
		"left just now, check":                  {left: time.Second, want: ""},
		"left long ago, check":                  {left: minute, want: "checks of a backend that has left"},
		"left just now, warm-up of the proxy's": {left: time.Second, id: "xpyd-warmup-1", want: ""},
		"left long ago, warm-up of the proxy's": {left: minute, id: "xpyd-warmup-1", want: "requests of the proxy's own"},
		"left long ago, an id of no request":    {left: minute, id: "other", want: "requests of the proxy's own"},
	} {
		t.Run(name, func(t *testing.T) {
			r, e := idleRun(t)
			if c.left > 0 {
				e.leave(time.Now().Add(-c.left))
			}
			path, body := "/health", ""
			if c.id != "" {
				path, body = "/v1/completions", `{"max_tokens":1,"prompt":"a"}`
			}
			req := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
			switch c.id {
			case "client":
				req.Header.Set("X-Request-Id", r.ago(c.ago))
			case "release":
				req.Header.Set("X-Request-Id", r.ago(c.ago)+"-release")
			default:
				req.Header.Set("X-Request-Id", c.id)
			}
			e.ServeHTTP(httptest.NewRecorder(), req)
			got := r.said()
			if (c.want == "") != (got == "<nil>") || !strings.Contains(got, c.want) {
				t.Errorf("found %q, want %q", got, c.want)
			}
		})
	}
}

func TestReloadFindsHandlesUsedTwiceAndLeftOpen(t *testing.T) {
	r, e := idleRun(t)
	leg := func(kv string, tokens int) string {
		t.Helper()
		w := httptest.NewRecorder()
		req := httptest.NewRequest(http.MethodPost, "/v1/completions", strings.NewReader(fmt.Sprintf(`{"max_tokens":%d,"kv_transfer_params":%s}`, tokens, kv)))
		req.Header.Set("X-Request-Id", "xpyd-warmup-1")
		e.ServeHTTP(w, req)
		return w.Body.String()
	}
	for range 2 {
		if got := leg(`{"do_remote_decode":true}`, 1); !strings.Contains(got, `"remote_request_id":"cmpl-`) {
			t.Fatalf("no handle: %s", got)
		}
	}
	if leg(`{"remote_request_id":"cmpl-1"}`, 0); len(r.faultsFound()) > 0 || r.handles.released() != 1 {
		t.Fatalf("a release: found %q, %d released", r.faultsFound(), r.handles.released())
	}
	leg(`{"remote_request_id":"cmpl-1"}`, 1)
	if got := r.said(); !strings.Contains(got, "a handle that is not open: cmpl-1") {
		t.Errorf("found %q after a second use", got)
	}
	if open := r.handles.open(); len(open) != 1 || open[0] != e.url {
		t.Errorf("open handles %q, want one of %s", open, e.url)
	}
}

func TestReloadFindsConnectionsToEnginesThatLeft(t *testing.T) {
	r, e := idleRun(t)
	client := &http.Client{Transport: &http.Transport{}}
	resp, err := client.Get(e.url + "/health")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	left := []*backend{e}
	r.backends.in = r.backends.in[1:]
	r.backends.removed(left)
	if n := r.backends.clinging(); n != 1 {
		t.Errorf("%d connections cling, want 1", n)
	}
	r.backends.judge()
	if got := r.said(); !strings.Contains(got, "connections to a backend that has left: 1") {
		t.Errorf("found %q", got)
	}
	client.CloseIdleConnections()
	for end := time.Now().Add(completion.Patience); r.backends.clinging() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a closed connection is still counted")
		}
	}
}

// The admin port of the proxy still shows backends that are removed.
func TestReloadFindsSeriesAndPoolsOfThoseThatLeft(t *testing.T) {
	r, _ := idleRun(t)
	p, d := r.backends.urls(true)[0], r.backends.urls(false)[0]
	metrics := fmt.Sprintf("xpyd_in_flight{role=\"prefill\",backend=%q} 0\nxpyd_config_reloads_total{result=\"ok\"} 0\n", p)
	pools := fmt.Sprintf(`{"prefill":[{"url":%q}],"decode":[{"url":%q}]}`, p, d)
	admin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		text := metrics
		if req.URL.Path == "/pools" {
			text = pools
		}
		_, _ = fmt.Fprint(w, text)
	}))
	defer admin.Close()
	at := strings.TrimPrefix(admin.URL, "http://")
	look := func() string {
		t.Helper()
		r.verdict = &tally.Verdict{}
		if err := r.judgeSeries(context.Background(), at); err != nil {
			t.Fatal(err)
		}
		if err := r.judgePools(context.Background(), at); err != nil {
			t.Fatal(err)
		}
		return r.said()
	}
	if got := look(); got != "<nil>" {
		t.Errorf("found %q of a proxy that knows nothing of others", got)
	}
	metrics += "xpyd_leg_requests_total{leg=\"decode\",backend=\"http://127.9.9.9:1\",outcome=\"ok\"} 7\n"
	if got, want := look(), "metrics of backends that have left: 1 series, of 3 in all, among them xpyd_leg_requests_total{leg=\"decode\",backend=\"http://127.9.9.9:1\""; !strings.Contains(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
	gauge := "xpyd_in_flight{role=\"decode\",backend=\"http://127.9.9.9:1\"} 0\n"
	for _, c := range []struct {
		more string
		ago  time.Duration
		want string
	}{{"", time.Minute, "<nil>"}, {"", 10 * time.Minute, "1 series, of 3 in all"}, {gauge, time.Minute, "1 series, of 4 in all, among them xpyd_in_flight"}} {
		r.backends.out["http://127.9.9.9:1"] = time.Now().Add(-c.ago)
		plain := metrics
		metrics += c.more
		if got := look(); !strings.Contains(got, c.want) {
			t.Errorf("%q of a backend that left %v ago: found %q, want %q", c.more, c.ago, got, c.want)
		}
		metrics = plain
	}
	pools = strings.ReplaceAll(pools, d, "http://127.9.9.9:1")
	if got, want := look(), "pools other than in the file: 1 decode"; !strings.Contains(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
	metrics = strings.ReplaceAll(metrics, `"ok"} 0`, `"ok"} 1`)
	if got, want := look(), "reloads that were counted otherwise: 1 ok"; !strings.Contains(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
}

func TestReloadReadsTheProxysLog(t *testing.T) {
	r := newReload(ReloadOptions{})
	l, err := newProxyLog(t.TempDir(), r.key, r.tally, r.verdict, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	l.also = r.line
	for _, line := range []string{
		`{"level":"info","listen":"a:1","message":"serving"}`, `{"level":"info","joined":3,"left":2,"message":"pools reloaded"}`,
		`{"level":"warn","error":"dial: i/o timeout","message":"slow"}`, `{"level":"warn","message":"odd"}`, "panic: of the proxy",
	} {
		if _, err := io.WriteString(l.pipe, line+"\n"); err != nil {
			t.Fatal(err)
		}
	}
	l.close()
	if len(l.serving) != 1 || len(r.reloaded) != 1 || r.late.Load() != 1 {
		t.Errorf("%d lines of serving, %d of reloads, %d timeouts; want 1 of each", len(l.serving), len(r.reloaded), r.late.Load())
	}
	if got := r.said(); strings.Count(got, "\n") != 2 || !strings.Contains(got, "in the log, odd") || !strings.Contains(got, "in the log, : panic: of the proxy") || !strings.Contains(got, "no JSON") {
		t.Errorf("found %q, want the odd line, and the panic as no JSON too", got)
	}
}

// A client leaves whenever it is told to, and then whatever came of its request is no fault. Told after the
// end, it does nothing to the next request on its connection.
func TestReloadClientLeavesWhenToldTo(t *testing.T) {
	r, e := idleRun(t)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("X-Request-Id", req.Header.Get("X-Request-Id"))
		req.Header.Set("X-Request-Id", req.Header.Get("X-Request-Id")+"-12345678")
		e.ServeHTTP(w, req)
	}))
	defer front.Close()
	r.proxy = &proxy{addr: strings.TrimPrefix(front.URL, "http://")}
	c := &client{s: r.soak, r: rand.New(rand.NewPCG(1, 3))}
	defer c.drop()
	var leave func()
	q := func(told func(func())) *request {
		return &request{load: "reload", id: r.ago(0), key: r.key, told: told, Call: completion.Call{Stream: true, Prompt: "a", Tokens: 4}}
	}
	if what := c.do(q(func(l func()) { leave = l })); what != "complete" {
		t.Fatalf("a client that stays: %q, %s", what, r.said())
	}
	conn := c.TCP
	if leave(); conn == nil || c.do(q(nil)) != "complete" || c.TCP != conn {
		t.Errorf("told after the end, it lost its connection: %s", r.said())
	}
	if what := c.do(q(func(l func()) { l() })); what != "left" || c.TCP != nil || r.said() != "<nil>" {
		t.Errorf("told at once: %q, %s", what, r.said())
	}
}

func TestReloadCensusNamesWhatHasGrown(t *testing.T) {
	held := func(goroutines, fds int, heap, rss float64) process.Census {
		return process.Census{Goroutines: goroutines, FDs: fds, Heap: heap, RSS: rss}
	}
	base := held(100, 1000, 20<<20, 100<<20)
	for name, c := range map[string]struct {
		now  process.Census
		want string
	}{
		"the same":         {base, ""},
		"a probe or two":   {held(103, 1010, 21<<20, 110<<20), ""},
		"a goroutine each": {held(140, 1000, 20<<20, 100<<20), "goroutines"},
		"a socket each":    {held(100, 2000, 20<<20, 100<<20), "descriptors"},
		"memory":           {held(100, 1000, 30<<20, 200<<20), "heap, RSS"},
	} {
		if got := beyond(c.now, base); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestReloadOptionsThatMakeNoRun(t *testing.T) {
	good := ReloadOptions{Backends: 40, Duration: time.Second, Clients: 1, Part: 20, Rest: time.Second, Serve: []string{"xpyd"}}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for want, edit := range map[string]func(o *ReloadOptions){
		"even number":       func(o *ReloadOptions) { o.Backends = 41 },
		"half of them":      func(o *ReloadOptions) { o.Part = 21 },
		"more than 0":       func(o *ReloadOptions) { o.Clients = 0 },
		"need 6000001024 o": func(o *ReloadOptions) { o.Backends = 1e9 },
	} {
		o := good
		edit(&o)
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
