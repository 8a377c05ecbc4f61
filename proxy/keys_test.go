package proxy_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"xpyd/intake/limits"
	"xpyd/proxy"
	"xpyd/sim"
)

// holder makes a named key, whose clear text is "sk-" and the name.
func holder(name string, change func(*limits.Terms)) limits.Terms {
	t := limits.Terms{Name: name, Hashes: [][sha256.Size]byte{sha256.Sum256([]byte("sk-" + name))}}
	if change != nil {
		change(&t)
	}
	return t
}

// as returns the header of a key.
func as(name string) []string { return []string{"Authorization", "Bearer sk-" + name} }

func keyRig(t *testing.T, keys ...limits.Terms) *rig {
	t.Helper()
	return newRig(t, rigOptions{config: func(c *proxy.Config) { c.Keys = keys }})
}

func TestKeyRequestsPerMinute(t *testing.T) {
	r := keyRig(t, holder("alpha", func(t *limits.Terms) { t.RequestsPerMinute = 2 }), holder("beta", nil))
	c := forms(prompt, 3)[0]
	for left := range 2 {
		a := r.call(c, as("alpha")...)
		r.expectWhole(c, a)
		if a.header.Get("X-Ratelimit-Limit-Requests") != "2" || a.header.Get("X-Ratelimit-Remaining-Requests") != strconv.Itoa(1-left) ||
			a.header.Get("X-Ratelimit-Reset-Requests") == "" || a.header.Get("X-Ratelimit-Limit-Tokens") != "" {
			t.Errorf("headers of request %d: %v", left+1, a.header)
		}
	}
	a := r.call(c, as("alpha")...)
	wait, err := strconv.Atoi(a.header.Get("Retry-After"))
	if a.status != 429 || a.code() != "rate_limit_exceeded" || err != nil || wait < 1 || wait > 30 ||
		a.header.Get("X-Ratelimit-Remaining-Requests") != "0" || a.header.Get("X-Should-Retry") != "" {
		t.Fatalf("a third of two: %d %v %s", a.status, a.header, a.body)
	}
	if a := r.post("/v1/embeddings", `{"model":"sim","input":"x"}`, as("alpha")...); a.status != 429 || a.header.Get("X-Ratelimit-Remaining-Requests") != "0" {
		t.Errorf("a relayed request: %d %v", a.status, a.header)
	}
	if a := r.post("/tokenize", `{"model":"sim","prompt":"x"}`, as("alpha")...); a.status != 429 {
		t.Errorf("a request that takes no GPU: %d %s", a.status, a.body)
	}
	b := r.call(c, as("beta")...)
	r.expectWhole(c, b)
	if b.header.Get("X-Ratelimit-Limit-Requests") != "" {
		t.Errorf("a key without limits is told some: %v", b.header)
	}
	if n := r.metric(`xpyd_key_refused_total{key="alpha",limit="requests"}`); n != 3 {
		t.Errorf("%v refusals counted, want 3", n)
	}
}

// The tokens of the answer count too, by the engine's usage or else by the events.
func TestKeyTokensPerMinute(t *testing.T) {
	together(t)
	for _, c := range append(forms(prompt, 60), call{stream: true, prompt: prompt, tokens: 60, more: `,"stream_options":{"include_usage":true}`}) {
		t.Run(c.name()+c.more, func(t *testing.T) {
			r := keyRig(t, holder("alpha", func(t *limits.Terms) { t.TokensPerMinute = 200 })) // few come back meanwhile
			a := r.call(c, as("alpha")...)
			if a.status != 200 {
				t.Fatalf("%d %s", a.status, a.body)
			}
			r.await("the request counted", func() bool { return r.metric("xpyd_key_requests_total") == 1 })
			prompts := r.metric(`xpyd_key_tokens_total{key="alpha",kind="prompt",model="sim"}`)
			answers := r.metric(`xpyd_key_tokens_total{key="alpha",kind="completion",model="sim"}`)
			if streams := r.metric(`xpyd_key_ttft_seconds_count{key="alpha"}`); c.stream != (streams == 1) || c.stream != (r.metric(`xpyd_key_time_per_output_token_seconds_count{key="alpha"}`) == 1) {
				t.Errorf("%v streams of the key have a first token", streams)
			}
			if prompts < 1 || answers != 60 {
				t.Errorf("counted %v and %v tokens, want 60 of the answer", prompts, answers)
			}
			var line struct {
				Key, Model string
				Prompt     float64 `json:"prompt_tokens"`
				Completion float64 `json:"completion_tokens"`
			}
			for _, text := range strings.Split(r.logs.String(), "\n") {
				if strings.Contains(text, `"message":"completion"`) {
					if err := json.Unmarshal([]byte(text), &line); err != nil {
						t.Fatal(err)
					}
				}
			}
			if line.Key != "alpha" || line.Model != "sim" || line.Prompt != prompts || line.Completion != answers {
				t.Errorf("the log says %+v, the metrics %v and %v", line, prompts, answers)
			}
			if text := r.logs.String() + r.metricsText(); strings.Contains(text, "sk-alpha") {
				t.Error("a key in the log or the metrics")
			}
			// The second prompt is taken too, and is less than half of the answer before it.
			spent := 200 - remaining(t, r.call(c, as("alpha")...))
			if want := prompts + answers; float64(spent) < want-30 {
				t.Errorf("%d tokens are taken, want %v and the second prompt", spent, want)
			}
		})
	}
}

// A stream that ends early has no last usage, so its events count.
func TestKeyPaysForAStreamCutShort(t *testing.T) {
	for _, api := range []string{"messages", "responses", "generate"} {
		r := keyRig(t, holder("alpha", nil))
		c := apiCall{api: api, stream: true, prompt: prompt + "[[D:die@12]]", tokens: 60}
		if a := r.post(c.path(), c.body(), as("alpha")...); a.err == nil {
			t.Fatalf("%s: not cut: %d %s", api, a.status, a.body)
		}
		r.await("the request counted", func() bool { return r.metric("xpyd_key_requests_total") == 1 })
		if n := r.metric(`xpyd_key_tokens_total{key="alpha",kind="completion",model="sim"}`); n < 5 || n > 12 {
			t.Errorf("%s: %v tokens counted for 12 events", api, n)
		}
	}
}

// A client may ask for many tokens in each event (stream_interval), and for no usage. It pays for them all the same.
func TestKeyPaysForLargeEvents(t *testing.T) {
	const tokens = 2000
	d := newStub(t, func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		for _, text := range []string{"one", strings.Repeat(" word", tokens)} {
			_, _ = fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"text\":%q,\"finish_reason\":null}]}\n\n", text)
		}
		_, _ = io.WriteString(w, "data: {\"choices\":[{\"index\":0,\"text\":\"\",\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n")
	})
	r := newRig(t, rigOptions{prefill: -1, router: d.asDecode, config: func(c *proxy.Config) {
		c.Keys = []limits.Terms{holder("alpha", func(t *limits.Terms) { t.TokensPerMinute = 1000 })}
	}})
	body := `{"model":"sim","prompt":"x","max_tokens":5000,"stream":true,"stream_interval":5000}`
	if a := r.post("/v1/completions", body, as("alpha")...); a.status != 200 || a.err != nil {
		t.Fatalf("%d %s %v", a.status, a.body, a.err)
	}
	r.await("the request counted", func() bool { return r.metric("xpyd_key_requests_total") == 1 })
	if n := r.metric(`xpyd_key_tokens_total{key="alpha",kind="completion",model="sim"}`); n < tokens/2 || n > tokens+2 {
		t.Errorf("%v tokens counted for about %d in three events", n, tokens)
	}
	if a := r.post("/v1/completions", body, as("alpha")...); a.status != 429 {
		t.Errorf("another request beyond the limit: %d", a.status)
	}
}

// An answer that is too large to be held costs what it says that it cost. Without that it costs a token for each KiB.
func TestKeyPaysForLargeAnswers(t *testing.T) {
	for usage, want := range map[string]float64{`{"prompt_tokens":9,"completion_tokens":700,"total_tokens":709}`: 700, "null": 4 * answerLimit >> 10} {
		d := newStub(t, func(w http.ResponseWriter, q *http.Request) {
			_, _ = io.Copy(io.Discard, q.Body)
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprintf(w, `{"choices":[{"index":0,"text":"%s","finish_reason":"stop"}],"usage":%s}`, strings.Repeat("x", 4*answerLimit), usage)
		})
		r := newRig(t, rigOptions{prefill: -1, router: d.asDecode, config: func(c *proxy.Config) {
			smallAnswers(c)
			c.Keys = []limits.Terms{holder("alpha", func(t *limits.Terms) { t.TokensPerMinute = 1000 })}
		}})
		if a := r.post("/v1/completions", `{"model":"sim","prompt":"x","max_tokens":700}`, as("alpha")...); a.status != 200 || len(a.body) < 4*answerLimit {
			t.Fatalf("%d %.200s", a.status, a.body)
		}
		r.await("the request counted", func() bool { return r.metric("xpyd_key_requests_total") == 1 })
		if n := r.metric(`xpyd_key_tokens_total{key="alpha",kind="completion",model="sim"}`); n != want {
			t.Errorf("%v tokens counted, want %v, with usage %s", n, want, usage)
		}
	}
}

func remaining(t *testing.T, a answer) int {
	t.Helper()
	n, err := strconv.Atoi(a.header.Get("X-Ratelimit-Remaining-Tokens"))
	if err != nil {
		t.Fatalf("%d %v %s", a.status, a.header, a.body)
	}
	return n
}

func TestKeyTokensRefused(t *testing.T) {
	r := keyRig(t, holder("alpha", func(t *limits.Terms) { t.TokensPerMinute = 60 }), holder("beta", nil))
	c := call{prompt: strings.Repeat("many words ", 100), tokens: 3}
	if a := r.call(c, as("alpha")...); a.status != 200 {
		t.Fatalf("a prompt beyond the limit, with all of it left: %d %s", a.status, a.body)
	}
	a := r.call(c, as("alpha")...)
	if a.status != 429 || a.code() != "rate_limit_exceeded" || a.header.Get("Retry-After") == "" || remaining(t, a) != 0 {
		t.Fatalf("%d %v %s", a.status, a.header, a.body)
	}
	if a := r.post("/v1/embeddings", `{"model":"sim","input":"x"}`, as("alpha")...); a.status != 429 {
		t.Errorf("a relayed request: %d %s", a.status, a.body)
	}
	if a := r.call(c, as("beta")...); a.status != 200 {
		t.Errorf("another key: %d %s", a.status, a.body)
	}
}

// A request that the engines failed costs no tokens.
func TestKeyPaysNothingForFailures(t *testing.T) {
	r := keyRig(t, holder("alpha", func(t *limits.Terms) { t.TokensPerMinute = 100000 }))
	c := forms(prompt+"[[P:status=500]][[D:status=500]]", 3)[0]
	if a := r.call(c, as("alpha")...); a.status < 500 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	r.await("the request counted", func() bool { return r.metric("xpyd_key_requests_total") == 1 })
	if n := r.metric("xpyd_key_tokens_total"); n != 0 {
		t.Errorf("%v tokens counted", n)
	}
}

// A client that leaves a relayed request has had the engine's time all the same.
func TestKeyPaysForWhatItLeft(t *testing.T) {
	begun := make(chan struct{})
	d := newStub(t, func(_ http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		close(begun)
		<-q.Context().Done()
	})
	r := newRig(t, rigOptions{prefill: -1, router: d.asDecode, config: func(c *proxy.Config) { c.Keys = []limits.Terms{holder("alpha", nil)} }})
	body := `{"model":"made-up","input":"` + strings.Repeat("many words ", 100) + `"}`
	conn := r.dialRaw()
	_, _ = fmt.Fprintf(conn, "POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer sk-alpha\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	<-begun
	_ = conn.Close()
	r.await("the request counted", func() bool { return r.metric(`xpyd_key_requests_total{key="alpha",outcome="client_gone"}`) == 1 })
	// No engine has answered with that model. If such names had series, a client could use up those of all models.
	r.await("its tokens counted", func() bool { return r.metric(`xpyd_key_tokens_total{key="alpha",kind="prompt",model="other"}`) > 100 })
	if strings.Contains(r.metricsText(), `model="made-up"`) {
		t.Error("a model that a client has made up has a series")
	}
}

func TestKeyModels(t *testing.T) {
	r := keyRig(t, holder("alpha", func(t *limits.Terms) { t.Models = []string{"si*"} }), holder("beta", func(t *limits.Terms) { t.Models = []string{"other"} }))
	c := forms(prompt, 3)[0]
	r.expectWhole(c, r.call(c, as("alpha")...))
	form, formType := audioForm(t, true, "model", "sim")
	twice, twiceType := audioForm(t, true, "model", "other", "model", "sim")
	for name, a := range map[string]answer{
		"completion": r.call(c, as("beta")...),
		"no model":   r.post("/v1/completions", `{"prompt":"x","max_tokens":1}`, as("alpha")...),
		"null":       r.post("/v1/completions", `{"model":null,"prompt":"x","max_tokens":1}`, as("alpha")...),
		"embeddings": r.post("/v1/embeddings", `{"model":"sim","input":"x"}`, as("beta")...),
		"tokenize":   r.post("/tokenize", `{"model":"sim","prompt":"x"}`, as("beta")...),
		"escaped":    r.post("/v1/embeddings", `{"model":"other","mod\u0065l":"sim","input":"x"}`, as("beta")...),
		"form":       r.post("/v1/audio/transcriptions", form, append(as("beta"), "Content-Type", formType)...),
	} {
		if a.status != 404 || a.code() != "model_not_found" || a.header.Get("X-Should-Retry") != "false" || strings.Contains(a.body, "sim") {
			t.Errorf("%s: %d %v %s", name, a.status, a.header, a.body)
		}
	}
	// An engine takes the second model, however oddly its name is written.
	for _, name := range []string{`"model"`, "\x0c\"model\"", "<model>", "\xa0\"model\"", "\n\"model\""} {
		i := strings.LastIndex(twice, `"model"`)
		odd := twice[:i] + name + twice[i+len(`"model"`):]
		if a := r.post("/v1/audio/transcriptions", odd, append(as("beta"), "Content-Type", twiceType)...); a.status != 400 {
			t.Errorf("a second model as %q: %d %s", name, a.status, a.body)
		}
	}
	if a := r.send(http.MethodGet, "/v1/models", "", as("alpha")...); !strings.Contains(a.body, `"id":"sim"`) {
		t.Errorf("its own model is not listed: %s", a.body)
	}
	if a := r.send(http.MethodGet, "/v1/models", "", as("beta")...); a.status != 200 || a.body != `{"object":"list","data":[]}` {
		t.Errorf("another's model is listed: %d %s", a.status, a.body)
	}
	if n := r.metric(`xpyd_key_refused_total{key="beta",limit="models"}`); n != 5 {
		t.Errorf("%v refusals counted, want 5", n)
	}
}

// A key that may not name a priority has the header taken away, and the field refused.
func TestKeyPriority(t *testing.T) {
	r := keyRig(t, holder("alpha", nil), holder("beta", func(t *limits.Terms) { t.Priority = true }))
	c := forms(prompt, 3)[0]
	urgent := c
	urgent.more = `,"priority":-1`
	if a := r.call(urgent, as("alpha")...); a.status != 400 || a.code() != "unsupported_parameter" || !strings.Contains(a.body, `"param":"priority"`) {
		t.Errorf("priority in the body: %d %s", a.status, a.body)
	}
	if a := r.post("/v1/embeddings", `{"model":"sim","input":"x","priority":-1}`, as("alpha")...); a.status != 400 || a.code() != "unsupported_parameter" {
		t.Errorf("priority in a relayed body: %d %s", a.status, a.body)
	}
	for name, want := range map[string]string{"alpha": "", "beta": "-5"} {
		id := "priority-" + name
		r.expectWhole(c, r.call(c, append(as(name), "X-Vllm-Priority", "-5", "X-Request-Id", id)...))
		for _, e := range []*sim.Engine{r.prefill[0], r.decode[0]} {
			if got := r.record(e, id).Header.Get("X-Vllm-Priority"); got != want {
				t.Errorf("%s: the engine got priority %q, want %q", name, got, want)
			}
		}
	}
	if a := r.call(urgent, as("beta")...); a.status != 200 {
		t.Errorf("a key that may: %d %s", a.status, a.body)
	}
}

// Engines read JSON that is none to xpyd. No rule for keys may be passed by with it.
func TestRelayedJSONThatOnlyEnginesRead(t *testing.T) {
	r := keyRig(t, holder("alpha", nil))
	const body = `{"model":"sim","input":"x","priority":-1}`
	wide := ""
	for _, c := range body {
		wide += string(c) + "\x00"
	}
	for name, body := range map[string]string{
		"byte order mark": "\xef\xbb\xbf" + body, "UTF-16": "\xff\xfe" + wide, "UTF-16 without a mark": wide,
		"NaN": `{"model":"sim","input":"x","user":NaN,"priority":-1}`, "cut off": body[:len(body)-1],
	} {
		id := "odd-" + strings.ReplaceAll(name, " ", "-")
		if a := r.post("/v1/embeddings", body, append(as("alpha"), "X-Request-Id", id)...); a.status != 400 || a.code() != "invalid_json" {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	if a := r.post("/v1/embeddings", `{"model":"sim","input":"x"}`, as("alpha")...); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// Keys come, go and change while clients are served. What a holder has under way goes on.
func TestKeysReplaced(t *testing.T) {
	one := func(t *limits.Terms) { t.InFlight = 1 }
	r := keyRig(t, holder("alpha", one), holder("beta", nil))
	c := forms(prompt, 3)[0]
	slow := c
	slow.prompt += "[[D:delay=400ms]]"
	held := r.start(slow, as("alpha")...)
	r.await("in flight", func() bool { return r.metric(`xpyd_in_flight{backend="`+r.decode[0].URL()) == 1 })
	r.server.ReplaceKeys([]limits.Terms{holder("alpha", one), holder("gamma", nil)})
	if a := r.call(c, as("alpha")...); a.status != 429 || a.code() != "client_limit" {
		t.Errorf("what was under way no longer counts: %d %s", a.status, a.body)
	}
	if a := r.call(c, as("beta")...); a.status != 401 {
		t.Errorf("a key that is gone: %d", a.status)
	}
	r.expectWhole(c, r.call(c, as("gamma")...))
	r.expectWhole(slow, r.soon(held))
	r.await("the place given back", func() bool { return r.call(c, as("alpha")...).status == 200 })
	if !strings.Contains(r.logs.String(), `"joined":["gamma"],"left":["beta"],"changed":[],"event":"keys"`) {
		t.Errorf("the log does not say what changed\n%s", r.logs)
	}
	if err := r.server.KeysFit(nil); err == nil {
		t.Error("the last key may go")
	}
}

// However many keys there are, the series are not.
func TestKeySeriesAreBounded(t *testing.T) {
	var keys []limits.Terms
	for i := range 120 {
		keys = append(keys, holder(fmt.Sprint("k", i), nil))
	}
	r := keyRig(t, keys...)
	for i := range keys {
		if a := r.post("/v1/embeddings", `{"model":"sim","input":"x"}`, as(keys[i].Name)...); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	r.await("all counted", func() bool { return r.metric("xpyd_key_requests_total") == 120 })
	if n := strings.Count(r.metricsText(), "\nxpyd_key_requests_total{"); n != 101 {
		t.Errorf("%d series, want 100 and other", n)
	}
	if n := r.metric(`xpyd_key_requests_total{key="other"`); n != 20 {
		t.Errorf("%v requests of other keys, want 20", n)
	}
}

// An upload is a sound, which has no more tokens for having more bytes.
func TestKeyIsNotChargedForTheBytesOfASound(t *testing.T) {
	r := keyRig(t, holder("alpha", func(t *limits.Terms) { t.TokensPerMinute = 10_000 }))
	body, contentType := audioForm(t, true, "model", "sim")
	body = strings.Replace(body, string(audio), strings.Repeat(string(audio), 1+2<<20/len(audio)), 1)
	a := r.post("/v1/audio/transcriptions", body, append(as("alpha"), "Content-Type", contentType)...)
	if left := remaining(t, a); a.status != 200 || left < 5_000 || left > 9_950 {
		t.Errorf("%d, %d tokens left of 10,000 after a sound of 2 MiB", a.status, left)
	}
}
