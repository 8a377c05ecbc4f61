package proxy_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"xpyd/proxy"
)

// The root of the admin port lists its routes, and each of them is there.
func TestAdminIndex(t *testing.T) {
	for _, pprof := range []bool{false, true} {
		r := newRig(t, rigOptions{config: func(c *proxy.Config) { c.Pprof = pprof }})
		ask := func(method, path string) *http.Response {
			w := httptest.NewRecorder()
			q := httptest.NewRequest(method, path, nil)
			q.Host = "localhost" // see TestPagesAreForAddressesOnly
			r.admin().ServeHTTP(w, q)
			return w.Result()
		}
		text := r.adminText("/")
		listed := 0
		for line := range strings.Lines(text) {
			if !strings.HasPrefix(line, "/") {
				continue
			}
			listed++
			path, about, _ := strings.Cut(strings.TrimSpace(line), " ")
			if about == "" {
				t.Errorf("nothing about %s", path)
			}
			if got := ask(http.MethodHead, path).StatusCode; got != http.StatusOK {
				t.Errorf("%s: %d", path, got)
			}
		}
		if want := map[bool]int{false: 12, true: 13}[pprof]; listed != want {
			t.Errorf("%d routes, want %d:\n%s", listed, want, text)
		}
		for _, tc := range []struct {
			method, path string
			want         int
		}{
			{"GET", "/?x=1", 200}, {"HEAD", "/", 200}, {"POST", "/", 405}, {"DELETE", "/", 405}, {"GET", "/nowhere", 404},
		} {
			got := ask(tc.method, tc.path)
			if got.StatusCode != tc.want || tc.want == 405 && got.Header.Get("Allow") != "GET, HEAD" {
				t.Errorf("%s %s: %d, Allow %q", tc.method, tc.path, got.StatusCode, got.Header.Get("Allow"))
			}
		}
		if got := ask("GET", "/").Header.Get("Content-Type"); got != "text/plain; charset=utf-8" {
			t.Errorf("content type %q", got)
		}
	}
}
