package proxy_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"xpyd/proxy"
	"xpyd/router"
	"xpyd/sim"
)

func TestErrorEventBehindTheLastTokenIsNoSuccess(t *testing.T) {
	together(t)
	for _, c := range []call{streamed(true, 3, "[[D:error-done@4]]"), streamed(false, 3, "[[D:error-done@3]]")} {
		t.Run(c.name(), func(t *testing.T) {
			r := newRig(t, rigOptions{})
			a := r.call(c)
			r.expectBroken(c, a, "decode_failed")
			if !strings.Contains(a.body, `"finish_reason":"length"`) {
				t.Errorf("the choice had not finished: the test proves nothing\n%q", a.body)
			}
		})
	}
}

func TestDecodeDiesInsideAnEvent(t *testing.T) {
	together(t)
	for _, chat := range []bool{false, true} {
		for at := 2; at < 6; at++ {
			t.Run(fmt.Sprintf("chat=%v/event %d", chat, at), func(t *testing.T) {
				r := newRig(t, rigOptions{})
				c := streamed(chat, 9, fmt.Sprintf("[[D:cut@%d]]", at))
				a := r.call(c)
				r.expectBroken(c, a, "decode_failed")
				for _, ev := range strings.Split(strings.TrimSuffix(a.body, "\n\n"), "\n\n") {
					if data, ok := strings.CutPrefix(ev, "data: "); !ok || !json.Valid([]byte(data)) {
						t.Errorf("a part of an event was relayed: %q", ev)
					}
				}
				r.expectNothingHeld()
			})
		}
	}
}

// A usage event before the first token holds nothing that another round would repeat.
func TestUsageEventCommitsNothing(t *testing.T) {
	const usage = `data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":0,"total_tokens":1}}` + "\n\n"
	const rest = `data: {"choices":[{"index":0,"text":"abc","finish_reason":"stop"}]}` + "\n\ndata: [DONE]\n\n"
	calls := make(chan int, 2)
	calls <- 1
	calls <- 2
	d := newStub(t, func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, usage)
		if <-calls == 1 {
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
		_, _ = io.WriteString(w, rest)
	})
	r := newRig(t, rigOptions{router: d.asDecode})
	a := r.call(streamed(false, 3, ""))
	if a.err != nil || a.status != 200 || a.body != usage+rest {
		t.Fatalf("%d %v %q, want the second decode's stream and nothing of the first", a.status, a.err, a.body)
	}
}

func TestOversizeBodyIsRefusedBeforeItsEnd(t *testing.T) {
	together(t)
	for _, tc := range []struct{ name, head, body string }{
		{"announced", "Content-Length: 2000\r\n\r\n", "{"}, // the server waits for a first byte
		{"chunked", "Transfer-Encoding: chunked\r\n\r\n", "7d0\r\n" + strings.Repeat("a", 2000) + "\r\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, rigOptions{config: func(c *proxy.Config) { c.Limits.Body = 1000 }})
			conn := r.dialRaw()
			_, _ = io.WriteString(conn, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"+tc.head+tc.body)
			_ = conn.SetReadDeadline(time.Now().Add(3 * time.Second))
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil) // the body's end is still to come
			if err != nil {
				t.Fatalf("no answer while the body goes on: %v", err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode != 413 || !resp.Close {
				t.Errorf("status %d, close %v; want a closing 413", resp.StatusCode, resp.Close)
			}
		})
	}
}

func TestNothingElseOfTheClientsHeadReachesAnEngine(t *testing.T) {
	together(t)
	for _, keys := range [][]string{nil, {"client-key"}} {
		t.Run(fmt.Sprintf("%d keys", len(keys)), func(t *testing.T) {
			r := newRig(t, rigOptions{config: func(c *proxy.Config) { c.APIKeys = keys }})
			a := r.call(forms(prompt, 2)[0], "X-Request-Id", "head", "Authorization", "Bearer client-key", "User-Agent", "agent/1",
				"Traceparent", "00-1-2-01", "Tracestate", "a=b", "X-Forwarded-For", "10.9.8.7", "X-Forwarded-Host", "h", "X-Forwarded-Proto", "https",
				"Forwarded", "for=10.9.8.7", "X-Real-Ip", "10.9.8.7", "Via", "1.1 x", "Cookie", "a=b", "X-Data-Parallel-Rank", "1", "X-Api-Key", "k")
			if a.status != 200 {
				t.Fatalf("%d %s", a.status, a.body)
			}
			want := []string{"Accept-Encoding", "Content-Length", "Content-Type", "Traceparent", "Tracestate", "User-Agent", "X-Request-Id"}
			if keys == nil { // the engines' own keys, which the engines judge
				want = append([]string{"Accept-Encoding", "Authorization"}, want[1:]...)
			}
			for _, h := range []http.Header{r.record(r.prefill[0], "head").Header, r.record(r.decode[0], "head").Header} {
				var got []string
				for name := range h {
					got = append(got, name)
				}
				slices.Sort(got)
				if !slices.Equal(got, want) {
					t.Errorf("the engine got %v, want %v", got, want)
				}
				if h.Get("Accept-Encoding") != "identity" || h.Get("User-Agent") != "agent/1" {
					t.Errorf("header %v", h)
				}
			}
		})
	}
}

// The deadline under which one answer was written must not cut a later one.
func TestKeptConnectionOutlivesTheWriteDeadline(t *testing.T) {
	r := newRig(t, rigOptions{config: func(c *proxy.Config) { c.Timeouts.WriteStall = 100 * time.Millisecond }})
	conn := r.dialRaw()
	br := bufio.NewReader(conn)
	_ = conn.SetReadDeadline(time.Now().Add(2 * patience))
	answered := func(what string) {
		t.Helper()
		resp, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != 200 || resp.Close {
			t.Fatalf("%s: status %d, close %v, %v", what, resp.StatusCode, resp.Close, err)
		}
	}
	for _, c := range forms(prompt, 3)[:2] {
		_, _ = io.WriteString(conn, raw(c, "kept"))
		answered(c.name())
		// The deadline is moved at most once a second, so it may be a second later.
		over := time.Now().Add(1200 * time.Millisecond)
		r.await("past the deadline", func() bool { return time.Now().After(over) })
		_, _ = io.WriteString(conn, "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
		answered("livez behind " + c.name())
	}
}

// The deadline of writes counts from the beginning of an answer, however long after the request that is.
func TestAnswerThatBeginsLateIsWritten(t *testing.T) {
	together(t)
	for _, c := range forms(prompt, 3) {
		t.Run(c.name(), func(t *testing.T) {
			b := newBarrier(sim.PhaseDecodeReceived, 0)
			r := newRig(t, rigOptions{
				config: func(c *proxy.Config) { c.Timeouts.WriteStall = 2 * time.Second },
				engine: func(o *sim.Options) { o.Hook = b.hook },
			})
			t.Cleanup(b.open)
			got := r.start(c)
			r.reached(b)
			over := time.Now().Add(3500 * time.Millisecond)
			r.await("past the deadline of what was written with the request", func() bool { return time.Now().After(over) })
			b.open()
			r.expectWhole(c, r.soon(got))
		})
	}
}

// An engine that answers 200 and then fails counts as failed.
func TestDecodeIsJudgedByTheEndOfItsStream(t *testing.T) {
	b := newBarrier(sim.PhaseStreamEvent, 3)
	r := newRig(t, rigOptions{engine: func(o *sim.Options) { o.Hook = b.hook }})
	t.Cleanup(b.open)
	c := streamed(false, 9, "[[D:die@5]]")
	got := make(chan answer, 1)
	go func() { got <- r.call(c) }()
	<-b.reached
	d := r.decode[0].URL()
	if n := r.metric(`xpyd_in_flight{backend="` + d + `",role="decode"}`); n != 1 {
		t.Errorf("%v requests in flight on decode in the middle of the stream, want 1", n)
	}
	b.open()
	r.expectBroken(c, <-got, "decode_failed")
	r.expectNothingHeld()
	for outcome, want := range map[string]float64{"gateway": 1, "ok": 0} {
		if n := r.metric(`xpyd_leg_requests_total{backend="` + d + `",leg="decode",outcome="` + outcome + `"}`); n != want {
			t.Errorf("%v decode legs counted %s, want %v", n, outcome, want)
		}
	}
}

func TestRetryAfterOfABackendReachesTheClient(t *testing.T) {
	d := newStub(t, func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		w.Header().Set("Retry-After", "7")
		http.Error(w, `{"error":{"message":"too many requests","type":"rate_limit_error","param":null,"code":429}}`, http.StatusTooManyRequests)
	})
	r := newRig(t, rigOptions{router: d.asDecode})
	if a := r.call(forms(prompt, 3)[0]); a.status != 429 || a.header.Get("Retry-After") != "7" {
		t.Fatalf("%d %v %s", a.status, a.header, a.body)
	}
}

// More requests fail at once than may be retried at once, and hardly any request comes that would
// add to the budget. Their engine works again, so no request may fail because the budget is spent.
func TestRetriesOfAnOutageAreNotDeniedForEver(t *testing.T) {
	const requests = 150
	var failed sync.Map // ids that have had their first round
	d := newStub(t, func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		id, _, _ := strings.Cut(req.Header.Get("X-Request-Id"), "-")
		if _, again := failed.LoadOrStore(id, true); !again {
			http.Error(w, `{"error":{"message":"x","code":500}}`, http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"id":"cmpl-1","object":"text_completion","created":1,"model":"sim","choices":[{"index":0,"text":"abc","logprobs":null,"finish_reason":"stop"}],"usage":null}`)
	})
	d.releases = make(chan string, requests) // of the handles of the first rounds
	r := newRig(t, rigOptions{router: d.asDecode})
	got, began := make(chan answer, requests), time.Now()
	for i := range requests {
		go func() { got <- r.call(forms(prompt, 3)[0], "X-Request-Id", fmt.Sprint("retry", i)) }()
	}
	for range requests {
		if a := <-got; a.status != 200 {
			t.Fatalf("after %v: %d %s", time.Since(began), a.status, a.body)
		}
	}
	if took := time.Since(began); took > router.RetrySettle+patience {
		t.Errorf("took %v", took)
	}
}

func TestRetriesShareABudget(t *testing.T) {
	const requests, budget = 6, 3
	hold := make(chan struct{})
	open := sync.OnceFunc(func() { close(hold) })
	var failed sync.Map // ids that have had their first round
	var running, most atomic.Int32
	d := newStub(t, func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		id, _, _ := strings.Cut(req.Header.Get("X-Request-Id"), "-")
		if _, again := failed.LoadOrStore(id, true); !again {
			http.Error(w, `{"error":{"message":"x","code":500}}`, http.StatusInternalServerError)
			return
		}
		n := running.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		<-hold
		running.Add(-1)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"id":"cmpl-1","object":"text_completion","created":1,"model":"sim","choices":[{"index":0,"text":"abc","logprobs":null,"finish_reason":"stop"}],"usage":null}`)
	})
	r := newRig(t, rigOptions{router: d.asDecode})
	t.Cleanup(open)
	got := make(chan answer, requests)
	for i := range requests {
		go func() { got <- r.call(forms(prompt, 3)[0], "X-Request-Id", fmt.Sprint("retry", i)) }()
	}
	r.await("all first rounds failed", func() bool { return r.metric(`xpyd_leg_requests_total{backend="`+d.server.URL) >= requests })
	r.await("the budget in use", func() bool { return running.Load() >= budget })
	// Each back-off is shorter than 250 ms, so by then every request has asked for its share.
	over := time.Now().Add(600 * time.Millisecond)
	r.await("past the back-offs", func() bool { return time.Now().After(over) })
	if n := running.Load(); n != budget {
		t.Errorf("%d retries at once while none ends, the budget has %d", n, budget)
	}
	open()
	for range requests { // a request that found the budget spent has waited for a share
		if a := <-got; a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	if n := most.Load(); n > budget {
		t.Errorf("%d retries at once, the budget has %d", n, budget)
	}
}
