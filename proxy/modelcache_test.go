package proxy_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"xpyd/proxy"
	"xpyd/router"
)

// listing are engines that list one model each. With a key they list it to clients that show the
// key. The proxy's own checks, which show none, get 401.
type listing struct {
	key    string
	frozen atomic.Bool  // to clients that show a key, or to all if there is none
	asked  atomic.Int32 // with a client's key
	cut    atomic.Int32 // of these, by who asked
	urls   []string
}

func newListing(t *testing.T, engines int, key string) *listing {
	t.Helper()
	l := &listing{key: key}
	thaw := make(chan struct{})
	for range engines {
		mux := http.NewServeMux()
		mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
		mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"version":"0.32.0"}`) })
		mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, q *http.Request) {
			shown := strings.TrimPrefix(q.Header.Get("Authorization"), "Bearer ")
			if shown != "" {
				l.asked.Add(1)
			}
			if l.frozen.Load() && (shown != "" || key == "") {
				select {
				case <-thaw:
				case <-q.Context().Done():
					l.cut.Add(1)
				}
				return
			}
			if key != "" && !strings.HasPrefix(shown, key) {
				http.Error(w, `{"error":"Unauthorized"}`, http.StatusUnauthorized)
				return
			}
			_, _ = fmt.Fprintf(w, `{"object":"list","data":[{"id":"sim","root":%q}]}`, fmt.Sprint("of ", shown))
		})
		s := httptest.NewServer(mux)
		t.Cleanup(s.Close)
		l.urls = append(l.urls, s.URL)
	}
	t.Cleanup(func() { close(thaw) }) // before the servers are closed
	return l
}

// asDecode replaces the rig's engines by these, without a prefill pool.
func (l *listing) asDecode(c *router.Config) {
	c.Prefill, c.Decode = nil, router.MustEntries(l.urls...)
	c.Health.Interval, c.Health.Timeout = time.Hour, time.Minute
}

func newListingRig(t *testing.T, l *listing) *rig {
	t.Helper()
	return newRig(t, rigOptions{prefill: -1, decode: len(l.urls), router: l.asDecode})
}

// The checks know what the engines list to everybody, so no engine is asked for a client.
func TestModelsThatTheChecksKnow(t *testing.T) {
	l := newListing(t, 20, "")
	r := newListingRig(t, l)
	l.frozen.Store(true)
	start := time.Now()
	for i := range 3 {
		a := r.send("GET", "/v1/models", "", "Authorization", fmt.Sprint("Bearer k", i))
		if a.status != 200 || !strings.Contains(a.body, `"id":"sim"`) {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	if n := l.asked.Load(); n != 0 {
		t.Errorf("%d engines were asked for a client, want none; it took %v", n, time.Since(start))
	}
}

// If the answer depends on the client's key, each key has its own answer. It is fetched once for
// all clients that ask at a time, and kept for a moment.
func TestModelsByTheClientsKey(t *testing.T) {
	l := newListing(t, 1, "good")
	r := newListingRig(t, l)
	list := func(key string) answer { return r.send("GET", "/v1/models", "", "Authorization", "Bearer "+key) }
	var all sync.WaitGroup
	for range 30 {
		all.Go(func() {
			if a := list("good-1"); a.status != 200 || !strings.Contains(a.body, `"root":"of good-1"`) {
				t.Errorf("%d %s", a.status, a.body)
			}
		})
	}
	all.Wait()
	if n := l.asked.Load(); n != 1 {
		t.Errorf("the engine was asked %d times for 30 calls with one key", n)
	}
	if a := list("good-2"); a.status != 200 || !strings.Contains(a.body, `"root":"of good-2"`) {
		t.Errorf("another key: %d %s", a.status, a.body)
	}
	for _, key := range []string{"bad", ""} {
		if a := list(key); a.status != 401 || a.code() != "invalid_api_key" || a.header.Get("WWW-Authenticate") == "" {
			t.Errorf("key %q: %d %s, want 401", key, a.status, a.body)
		}
	}
	if a := r.send("GET", "/v1/models", ""); a.status != 401 {
		t.Errorf("no key: %d %s", a.status, a.body)
	}
	asked := l.asked.Load()
	if a := list("good-1"); a.status != 200 || l.asked.Load() != asked {
		t.Errorf("again: %d, asked %d times", a.status, l.asked.Load()-asked)
	}
}

// Engines that do not answer delay a call for a bounded time, however many there are.
func TestModelsOfFrozenEngines(t *testing.T) {
	l := newListing(t, 12, "good")
	r := newListingRig(t, l)
	r.server.AskModelsWithin(200 * time.Millisecond)
	l.frozen.Store(true)
	start := time.Now()
	if a := r.send("GET", "/v1/models", "", "Authorization", "Bearer good"); a.status != 503 || a.code() != "decode_unavailable" {
		t.Errorf("%d %s", a.status, a.body)
	}
	if d := time.Since(start); d > patience {
		t.Errorf("it took %v", d)
	}
	if n := l.asked.Load(); n > 3 {
		t.Errorf("%d engines were asked at a time", n)
	}
	r.await("no question left", func() bool { return l.cut.Load() == l.asked.Load() })
}

// A client that leaves ends its own call, unless others wait for the same answer.
func TestClientLeavesTheModels(t *testing.T) {
	l := newListing(t, 12, "good")
	r := newListingRig(t, l)
	r.server.AskModelsWithin(time.Minute)
	l.frozen.Store(true)
	conns := make([]io.Closer, 2)
	for i := range conns {
		conn := r.dialRaw()
		_, _ = io.WriteString(conn, "GET /v1/models HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer good\r\n\r\n")
		conns[i] = conn
	}
	r.await("both wait", func() bool { return r.server.AwaitingModels() == 2 })
	_ = conns[0].Close()
	r.await("one waits", func() bool { return r.server.AwaitingModels() == 1 })
	if n := l.cut.Load(); n > 0 {
		t.Errorf("%d questions were cut while a client waits for them", n)
	}
	_ = conns[1].Close()
	r.await("no question left", func() bool { return l.asked.Load() > 0 && l.cut.Load() == l.asked.Load() })
	if n := r.metric(`xpyd_request_errors_total{code="client_gone"}`); n != 2 {
		t.Errorf("%v clients counted as gone, want 2", n)
	}
}

// Engines that are down are not asked, and with none left the answer comes at once.
func TestModelsOfEnginesThatAreDown(t *testing.T) {
	l := newListing(t, 6, "good")
	r := newListingRig(t, l)
	for _, url := range l.urls[1:] {
		r.server.FailChecks(url)
	}
	if a := r.send("GET", "/v1/models", "", "Authorization", "Bearer good"); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if n := l.asked.Load(); n != 1 {
		t.Errorf("%d engines asked, one is up", n)
	}
	r.server.FailChecks(l.urls[0])
	if a := r.send("GET", "/v1/models", "", "Authorization", "Bearer good-2"); a.status != 503 || l.asked.Load() != 1 {
		t.Errorf("%d, %d asked; none is up", a.status, l.asked.Load()-1)
	}
}

// Keys that are used only once do not fill the memory.
func TestModelsOfManyKeys(t *testing.T) {
	l := newListing(t, 1, "good")
	r := newListingRig(t, l)
	for i := range 2 * proxy.MaxModelKeys {
		if a := r.send("GET", "/v1/models", "", "Authorization", fmt.Sprint("Bearer good", i)); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	if n := r.server.ModelKeys(); n > proxy.MaxModelKeys {
		t.Errorf("the answers to %d keys are kept, want %d at most", n, proxy.MaxModelKeys)
	}
}
