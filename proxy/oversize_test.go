package proxy_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"xpyd/proxy"
	"xpyd/router"
)

const answerLimit = 64 << 10

func smallAnswers(c *proxy.Config) { c.Limits.Answer = answerLimit }

// expectNoBlame fails if any backend was ejected, or would have been.
func (r *rig) expectNoBlame() {
	r.t.Helper()
	if n := r.metric("xpyd_backend_ejections_total"); n != 0 || strings.Contains(r.logs.String(), "backend fails, but stays") {
		r.t.Errorf("%v ejections\n%s", n, r.logs)
	}
}

// An error that is larger than limits.answer is judged by its status. A fault of the client stays
// one.
func TestStatusCountsBeforeSize(t *testing.T) {
	together(t)
	for _, status := range []int{400, 404, 422, 500} {
		for _, leg := range []string{"prefill", "decode", "tokenize"} {
			t.Run(fmt.Sprintf("%d/%s", status, leg), func(t *testing.T) {
				var asked atomic.Int32
				refuse := func(_ *front, w http.ResponseWriter, _ *http.Request, _ []byte) bool {
					asked.Add(1)
					w.Header().Set("Content-Type", "application/json")
					w.WriteHeader(status)
					fill(w, 4*answerLimit)
					return true
				}
				r := newRig(t, rigOptions{prefill: 2, decode: 2, config: func(c *proxy.Config) {
					smallAnswers(c)
					c.DecodeOnly.Enabled = false
				}, router: func(c *router.Config) {
					pool := c.Decode
					if leg == "prefill" {
						pool = c.Prefill
					}
					for i := range pool {
						pool[i].URL = newFront(t, pool[i].URL, refuse).server.URL
					}
				}})
				const requests = 12
				for range requests {
					a := r.send(http.MethodPost, map[bool]string{true: "/tokenize", false: "/v1/completions"}[leg == "tokenize"], forms(prompt, 4)[0].body())
					if a.status != status {
						t.Fatalf("%d %s, want %d", a.status, a.body, status)
					}
					if status == 500 {
						return // how it is tried again is not for this test
					}
					if a.code() != "upstream_rejected" || !strings.Contains(a.body, "limits.answer") || a.header.Get("X-Should-Retry") != "false" {
						t.Fatalf("%s %v", a.body, a.header)
					}
				}
				if n := asked.Load(); n != requests {
					t.Errorf("%d requests to the engines for %d of clients", n, requests)
				}
				r.expectNoBlame()
			})
		}
	}
}

// A prefill answer that is too large is no engine's fault, and another engine would give the same.
func TestLargePrefillAnswerIsNobodysFault(t *testing.T) {
	const requests = 12
	r := newRig(t, rigOptions{prefill: 2, config: func(c *proxy.Config) {
		smallAnswers(c)
		c.DecodeOnly.Enabled = false
	}, router: func(c *router.Config) {
		for i := range c.Prefill {
			c.Prefill[i].URL = newFront(t, c.Prefill[i].URL, func(_ *front, w http.ResponseWriter, _ *http.Request, _ []byte) bool {
				fill(w, 4*answerLimit)
				return true
			}).server.URL
		}
	}})
	for range requests {
		a := r.call(forms(prompt, 4)[0])
		if a.status != 502 || a.code() != "prefill_failed" || !strings.Contains(a.body, "limits.answer") || a.header.Get("X-Should-Retry") != "false" {
			t.Fatalf("%d %s %v", a.status, a.body, a.header)
		}
	}
	if n := r.metric(`xpyd_kv_orphans_total{reason="unusable_handle"}`); n != requests {
		t.Errorf("%v orphans counted for %d requests", n, requests)
	}
	r.expectNoBlame()
}

// The head of an answer may be long. One that is longer than xpyd reads is no engine's fault, and another engine would
// give the same.
func TestLongHeadsOfAnswers(t *testing.T) {
	together(t)
	for _, leg := range []string{"prefill", "decode", "tokenize"} {
		for size, taken := range map[int]bool{30 << 10: true, 40 << 10: false} {
			t.Run(fmt.Sprintf("%s/%d", leg, size), func(t *testing.T) {
				var asked atomic.Int32
				pad := func(_ *front, w http.ResponseWriter, _ *http.Request, _ []byte) bool {
					asked.Add(1)
					w.Header().Set("X-Pad", strings.Repeat("a", size))
					return false
				}
				r := newRig(t, rigOptions{prefill: 2, decode: 2, config: func(c *proxy.Config) {
					c.DecodeOnly.Enabled = false
				}, router: func(c *router.Config) {
					pool := c.Decode
					if leg == "prefill" {
						pool = c.Prefill
					}
					for i := range pool {
						pool[i].URL = newFront(t, pool[i].URL, pad).server.URL
					}
				}})
				c := forms(prompt, 4)[0]
				path := map[bool]string{true: "/tokenize", false: "/v1/completions"}[leg == "tokenize"]
				const requests = 12
				for range requests {
					a := r.send(http.MethodPost, path, c.body())
					if taken != (a.status == 200) || !taken && (a.status != 502 || !strings.Contains(a.body, "larger than 32 KiB") || a.header.Get("X-Should-Retry") != "false") {
						t.Fatalf("%d %s %v", a.status, a.body, a.header)
					}
				}
				if n := asked.Load(); n != requests {
					t.Errorf("%d requests to the engines for %d of clients", n, requests)
				}
				r.expectNoBlame()
			})
		}
	}
}

// The client wants the ids of a prompt of many tokens. P's answer holds none of them.
func TestLongPromptWithItsTokenIDs(t *testing.T) {
	r := newRig(t, rigOptions{prefill: 2, config: smallAnswers})
	for _, more := range []string{`,"return_token_ids":true`, `,"echo":true`} {
		c := call{prompt: strings.Repeat("word ", answerLimit/4), tokens: 2, more: more}
		a := r.call(c)
		if a.status != 200 || a.err != nil || a.header.Get("X-Xpyd-Path") != "disaggregated" || len(a.body) < answerLimit {
			t.Errorf("%s: %d %.300s, %d bytes, %v %v", more, a.status, a.body, len(a.body), a.header, a.err)
		}
	}
	if n := r.metric(`xpyd_kv_handles_issued_total`); n != 2 {
		t.Errorf("%v prefills", n)
	}
	r.expectNothingHeld()
}

// An event that is too large ends the request, without another round and without blame.
func TestEventLargerThanLimitIsNobodysFault(t *testing.T) {
	together(t)
	for _, first := range []bool{true, false} {
		t.Run(fmt.Sprintf("first=%v", first), func(t *testing.T) {
			const requests = 8
			var asked atomic.Int32
			d := newStub(t, func(w http.ResponseWriter, q *http.Request) {
				_, _ = io.Copy(io.Discard, q.Body)
				asked.Add(1)
				w.Header().Set("Content-Type", "text/event-stream")
				if !first {
					_, _ = io.WriteString(w, `data: {"choices":[{"index":0,"text":"abc","finish_reason":null}]}`+"\n\n")
				}
				_, _ = io.WriteString(w, `data: {"choices":[{"index":0,"text":"`)
				fill(w, 4*answerLimit)
			})
			r := newRig(t, rigOptions{prefill: -1, config: smallAnswers, router: d.asDecode, before: func(r *rig) { r.server.BreakAtOnce() }})
			for range requests {
				a := r.call(forms(prompt, 4)[1])
				if first && a.status != 502 || a.code() != "decode_failed" || !strings.Contains(a.body, "limits.answer") {
					t.Fatalf("%d %s %v", a.status, a.body, a.err)
				}
			}
			if n := asked.Load(); n != requests {
				t.Errorf("%d requests to the engine for %d of clients", n, requests)
			}
			r.expectNoBlame()
		})
	}
}

// An answer of /tokenize may have any size: what is not held is passed on as it comes.
func TestLargeTokenizeIsRelayed(t *testing.T) {
	together(t)
	for _, framing := range []string{"length", "chunks"} {
		t.Run(framing, func(t *testing.T) {
			body := `{"tokens":[` + strings.Repeat("1,", 20*answerLimit) + `1]}`
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				if q.Method == http.MethodGet {
					_, _ = io.WriteString(w, `{"object":"list","data":[{"id":"sim","object":"model"}],"version":"0.32.0"}`)
					return
				}
				if framing == "length" {
					w.Header().Set("Content-Length", fmt.Sprint(len(body)))
				}
				_, _ = io.WriteString(w, body)
			}))
			t.Cleanup(s.Close)
			r := newRig(t, rigOptions{prefill: -1, config: smallAnswers, router: func(c *router.Config) { c.Decode = router.MustEntries(s.URL) }})
			for range 9 {
				a := r.post("/tokenize", `{"prompt":"x"}`)
				if a.status != 200 || a.err != nil || a.body != body || a.header.Get("Content-Type") != "application/json" {
					t.Fatalf("%d, %d of %d bytes, %v %v", a.status, len(a.body), len(body), a.header, a.err)
				}
			}
			r.expectNoBlame()
		})
	}
}

// If such an answer breaks off, it breaks off for the client too, without a clean end.
func TestLargeTokenizeThatBreaksOff(t *testing.T) {
	for _, framing := range []string{"Content-Length: 999999", "Transfer-Encoding: chunked"} {
		url := rawDecode(t, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"+framing+"\r\n\r\n"+
			map[bool]string{true: "fffff\r\n"}[strings.HasPrefix(framing, "T")]+strings.Repeat("1", 4*answerLimit))
		r := newRig(t, rigOptions{prefill: -1, config: smallAnswers, router: func(c *router.Config) { c.Decode = router.MustEntries(url) }})
		if a := r.post("/tokenize", `{"prompt":"x"}`); a.err == nil {
			t.Errorf("%s: %d, %d bytes and a clean end", framing, a.status, len(a.body))
		}
	}
}

func TestModelNameOfAnySizeIsOurs(t *testing.T) {
	r := newRig(t, rigOptions{})
	a := r.post("/v1/completions", `{"prompt":"a","model":"`+strings.Repeat("m", 9<<20)+`"}`)
	if a.status != 400 || !strings.Contains(a.body, `"param":"model"`) || len(a.body) > 1000 {
		t.Fatalf("%d %.300s", a.status, a.body)
	}
	if n := len(r.prefill[0].Requests()) + len(r.decode[0].Requests()); n != 0 {
		t.Errorf("engines were asked %d times", n)
	}
}

// A success of another status than 200 is not held beyond limits.answer. It must not become an empty one.
func TestLargeRelayedSuccessIsNotEmptied(t *testing.T) {
	engine := newStub(t, func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		w.WriteHeader(http.StatusCreated)
		fill(w, 4*answerLimit)
	})
	r := newRig(t, rigOptions{prefill: -1, config: smallAnswers, router: func(c *router.Config) { c.Decode = router.MustEntries(engine.server.URL) }})
	if a := r.post("/v1/embeddings", `{"input":"x"}`); a.status != 502 || a.code() != "decode_failed" || !strings.Contains(a.body, "limits.answer") {
		t.Errorf("%d with %d bytes: %.200s", a.status, len(a.body), a.body)
	}
	r.expectNoBlame()
	r.expectNothingHeld()
}
