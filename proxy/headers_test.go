package proxy_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"xpyd/proxy"
	"xpyd/router"
	"xpyd/sim"
)

// The fields of headers.pass reach both legs, and what is relayed, as the client wrote them.
func TestHeadersThatPass(t *testing.T) {
	together(t)
	fields := []string{"x-session-id", "abc\t\xe9 d", "X-VLLM-PRIORITY", "-5", "X-data-parallel-rank", "3"}
	for _, tc := range []struct {
		name string
		pass []string // nil: the default
		want http.Header
	}{
		{"default", nil, http.Header{"X-Session-Id": {"abc\t\xe9 d"}, "X-Vllm-Priority": {"-5"}}},
		{"rank", []string{"X-data-parallel-rank"}, http.Header{"X-Data-Parallel-Rank": {"3"}}},
		{"none", []string{}, http.Header{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, rigOptions{config: func(c *proxy.Config) {
				if tc.pass != nil {
					c.Headers.Pass = tc.pass
				}
			}})
			for i, c := range forms(prompt, 2) {
				id := fmt.Sprint("form", i)
				r.expectWhole(c, r.call(c, append(slices.Clone(fields), "X-Request-Id", id)...))
				r.expectPassed(r.prefill[0], id, tc.want)
				r.expectPassed(r.decode[0], id, tc.want)
			}
		})
	}
}

// expectPassed fails unless the engine's first request of this id had exactly these of the fields
// that may pass.
func (r *rig) expectPassed(e *sim.Engine, id string, want http.Header) {
	r.t.Helper()
	got := r.record(e, id).Header
	for _, name := range []string{"X-Session-Id", "X-Vllm-Priority", "X-Data-Parallel-Rank"} {
		if !slices.Equal(got[name], want[name]) {
			r.t.Errorf("%s got %s: %q, want %q", e.Name(), name, got[name], want[name])
		}
	}
}

// The engine gets the first of two lines, which is the one that it would have read itself. What
// Connection names is for this connection only.
func TestHeadersThatPassOnce(t *testing.T) {
	r := newRig(t, rigOptions{})
	for id, tc := range map[string]struct {
		lines string
		want  http.Header
	}{
		"twice":     {"X-Session-ID: a\r\nX-Session-ID: b\r\n", http.Header{"X-Session-Id": {"a"}}},
		"named":     {"X-Session-ID: a\r\nX-Vllm-Priority: 1\r\nConnection: te, x-SESSION-id\r\nConnection: keep-alive\r\n", http.Header{"X-Vllm-Priority": {"1"}}},
		"lookalike": {"X_Session_ID: a\r\nX-Session-IDs: b\r\nX-Vllm-Priority:\r\n", http.Header{}},
	} {
		conn := r.dialRaw()
		_ = conn.SetDeadline(time.Now().Add(2 * patience))
		_, _ = io.WriteString(conn, strings.Replace(raw(forms(prompt, 2)[0], id), "Host: x\r\n", "Host: x\r\n"+tc.lines, 1))
		if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || resp.StatusCode != 200 {
			t.Fatalf("%s: %v %v", id, resp, err)
		}
		r.expectPassed(r.prefill[0], id, tc.want)
		r.expectPassed(r.decode[0], id, tc.want)
	}
	for _, value := range []string{"a\x01b", "a\rb", "a\x7fb", "a\r\n b"} {
		conn := r.dialRaw()
		_ = conn.SetDeadline(time.Now().Add(2 * patience))
		_, _ = io.WriteString(conn, strings.Replace(raw(forms(prompt, 2)[0], "bad"), "Host: x\r\n", "Host: x\r\nX-Session-ID: "+value+"\r\n", 1))
		if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || resp.StatusCode != 400 {
			t.Errorf("%q: %v %v, want 400", value, resp, err)
		}
	}
}

// A request that is relayed unchanged has them as well.
func TestHeadersPassWithWhatIsRelayed(t *testing.T) {
	var d *targets
	r := newRig(t, rigOptions{router: func(c *router.Config) {
		d = newTargets(t, c.Decode[0].URL)
		c.Decode = router.MustEntries(d.server.URL)
	}})
	if a := r.post("/tokenize", `{"model":"sim","prompt":"x"}`, "X-Session-ID", "a", "X-Data-Parallel-Rank", "1"); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if h := d.last(); h.Get("X-Session-Id") != "a" || h.Get("X-Data-Parallel-Rank") != "" {
		t.Errorf("the engine got %v", h)
	}
}
