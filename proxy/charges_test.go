package proxy_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"xpyd/intake/limits"
	"xpyd/proxy"
	"xpyd/router"
	"xpyd/sim"
)

// payRig is a rig whose key alpha has many tokens, with engines of a short model length.
func payRig(t *testing.T, tokens int, engine func(o *sim.Options)) *rig {
	t.Helper()
	return newRig(t, rigOptions{
		config: func(c *proxy.Config) {
			c.Keys = []limits.Terms{holder("alpha", func(t *limits.Terms) { t.TokensPerMinute = tokens })}
		},
		engine: func(o *sim.Options) {
			if o.MaxModelLen = 4000; engine != nil {
				engine(o)
			}
		},
	})
}

// charged is what the key has paid for n requests in all.
func charged(r *rig, n int) float64 {
	r.t.Helper()
	r.await("the requests counted", func() bool { return r.metric("xpyd_key_requests_total") == float64(n) })
	return r.metric("xpyd_key_tokens_total")
}

// computed is how many tokens of prompts the prefill engines have computed.
func computed(r *rig) (n float64) {
	for _, e := range r.prefill {
		for _, rec := range e.Requests() {
			n += float64(rec.PromptTokens)
		}
	}
	return n
}

// A decode engine refuses an answer longer than its model. Prefill would not see that, so it must not have the request.
func TestTooManyTokensCostNoPrefill(t *testing.T) {
	r := payRig(t, 1_000_000, nil)
	long := strings.Repeat("many words ", 700)
	ids := "[" + strings.Repeat("7,", 2999) + "7]"
	text := `"messages":[{"role":"user","content":"` + long + `"}]`
	for i, q := range []struct{ path, body, want string }{
		{"/v1/completions", `{"model":"sim","prompt":"` + long + `","max_tokens":1000000}`, `"param":"max_tokens"`},
		{"/v1/completions", `{"model":"sim","prompt":` + ids + `,"max_tokens":1001}`, `"param":"input_tokens"`},
		{"/v1/chat/completions", `{"model":"sim",` + text + `,"max_completion_tokens":4001}`, "max_model_len"},
		{"/v1/messages", `{"model":"sim",` + text + `,"max_tokens":4001}`, "max_model_len"},
		{"/v1/responses", `{"model":"sim","input":"` + long + `","max_output_tokens":4001}`, "max_model_len"},
	} {
		a := r.post(q.path, q.body, as("alpha")...)
		if a.status != 400 || !strings.Contains(a.body, q.want) || a.header.Get("X-Xpyd-Reason") != "invalid_fields" {
			t.Errorf("%s: %d %v %s", q.path, a.status, a.header, a.body)
		}
		if n := charged(r, i+1); n != 0 {
			t.Errorf("%s: %v tokens charged for a refusal", q.path, n)
		}
	}
	if n := legs(r.prefill, "prefill"); len(n) != 0 {
		t.Errorf("%d prefills of requests that decode refuses", len(n))
	}
	fits := `{"model":"sim","prompt":` + ids + `,"max_tokens":1000,"stop":["a"]}`
	if a := r.post("/v1/completions", fits, as("alpha")...); a.status != 200 || a.header.Get("X-Xpyd-Path") != "disaggregated" {
		t.Errorf("an answer that just fits: %d %v %.300s", a.status, a.header, a.body)
	}
}

// What prefill has computed is paid, whatever decode says then.
func TestKeyPaysForAPrefillThatDecodeRefuses(t *testing.T) {
	r := payRig(t, 1_000_000, nil)
	long := strings.Repeat("many words ", 700)
	if a := r.post("/v1/completions", `{"model":"sim","prompt":"`+long+`","max_tokens":3999}`, as("alpha")...); a.status != 400 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if n, want := charged(r, 1), computed(r); n != want || n < 500 {
		t.Errorf("%v tokens charged, %v computed", n, want)
	}
}

// A client that asks for less time than its prompt takes has had the engines' time all the same.
func TestKeyPaysForTightDeadlines(t *testing.T) {
	together(t)
	long := strings.Repeat("many words ", 400)
	for name, q := range map[string]struct {
		prompt, path, body string
	}{
		"prefill": {long + "[[P:delay=10s]]", "/v1/completions", `"max_tokens":5`},
		"decode":  {long + "[[D:delay=10s]]", "/v1/completions", `"max_tokens":5`},
	} {
		t.Run(name, func(t *testing.T) {
			r := payRig(t, 1_000_000, nil)
			body := fmt.Sprintf(`{"model":"sim","prompt":%q,%s}`, q.prompt, q.body)
			if a := r.post(q.path, body, append(as("alpha"), "X-Request-Timeout", "0.5")...); a.status != 504 {
				t.Fatalf("%d %s", a.status, a.body)
			}
			if n := charged(r, 1); n < 600 || n > 3000 {
				t.Errorf("%v tokens charged for a prompt of about %d", n, len(q.prompt)/4)
			}
		})
	}
	t.Run("relayed", func(t *testing.T) {
		d := newStub(t, func(_ http.ResponseWriter, q *http.Request) {
			_, _ = io.Copy(io.Discard, q.Body)
			<-q.Context().Done()
		})
		r := newRig(t, rigOptions{prefill: -1, router: d.asDecode, config: func(c *proxy.Config) { c.Keys = []limits.Terms{holder("alpha", nil)} }})
		if a := r.post("/v1/embeddings", `{"model":"made-up","input":"`+long+`"}`, append(as("alpha"), "X-Request-Timeout", "0.3")...); a.status != 504 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		if n := charged(r, 1); n < 600 {
			t.Errorf("%v tokens charged", n)
		}
	})
}

// A decode engine that failed has made no tokens, however long the request then waits for another one.
func TestKeyPaysNothingForTheWaitAfterAFailure(t *testing.T) {
	d := newStub(t, func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		w.Header().Set("Retry-After", "20")
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	r := newRig(t, rigOptions{
		config: func(c *proxy.Config) { c.Keys = []limits.Terms{holder("alpha", nil)} },
		router: func(c *router.Config) {
			d.asDecode(c)
			c.Queue.Wait = time.Minute // as long as Retry-After is obeyed
		},
	})
	body := `{"model":"sim","prompt":"x","max_tokens":1000}`
	if a := r.post("/v1/completions", body, append(as("alpha"), "X-Request-Timeout", "1.5")...); a.status != 504 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if n, want := charged(r, 1), computed(r); n != want || n == 0 {
		t.Errorf("%v tokens charged, %v computed", n, want)
	}
}

// leaveAfter sends a request as alpha and leaves after a while.
func (r *rig) leaveAfter(d time.Duration, path, body string) {
	r.t.Helper()
	conn := r.dialRaw()
	_, _ = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer sk-alpha\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body)
	time.Sleep(d)
	_ = conn.Close()
}

// An answer that its client leaves is paid as far as D has made it. Nothing shows the tokens of a whole answer, or of a
// stream that nobody reads, but the time.
func TestKeyPaysForAnswersThatItLeaves(t *testing.T) {
	together(t)
	for name, q := range map[string]struct {
		body        string
		least, most float64
	}{
		"whole":  {`"prompt":"x","max_tokens":1000`, 30, 1100},
		"two":    {`"prompt":"x","max_tokens":500,"n":2`, 60, 1100},
		"bound":  {`"prompt":"x[[D:delay=30s]]","max_tokens":7`, 8, 60},
		"stream": {`"prompt":"x","max_tokens":1000,"stream":true`, 20, 1100},
	} {
		t.Run(name, func(t *testing.T) {
			r := payRig(t, 1_000_000, func(o *sim.Options) { o.TokenLatency = 10 * time.Millisecond })
			r.leaveAfter(1500*time.Millisecond, "/v1/completions", `{"model":"sim",`+q.body+`}`)
			n := charged(r, 1)
			r.await("idle", func() bool { return r.metric("xpyd_in_flight") == 0 })
			if n < q.least || n > q.most {
				t.Errorf("%v tokens charged for 1.5 s, want %v to %v", n, q.least, q.most)
			}
		})
	}
}

// What a key pays for an image, a sound or a video is not what those of other keys have cost.
func TestKeyPaysTheSameWhateverOthersSend(t *testing.T) {
	r := newRig(t, rigOptions{config: func(c *proxy.Config) {
		c.Keys = []limits.Terms{holder("alpha", nil), holder("beta", nil)}
	}})
	ask := func(key, kind, more string, header ...string) int {
		body := fmt.Sprintf(`{"model":"sim","max_tokens":1,"messages":[{"role":"user","content":[{"type":"text","text":"look%s"},{"type":%q,%q:{"url":"http://a/b","data":"","format":"wav"}}]}]}`,
			more, kind, kind)
		return r.post("/v1/chat/completions", body, append(as(key), header...)...).status
	}
	for range 60 { // of one token each, as these engines count
		if status := ask("beta", "image_url", ""); status != 200 {
			t.Fatal(status)
		}
	}
	before := 0.0
	for kind, want := range map[string]float64{"image_url": 1300, "input_audio": 800, "audio_url": 800, "video_url": 8000} {
		requests := r.metric(`xpyd_key_requests_total{key="alpha"`)
		if status := ask("alpha", kind, "[[P:delay=10s]]", "X-Request-Timeout", "0.3"); status != 504 {
			t.Fatal(status)
		}
		r.await("counted", func() bool { return r.metric(`xpyd_key_requests_total{key="alpha"`) > requests })
		now := r.metric(`xpyd_key_tokens_total{key="alpha"`)
		if n := now - before; n < want || n > want+100 {
			t.Errorf("%s: %v tokens charged, want %v and a few", kind, n, want)
		}
		before = now
	}
}

// A relayed request costs what its engine has counted.
func TestKeyPaysForRelayedRequestsByTheirUsage(t *testing.T) {
	together(t)
	form, formType := audioForm(t, true, "model", "sim")
	for name, q := range map[string]struct {
		path, body, mime, usage string
		filler                  int
		want                    float64
	}{
		"embeddings":    {"/v1/embeddings", `{"model":"sim","input":[1,1,1]}`, "application/json", `{"prompt_tokens":5000,"total_tokens":5000,"completion_tokens":0}`, 0, 5000},
		"large":         {"/v1/embeddings", `{"model":"sim","input":[1,1,1]}`, "application/json", `{"prompt_tokens":5000,"total_tokens":5000}`, 4 * answerLimit, 5000},
		"rerank":        {"/rerank", `{"model":"sim","query":"a","documents":["b"]}`, "application/json", `{"total_tokens":700}`, 0, 700},
		"transcription": {"/v1/audio/transcriptions", form, formType, `{"type":"duration","seconds":3600}`, 0, 90_000},
		"none":          {"/pooling", `{"model":"sim","input":"` + strings.Repeat("x", 400) + `"}`, "application/json", `null`, 0, 106},
	} {
		t.Run(name, func(t *testing.T) {
			d := newStub(t, func(w http.ResponseWriter, q0 *http.Request) {
				_, _ = io.Copy(io.Discard, q0.Body)
				w.Header().Set("Content-Type", "application/json")
				_, _ = fmt.Fprintf(w, `{"text":"%s","usage":%s}`, strings.Repeat("x", q.filler), q.usage)
			})
			r := newRig(t, rigOptions{prefill: -1, router: d.asDecode, config: func(c *proxy.Config) {
				smallAnswers(c)
				c.Keys = []limits.Terms{holder("alpha", func(t *limits.Terms) { t.TokensPerMinute = 1000 })}
			}})
			if a := r.post(q.path, q.body, append(as("alpha"), "Content-Type", q.mime)...); a.status != 200 || a.err != nil {
				t.Fatalf("%d %s %v", a.status, a.body, a.err)
			}
			if n := charged(r, 1); n != q.want {
				t.Errorf("%v tokens charged, want %v", n, q.want)
			}
			if a := r.post(q.path, q.body, append(as("alpha"), "Content-Type", q.mime)...); (a.status == 429) != (q.want >= 1000) {
				t.Errorf("another request: %d after %v of 1000 tokens a minute", a.status, q.want)
			}
		})
	}
}

// Requests that take no GPU take a core of the engine's server all the same.
func TestKeyLimitsOfRequestsWithoutTokens(t *testing.T) {
	entered, leave := make(chan struct{}, 8), make(chan struct{})
	d := newStub(t, func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		entered <- struct{}{}
		<-leave
		_, _ = io.WriteString(w, "{}")
	})
	r := newRig(t, rigOptions{prefill: -1, router: d.asDecode, config: func(c *proxy.Config) {
		c.Routes.Pass = []string{"GET /tokenizer_info"}
		c.Keys = []limits.Terms{
			holder("alpha", func(t *limits.Terms) { t.InFlight = 1 }),
			holder("beta", func(t *limits.Terms) { t.Models = []string{"other"} }),
		}
	}})
	held := make(chan answer, 1)
	go func() { held <- r.post("/tokenize", `{"model":"sim","prompt":"x"}`, as("alpha")...) }()
	<-entered
	for _, path := range []string{"/tokenize", "/detokenize", "/v1/messages/count_tokens", "/v1/chat/completions/render"} {
		if a := r.post(path, `{"model":"sim"}`, as("alpha")...); a.status != 429 {
			t.Errorf("a second request at a time, %s: %d %s", path, a.status, a.body)
		}
	}
	if a := r.send(http.MethodGet, "/tokenizer_info", "", as("beta")...); a.status != 404 || !strings.Contains(a.body, "model_not_found") {
		t.Errorf("what a key may not use, by GET: %d %s", a.status, a.body)
	}
	close(leave)
	if a := r.soon(held); a.status != 200 {
		t.Errorf("the first request: %d %s", a.status, a.body)
	}
	if a := r.send(http.MethodGet, "/tokenizer_info", "", as("alpha")...); a.status != 405 { // as the stub answers
		t.Errorf("by GET: %d %s", a.status, a.body)
	}
}
