package proxy_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"xpyd/router"
)

// lastWords are the answers that an engine may give as it dies.
var lastWords = map[string]func(w http.ResponseWriter){
	"500": func(w http.ResponseWriter) {
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.WriteString(w, `{"error":{"message":"EngineCore encountered an issue","type":"InternalServerError","code":500}}`)
	},
	"a part": func(w http.ResponseWriter) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, `{"id":`)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	},
	"an event": func(w http.ResponseWriter) {
		_, _ = io.WriteString(w, "data: {\"error\":{\"message\":\"EngineCore encountered an issue\",\"code\":500}}\n\n")
	},
}

// doomed is in front of an engine whose core dies of a prompt that holds "deadly". As vLLM's server
// does, it has an answer of its own to that request, 500 to all that follow, and 503 to checks.
func doomed(t *testing.T, engine string, died *atomic.Int32, last func(w http.ResponseWriter)) (url string) {
	t.Helper()
	var dead atomic.Bool
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		if strings.Contains(string(body), "deadly") && dead.CompareAndSwap(false, true) {
			died.Add(1)
			last(w)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		switch {
		case dead.Load() && q.URL.Path == "/health":
			w.WriteHeader(http.StatusServiceUnavailable)
		case dead.Load():
			lastWords["500"](w)
		default:
			status, answer := ask(engine, q.Method, q.URL.Path, body, q.Header)
			w.WriteHeader(status)
			_, _ = w.Write(answer)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// An engine whose core has died answers before it ends. That counts like breaking off, so the
// request goes to no third engine.
func TestEnginesThatAnswerAsTheyDieAreTwoAtMost(t *testing.T) {
	together(t)
	for _, pools := range [][2]int{{3, 3}, {1, 6}, {-1, 6}} {
		for name, last := range lastWords {
			t.Run(fmt.Sprintf("%d prefill, %d decode/%s", pools[0], pools[1], name), func(t *testing.T) {
				var died atomic.Int32
				patient := func(r *rig) { r.server.WaitForSuspects() }
				r := newRig(t, rigOptions{prefill: pools[0], decode: pools[1], before: patient, router: func(c *router.Config) {
					inTurn(c)
					for _, pool := range [][]router.Entry{c.Prefill, c.Decode} {
						for i := range pool {
							pool[i].URL = doomed(t, pool[i].URL, &died, last)
						}
					}
				}})
				a := r.call(forms("deadly "+prompt, 4)[0])
				if a.status != 502 || a.header.Get("X-Should-Retry") != "false" {
					t.Errorf("%d %s %v", a.status, a.body, a.header)
				}
				if n := died.Load(); n != 2 {
					t.Errorf("%d engines died of one request, want 2", n)
				}
			})
		}
	}
}

// A request that comes when two engines are already dead did not kill them, so it is served.
func TestDeadEnginesMakeNoOtherRequestDeadly(t *testing.T) {
	var died atomic.Int32
	patient := func(r *rig) { r.server.WaitForSuspects() }
	r := newRig(t, rigOptions{prefill: 3, decode: 1, before: patient, router: func(c *router.Config) {
		inTurn(c)
		c.Health.Fall = 1000 // requests go on to meet the dead ones
		for i := range c.Prefill {
			c.Prefill[i].URL = doomed(t, c.Prefill[i].URL, &died, lastWords["500"])
		}
	}})
	if a := r.call(forms("deadly "+prompt, 4)[0]); a.status != 502 || died.Load() != 2 {
		t.Fatalf("%d, and %d engines died, want 502 and 2: the test proves nothing", a.status, died.Load())
	}
	c := forms(prompt, 4)[0]
	for range 12 {
		r.expectWhole(c, r.call(c))
	}
}
