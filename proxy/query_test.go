package proxy_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"xpyd/router"
)

// targets is in front of an engine and notes the targets of requests, without checks and releases.
type targets struct {
	server *httptest.Server

	mu     sync.Mutex
	seen   []string
	header http.Header // of the last
}

func newTargets(t *testing.T, engine string) *targets {
	t.Helper()
	base, err := url.Parse(engine)
	if err != nil {
		t.Fatal(err)
	}
	to := &httputil.ReverseProxy{
		Rewrite:   func(q *httputil.ProxyRequest) { q.SetURL(base); q.Out.URL.RawQuery = "" },
		Transport: &http.Transport{DisableKeepAlives: true},
	}
	s := &targets{}
	s.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if id := q.Header.Get("X-Request-Id"); id != "" && !strings.HasSuffix(id, "-release") {
			s.mu.Lock()
			s.seen, s.header = append(s.seen, q.RequestURI), q.Header.Clone()
			s.mu.Unlock()
		}
		to.ServeHTTP(w, q)
	}))
	t.Cleanup(s.server.Close)
	return s
}

// last is the header of the last request that came.
func (s *targets) last() http.Header {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.header
}

// take returns what has come since the last call.
func (s *targets) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := s.seen
	s.seen = nil
	return seen
}

// A client's query changes no route, and goes to the engines unchanged.
func TestQueryOfARequest(t *testing.T) {
	var p, d *targets
	r := newRig(t, rigOptions{router: func(c *router.Config) {
		p, d = newTargets(t, c.Prefill[0].URL), newTargets(t, c.Decode[0].URL)
		c.Prefill, c.Decode = router.MustEntries(p.server.URL), router.MustEntries(d.server.URL)
	}})
	for _, tc := range []struct {
		method, target string
		status         int
		atP, atD       bool
	}{
		{"POST", "/v1/completions?api-version=2024-10-21", 200, true, true},
		{"POST", "/v1/completions?", 200, true, true},
		{"POST", "/v1/completions?a=%41&a=%zz;b=/../..//sleep?c=%2e%2e", 200, true, true},
		{"POST", "/v1/completions", 200, true, true},
		{"POST", "/tokenize?beta=true", 200, false, true},
		{"GET", "/version?x=y", 200, false, true},
		{"GET", "/v1/models?beta=true", 200, false, false},
		{"GET", "/livez?x=y", 200, false, false},
		{"GET", "/readyz?verbose", 200, false, false},
		{"POST", "/v1/completions/?x", 404, false, false},
		{"POST", "/v1/completions%3Fx", 404, false, false},
		{"POST", "/v1/completions;x?y", 404, false, false},
		{"POST", "//v1/completions?x", 404, false, false},
		{"POST", "/v1/../v1/completions?x", 404, false, false},
		{"POST", "/v1/%63ompletions?x", 404, false, false},
		{"POST", "/sleep?/v1/completions", 404, false, false},
		{"POST", "?/v1/completions", 400, false, false},
		{"POST", "http://x/v1/completions?x", 400, false, false},
		{"POST", "/v1/completions?a\tb", 400, false, false},
		{"POST", "/v1/completions?a\x01b", 400, false, false},
		{"POST", "/v1/completions?a\xc3\xa9", 400, false, false},
		{"POST", "/v1/completions?a b", 400, false, false},
		{"POST", "/v1/completions?a#b", 400, false, false},
		{"POST", "/v1/completions?" + strings.Repeat("a", 33<<10), 431, false, false},
	} {
		conn := r.dialRaw()
		_ = conn.SetDeadline(time.Now().Add(2 * patience))
		body := forms(prompt, 2)[0].body()
		if tc.method == "GET" {
			body = ""
		}
		_, _ = fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", tc.method, tc.target, len(body), body)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Errorf("%.60q: %v", tc.target, err)
			continue
		}
		answer, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != tc.status {
			t.Errorf("%.60q: %d %s, want %d", tc.target, resp.StatusCode, answer, tc.status)
		}
		for _, leg := range []struct {
			name string
			at   *targets
			want bool
		}{{"P", p, tc.atP}, {"D", d, tc.atD}} {
			var want []string
			if leg.want {
				want = []string{tc.target}
			}
			if got := leg.at.take(); !slices.Equal(got, want) {
				t.Errorf("%.60q: %s got %q, want %q", tc.target, leg.name, got, want)
			}
		}
	}
	r.expectNothingHeld()
}

// The admin port's routes are paths too.
func TestQueryOnTheAdminPort(t *testing.T) {
	r := newRig(t, rigOptions{})
	for _, path := range []string{"/metrics?x=y", "/pools?", "/readyz?verbose"} {
		if body := r.adminText(path); body == "" || strings.Contains(body, "not found") {
			t.Errorf("%s: %q", path, body)
		}
	}
}
