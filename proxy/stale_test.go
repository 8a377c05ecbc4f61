package proxy_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"xpyd/proxy"
	"xpyd/router"
)

// A decode engine hangs up on every second request of a connection. No request may meet two such
// connections.
func TestSecondRoundTakesAFreshConnection(t *testing.T) {
	together(t)
	type served struct{}
	var together sync.WaitGroup
	together.Add(2)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"object":"list","data":[{"id":"sim","object":"model"}],"version":"0.32.0"}`)
	})
	mux.HandleFunc("POST /v1/completions", func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		n := req.Context().Value(served{}).(*atomic.Int32).Add(1)
		if n > 1 {
			panic(http.ErrAbortHandler)
		}
		if len(body) > 0 && req.Header.Get("User-Agent") == "together" {
			together.Done()
			together.Wait()
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"id":"cmpl-1","object":"text_completion","created":1,"model":"sim","choices":[{"index":0,"text":"abc","logprobs":null,"finish_reason":"stop"}],"usage":null}`)
	})
	s := httptest.NewUnstartedServer(mux)
	s.Config.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
		return context.WithValue(ctx, served{}, &atomic.Int32{})
	}
	s.Start()
	t.Cleanup(s.Close)
	r := newRig(t, rigOptions{
		router: func(c *router.Config) { c.Decode = router.MustEntries(s.URL) },
		config: func(c *proxy.Config) { c.KV.Release = "off" }, // it would take the second kept connection
	})
	c := forms(prompt, 3)[0]
	got := make(chan answer, 2)
	for range 2 { // leave two kept connections
		go func() { got <- r.call(c, "User-Agent", "together") }()
	}
	for range 2 {
		if a := r.soon(got); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	if a := r.call(c); a.status != 200 || a.text() != "abc" {
		t.Fatalf("%d %s\n%s", a.status, a.body, r.logs)
	}
}
