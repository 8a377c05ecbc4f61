package proxy_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"xpyd/proxy"
)

// Only an engine that has taken the request and refuses it by itself tells prefill to free the
// blocks. The bodies are recorded from vLLM.
func TestAnswersToAReleaseThatFreeNothing(t *testing.T) {
	together(t)
	vllm := func(kind, code string) string {
		return `{"error":{"message":"max_tokens must be at least 1, got 0.","type":"` + kind + `","param":"max_tokens","code":` + code + `}}`
	}
	for _, tc := range []struct {
		name, body string
		status     int
		end        string
	}{
		{"the engine's own refusal", vllm("BadRequestError", "400"), 400, "released"},
		{"a model that it does not serve", vllm("NotFoundError", "404"), 404, "released"},
		{"the request model's refusal, which the engine never sees", vllm("Bad Request", "400"), 400, "lost"},
		{"a page of something in between", "<html><h1>400 Bad Request</h1></html>", 400, "lost"},
		{"no such route", `{"detail":"Not Found"}`, 404, "lost"},
		{"no key", vllm("Unauthorized", "401"), 401, "lost"},
		{"forbidden", vllm("BadRequestError", "403"), 403, "lost"},
		{"no such method", `{"detail":"Method Not Allowed"}`, 405, "lost"},
		{"too large", vllm("BadRequestError", "413"), 413, "lost"},
		{"too many", vllm("RateLimitError", "429"), 429, "lost"},
		{"it has answered", `{"choices":[]}`, 200, "lost"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			answer := func(w http.ResponseWriter, req *http.Request, status int, body string) {
				_, _ = io.Copy(io.Discard, req.Body)
				w.WriteHeader(status)
				_, _ = io.WriteString(w, body)
			}
			d := newStub(t, func(w http.ResponseWriter, req *http.Request) {
				answer(w, req, http.StatusBadRequest, vllm("BadRequestError", "400")) // the handle is left over
			})
			d.wrap(func(usual http.HandlerFunc, w http.ResponseWriter, req *http.Request) {
				if strings.HasSuffix(req.Header.Get("X-Request-Id"), "-release") {
					answer(w, req, tc.status, tc.body)
					return
				}
				usual(w, req)
			})
			// Releases end 2 s before the lease.
			left := map[string]time.Duration{"released": 2 * time.Second, "lost": 3 * time.Second}[tc.end]
			r := newRig(t, rigOptions{router: d.asDecode, config: func(c *proxy.Config) {
				c.KV.Release, c.KV.Lease, c.KV.LeaseMargin = "reject", 2*time.Second+left, 50*time.Millisecond
			}})
			if a := r.call(forms(prompt, 4)[0]); a.status != 400 {
				t.Fatalf("%d %s", a.status, a.body)
			}
			r.await("ended", func() bool { return r.metric("xpyd_kv_handles_total") == 1 })
			if n := r.metric(`xpyd_kv_handles_total{end="` + tc.end + `"}`); n != 1 {
				t.Errorf("handles: %v %s, want 1\n%s", n, tc.end, r.logs)
			}
		})
	}
}
