package proxy_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"xpyd/proxy"
	"xpyd/router"
)

// longAnswer is an answer of n bytes of text.
func longAnswer(size int) string {
	return `{"choices":[{"index":0,"text":"` + strings.Repeat("x", size) + `","finish_reason":"stop"}]}`
}

// answering makes a decode engine that gives each request the same answer the only one.
func answering(t *testing.T, body string) func(c *router.Config) {
	url := rawDecode(t, fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body))
	return func(c *router.Config) { c.Decode = router.MustEntries(url) }
}

// lazy sends a request and reads only that its answer has begun.
func (r *rig) lazy(request string) *bufio.Reader {
	r.t.Helper()
	conn := r.dialRaw()
	_ = conn.SetReadBuffer(64 << 10)
	_ = conn.SetDeadline(time.Now().Add(6 * patience))
	_, _ = io.WriteString(conn, request)
	in := bufio.NewReader(conn)
	if _, err := in.Peek(1); err != nil {
		r.t.Fatalf("no answer: %v", err)
	}
	return in
}

// expectBody reads an answer to its end.
func expectBody(t *testing.T, in *bufio.Reader, want string) {
	t.Helper()
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Errorf("no answer: %v", err)
		return
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 || string(b) != want {
		t.Errorf("status %d, %v, %d bytes, want %d", resp.StatusCode, err, len(b), len(want))
	}
}

func TestAnswersThatNobodyReadsAreBounded(t *testing.T) {
	const clients, size, limit = 12, 2 << 20, 6 << 20
	body := longAnswer(size)
	d := answering(t, body)
	r := newRig(t, rigOptions{prefill: -1, router: d,
		config: func(c *proxy.Config) { c.Limits.AnswerBudget, c.Limits.ClientShare = limit, 1 }})
	var answers []*bufio.Reader
	for i := range clients {
		answers = append(answers, r.lazy(raw(forms("hello", 4)[0], fmt.Sprint("lazy", i))))
	}
	held := func() float64 { return r.metric("xpyd_answer_bytes_buffered") }
	if n := held(); n < size || n > limit {
		t.Errorf("%v bytes are held, want %d at least and %d at most", n, size, limit)
	}
	for _, in := range answers {
		expectBody(t, in, body)
	}
	r.await("uncharged", func() bool { return held() == 0 })
}

// Decode is done, so a client that reads slowly holds no place on it.
func TestSlowReaderOfAWholeAnswerHoldsNoDecodeSlot(t *testing.T) {
	body := longAnswer(2 << 20)
	d := answering(t, body)
	r := newRig(t, rigOptions{prefill: -1, router: func(c *router.Config) {
		d(c)
		c.DecodeMaxInFlight = 1
	}})
	in := r.lazy(raw(forms("hello", 4)[0], "slow"))
	if a := r.call(forms("hello", 4)[0]); a.status != 200 || a.body != body {
		t.Errorf("another client: status %d, code %s", a.status, a.code())
	}
	expectBody(t, in, body)
}

// fasthttp gives all of an answer timeouts.write_stall, and a second.
func TestSlowReaderOfTokensIsServed(t *testing.T) {
	together(t)
	limit := int(proxy.DefaultConfig().Limits.Answer)
	for name, size := range map[string]int{"held": limit, "passed on": limit + 1} {
		t.Run(name, func(t *testing.T) {
			body := `{"tokens":"` + strings.Repeat("7", size-13) + `"}` // takes twice that time to read
			d := answering(t, body)
			r := newRig(t, rigOptions{prefill: -1, router: d,
				config: func(c *proxy.Config) { c.Timeouts.WriteStall = 2500 * time.Millisecond }})
			in := r.lazy("POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 14\r\n\r\n" + `{"prompt":"x"}`)
			resp, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			for buf := make([]byte, 64<<10); err == nil; time.Sleep(40 * time.Millisecond) {
				var n int
				n, err = resp.Body.Read(buf)
				got.Write(buf[:n])
			}
			if err != io.EOF || got.String() != body {
				t.Errorf("cut off after %d of %d bytes: %v", got.Len(), len(body), err)
			}
			r.await("uncharged", func() bool { return r.metric("xpyd_answer_bytes_buffered") == 0 })
		})
	}
}

// An answer that may not be held is passed on as it comes.
func TestTokensBeyondTheAnswerBudget(t *testing.T) {
	body := `{"tokens":[` + strings.Repeat("1,", 1<<18) + `1]}`
	d := answering(t, body)
	r := newRig(t, rigOptions{prefill: -1, router: d,
		config: func(c *proxy.Config) { c.Limits.AnswerBudget = 1 << 10 }})
	if a := r.post("/tokenize", `{"prompt":"x"}`); a.status != 200 || a.body != body {
		t.Errorf("%d, %d of %d bytes: %.200s", a.status, len(a.body), len(body), a.body)
	}
	if n := r.metric("xpyd_backend_ejections_total"); n != 0 {
		t.Errorf("%v ejections", n)
	}
}

// Only the end of the connection ends this answer, so it can be held or refused. The refusal says
// that the proxy has no room, so no engine is blamed and no other is asked.
func TestAnswerWithoutALengthBeyondTheBudget(t *testing.T) {
	var asked atomic.Int32
	d := newStub(t, func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"+longAnswer(200<<10))
		_ = conn.Close()
	})
	r := newRig(t, rigOptions{prefill: -1, config: func(c *proxy.Config) { c.Limits.AnswerBudget = 1 << 10 },
		router: func(c *router.Config) { c.Decode = router.MustEntries(d.server.URL) }})
	if a := r.call(forms("hello", 4)[0]); a.status != 503 || a.code() != "overloaded" || a.header.Get("Retry-After") == "" {
		t.Errorf("%d %.200s", a.status, a.body)
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("the engine was asked %d times", n)
	}
	r.expectNoBlame()
}

// A client reads a large answer of a route that takes no GPU time. The engine has no slot taken by it, but
// is not drained before its last byte has come.
func TestEngineIsNotDrainedInsideAnAnswer(t *testing.T) {
	body := longAnswer(8 << 20)
	d := answering(t, body)
	var pools router.Config
	r := newRig(t, rigOptions{prefill: -1, config: smallAnswers, router: func(c *router.Config) { d(c); pools = *c }})
	in := r.lazy("POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 14\r\n\r\n" + `{"prompt":"x"}`)
	url := pools.Decode[0].URL
	pools.Decode = router.MustEntries(url + " state=drain")
	if err := r.server.Reload(pools); err != nil {
		t.Fatal(err)
	}
	if b := r.backend(url); b.Drained || b.InFlight != 0 {
		t.Errorf("inside the answer: drained %v, %d in flight", b.Drained, b.InFlight)
	}
	expectBody(t, in, body)
	r.await("drained", func() bool { return r.backend(url).Drained })
}

// An engine that breaks off inside large answers fails, also on a route whose answers hold no slot of it.
func TestEngineThatBreaksOffInsideLargeAnswersIsEjected(t *testing.T) {
	url := rawDecode(t, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9000000\r\n\r\n"+longAnswer(2<<20))
	r := newRig(t, rigOptions{prefill: -1, decode: 2, config: smallAnswers, router: func(c *router.Config) { inTurn(c); c.Decode[1].URL = url }})
	ejected := func() bool { return r.metric(`xpyd_backend_ejections_total{backend="`+url) == 1 }
	r.until(ejected, func(int) { r.post("/tokenize", `{"prompt":"x"}`) })
	if n := r.metric(`xpyd_relayed_requests_total{outcome="broken",route="/tokenize"}`); n == 0 {
		t.Errorf("no answer broke off\n%s", r.metricsText())
	}
}

// A process that ends does not wait for a client that reads nothing.
func TestDrainCutsReadersThatStandStill(t *testing.T) {
	body := longAnswer(4 << 20)
	d := answering(t, body)
	r := newRig(t, rigOptions{prefill: -1, router: d,
		config: func(c *proxy.Config) { c.Timeouts.Drain = 20 * time.Millisecond }})
	r.lazy(raw(forms("hello", 4)[0], "still"))
	if err := r.server.Shutdown(); err != nil {
		t.Errorf("shutdown: %v", err)
	}
}

// An engine's refusal may repeat what the client sent, so it is held and charged like an answer.
func TestLargeRefusals(t *testing.T) {
	text := `{"error":{"message":"` + strings.Repeat("x", 2<<20) + `","code":400}}`
	url := rawDecode(t, fmt.Sprintf("HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(text), text))
	for _, path := range []string{"/v1/completions", "/tokenize"} {
		for _, budget := range []int64{1 << 10, 8 << 20} {
			t.Run(fmt.Sprint(path, budget), func(t *testing.T) {
				r := newRig(t, rigOptions{prefill: -1, router: func(c *router.Config) { c.Decode = router.MustEntries(url) },
					config: func(c *proxy.Config) { c.Limits.AnswerBudget = budget }})
				a := r.post(path, forms("hello", 4)[0].body(), "X-Request-Id", "refused")
				if a.status != 400 || a.header.Get("X-Request-Id") != "refused" || a.header.Get("Content-Type") != "application/json" {
					t.Errorf("status %d, %v", a.status, a.header)
				}
				if whole := budget > 1<<20; whole != (a.body == text) || !whole && a.code() != "upstream_rejected" {
					t.Errorf("%d bytes, %.200s", len(a.body), a.body)
				}
				r.await("uncharged", func() bool { return r.metric("xpyd_answer_bytes_buffered") == 0 })
			})
		}
	}
}
