package sim_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"xpyd/sim"
)

func TestLimits(t *testing.T) {
	e := start(t, sim.Options{MaxModelLen: 200})
	prompt := textBody["prompt"].(string)
	second := strings.TrimSpace(sim.Text(prompt, 3)[len(sim.Text(prompt, 2)):])
	cases := []struct {
		name   string
		path   string
		b      body
		text   string
		reason string
	}{
		{"completions default", completionsPath, body{"prompt": prompt}, sim.Text(prompt, 16), "length"},
		{"chat default", "/v1/chat/completions", body{"messages": chatBody["messages"]}, chatText(64), "stop"},
		{"max_completion_tokens on chat", "/v1/chat/completions", chatBody.with("max_completion_tokens", 3), chatText(3), "length"},
		{"max_completion_tokens on completions", completionsPath, textBody.with("max_completion_tokens", 0), sim.Text(prompt, 9), "length"},
		{"stop", completionsPath, textBody.with("stop", second), sim.Text(prompt, 2) + " ", "stop"},
		{"stop that does not come", completionsPath, textBody.with("stop", []string{"zzz"}), sim.Text(prompt, 9), "length"},
		{"echo", completionsPath, textBody.with("echo", true), prompt + sim.Text(prompt, 9), "length"},
		{"eos", completionsPath, textBody.with("prompt", "[[text:eos@4]]"), sim.Text("[[text:eos@4]]", 4), "stop"},
		{"eos ignored", completionsPath, textBody.with("prompt", "[[text:eos@4]]").with("ignore_eos", true), sim.Text("[[text:eos@4]]", 9), "length"},
		{"eos after min_tokens", completionsPath, textBody.with("prompt", "[[text:eos@4]]").with("min_tokens", 6), sim.Text("[[text:eos@4]]", 6), "stop"},
		{"null limit on chat", "/v1/chat/completions", chatBody.with("max_tokens", nil), chatText(64), "stop"},
	}
	for _, tc := range cases {
		for _, stream := range []bool{false, true} {
			status, answer := post(t, e.URL()+tc.path, tc.b.with("stream", stream))
			if got := text(t, answer); status != 200 || got != tc.text {
				t.Errorf("%s, stream %v: %d %q, want %q", tc.name, stream, status, got, tc.text)
			}
			if !strings.Contains(string(answer), `"finish_reason":"`+tc.reason+`"`) {
				t.Errorf("%s, stream %v: finish_reason is not %s: %s", tc.name, stream, tc.reason, answer)
			}
		}
	}
}

func TestStylesReachTheClientAsText(t *testing.T) {
	e := start(t, sim.Options{})
	for _, style := range []string{"done", "finish", "big", "empty", "utf8", "escape", "crlf", "comments"} {
		prompt := "say it [[text:" + style + "]]"
		for _, stream := range []bool{false, true} {
			_, answer := post(t, e.URL()+completionsPath, body{"prompt": prompt, "max_tokens": 7, "stream": stream})
			if got := text(t, answer); got != sim.Text(prompt, 7) {
				t.Errorf("%s, stream %v: %.200q, want %.200q", style, stream, got, sim.Text(prompt, 7))
			}
			if stream && style == "crlf" != bytes.Contains(answer, []byte("}\r\n\r\n")) {
				t.Errorf("%s: CRLF %.300q", style, answer)
			}
			if stream && style == "comments" != bytes.HasPrefix(answer, []byte(": ")) {
				t.Errorf("%s: comments %.300q", style, answer)
			}
		}
	}
}

func TestChoicesAndUsage(t *testing.T) {
	e := start(t, sim.Options{})
	b := textBody.with("n", 2).with("max_tokens", 3)
	_, answer := post(t, e.URL()+completionsPath, b)
	var got struct {
		Choices []struct{ Text string }
		Usage   struct {
			Prompt     int `json:"prompt_tokens"`
			Total      int `json:"total_tokens"`
			Completion int `json:"completion_tokens"`
		}
	}
	decodeJSON(t, answer, &got)
	prompt := textBody["prompt"].(string)
	for i, c := range got.Choices {
		if want := sim.ChoiceText(prompt, i, 3); c.Text != want {
			t.Errorf("choice %d: %q, want %q", i, c.Text, want)
		}
	}
	if u := got.Usage; len(got.Choices) != 2 || u.Prompt != (len(prompt)+3)/4 || u.Completion != 6 || u.Total != u.Prompt+6 {
		t.Errorf("%d choices, usage %+v", len(got.Choices), u)
	}
}

func TestTokenizeAndBack(t *testing.T) {
	e := start(t, sim.Options{})
	const prompt = "grüße aus dem Hafen ⚓"
	_, answer := post(t, e.URL()+"/tokenize", body{"prompt": prompt})
	var got struct {
		Count  int
		Tokens []int
	}
	decodeJSON(t, answer, &got)
	_, answer = post(t, e.URL()+"/detokenize", body{"tokens": got.Tokens})
	if want := `{"prompt":"` + prompt + `"}`; string(answer) != want || got.Count != len(got.Tokens) {
		t.Errorf("%d tokens, back %s, want %s", got.Count, answer, want)
	}
	byIDs, byText := textBody.with("prompt", got.Tokens), textBody.with("prompt", prompt)
	_, a := post(t, e.URL()+completionsPath, byIDs)
	_, b := post(t, e.URL()+completionsPath, byText)
	if text(t, a) != text(t, b) {
		t.Errorf("by ids %q, by text %q", text(t, a), text(t, b))
	}
}

// A body that is JSON and no object is refused on every route, and the engine lives on.
func TestBodyThatIsNull(t *testing.T) {
	e := start(t, sim.Options{})
	for _, path := range []string{"/v1/messages/count_tokens", "/v1/messages", "/v1/responses", "/inference/v1/generate", "/tokenize"} {
		resp, err := http.Post(e.URL()+path, "application/json", strings.NewReader("null"))
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %d", path, resp.StatusCode)
		}
	}
	expectAlive(t, e)
}

func TestAPIKey(t *testing.T) {
	e := start(t, sim.Options{APIKey: "s3cret"})
	for key, want := range map[string]int{"": 401, "Bearer wrong": 401, "Bearer s3cret": 200} {
		if status, _ := post(t, e.URL()+completionsPath, textBody, "Authorization", key); status != want {
			t.Errorf("Authorization %q: %d, want %d", key, status, want)
		}
	}
	expectAlive(t, e)
}

func TestBlocksLimitWhatRuns(t *testing.T) {
	hold := newBarrier("d1", sim.PhaseStreamEvent)
	_, d := pair(t, sim.Options{NumBlocks: 4, Hook: hold.hook})
	big := func(letter string) body { return streamedBody(strings.Repeat(letter, 100)) } // 27 tokens and 5: 2 blocks of their own
	for _, letter := range []string{"x", "y"} {
		send(t, d, completionsPath, big(letter))
		<-hold.reached
	}
	waiting := sendClosing(t, d, big("z"))
	await(t, "a request queues", func() bool { return gauge(t, d, "vllm:num_requests_waiting") == 1 })
	if got := gauge(t, d, "vllm:kv_cache_usage_perc"); got != 1 {
		t.Errorf("usage %v, want 1", got)
	}
	close(hold.pass)
	if got := waiting.readAll(); !strings.HasSuffix(got, "[DONE]\n\n\r\n0\r\n\r\n") {
		t.Errorf("the one that queued: %q", got)
	}
	await(t, "all blocks free", func() bool { return gauge(t, d, "vllm:kv_cache_usage_perc") == 0 })
}

func TestPullShowsInTheMetrics(t *testing.T) {
	p, d := pair(t, sim.Options{})
	handle := prefill(t, p, completionsPath, textBody)
	post(t, d.URL()+completionsPath, textBody.with("kv_transfer_params", handle))
	tokens := float64((len(textBody["prompt"].(string)) + 3) / 4)
	for name, want := range map[string]float64{
		"vllm:nixl_xfer_time_seconds_count": 1, "vllm:external_prefix_cache_hits_total": tokens,
		"vllm:prompt_tokens_total": tokens, "vllm:generation_tokens_total": 9, "vllm:nixl_num_failed_transfers_total": 0,
	} {
		await(t, name, func() bool { return gauge(t, d, name) == want })
	}
}

// The tokens of a stream count as they come, and the time between two of them has no part of the prefill.
func TestStreamsCountTokensAsTheyCome(t *testing.T) {
	reached, pass := make(chan struct{}), make(chan struct{})
	e := start(t, sim.Options{Role: sim.RoleBoth, PrefillTokensPerSecond: 1000, Hook: func(ev sim.Event) { // 250 ms for the prompt
		if ev.Phase == sim.PhaseStreamEvent && ev.Index == 3 {
			close(reached)
			<-pass
		}
	}})
	let := sync.OnceFunc(func() { close(pass) })
	t.Cleanup(let) // before the engine stops
	open := sendClosing(t, e, streamedBody(strings.Repeat("x", 1000)))
	<-reached
	await(t, "a token of an open stream counts", func() bool { return gauge(t, e, "vllm:generation_tokens_total") > 0 })
	let()
	if got := open.readAll(); !strings.HasSuffix(got, "[DONE]\n\n\r\n0\r\n\r\n") {
		t.Fatalf("%q", got)
	}
	await(t, "the request counts", func() bool { return gauge(t, e, "vllm:request_decode_time_seconds_count") == 1 })
	if tokens, all := gauge(t, e, "vllm:generation_tokens_total"), gauge(t, e, "vllm:request_generation_tokens_sum"); tokens != all {
		t.Errorf("%v tokens counted, the request had %v", tokens, all)
	}
	if gaps, decode := gauge(t, e, "vllm:inter_token_latency_seconds_sum"), gauge(t, e, "vllm:request_decode_time_seconds_sum"); gaps <= 0 || gaps > decode {
		t.Errorf("%v s between tokens, but %v s from the first to the last", gaps, decode)
	}
}

func TestRestartForgetsThePins(t *testing.T) {
	p, _ := pair(t, sim.Options{})
	first := prefill(t, p, completionsPath, textBody)
	if err := p.Restart(); err != nil {
		t.Fatal(err)
	}
	if l := p.Ledger(); l.Pinned != 0 || len(l.Entries) != 0 {
		t.Errorf("ledger of a new engine: %+v", l)
	}
	second := prefill(t, p, completionsPath, textBody)
	var a, b struct {
		Engine string `json:"remote_engine_id"`
		Port   int    `json:"remote_port"`
	}
	decodeJSON(t, first, &a)
	decodeJSON(t, second, &b)
	if a.Engine == b.Engine || a.Port != b.Port {
		t.Errorf("engine ids %s and %s, ports %d and %d", a.Engine, b.Engine, a.Port, b.Port)
	}
}

func TestKillResetsConnections(t *testing.T) {
	e := start(t, sim.Options{TokenLatency: time.Hour})
	c := send(t, e, completionsPath, streamedBody(""))
	await(t, "it runs", func() bool { return gauge(t, e, "vllm:num_requests_running") == 1 })
	e.Kill()
	_, err := io.Copy(io.Discard, c.nc)
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the connection ended with %v, want a reset", err)
	}
}

func TestClientThatStopsReadingAndLeaves(t *testing.T) {
	e := start(t, sim.Options{})
	c := send(t, e, completionsPath, body{"prompt": "[[text:big]]", "max_tokens": 2, "n": 60, "stream": true}) // 12 MB
	await(t, "it runs", func() bool { return gauge(t, e, "vllm:num_requests_running") > 0 })
	c.halfClose()
	awaitOutcome(t, e, "aborted")
}

func TestLogNeverHoldsThePrompt(t *testing.T) {
	var log lockedBuffer
	e := start(t, sim.Options{Log: &log})
	post(t, e.URL()+completionsPath, body{"prompt": "a secret harbour"}, "X-Request-Id", "rid-9")
	var line map[string]any
	await(t, "a line", func() bool { return log.String() != "" })
	if err := json.Unmarshal([]byte(log.String()), &line); err != nil || line["request_id"] != "rid-9" || line["status"] != 200.0 {
		t.Errorf("log %s, %v", log.String(), err)
	}
	if strings.Contains(log.String(), "secret") {
		t.Errorf("the prompt is in the log: %s", log.String())
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func TestCloseEndsEveryGoroutine(t *testing.T) {
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	before := runtime.NumGoroutine()
	for range 3 {
		p, err := sim.Start(sim.Options{Role: sim.RolePrefill, Name: "p1"}.Fast())
		if err != nil {
			t.Fatal(err)
		}
		d, err := sim.Start(sim.Options{Role: sim.RoleDecode, Name: "d1"}.Fast())
		if err != nil {
			t.Fatal(err)
		}
		h := prefill(t, p, completionsPath, textBody)
		post(t, d.URL()+completionsPath, textBody.with("kv_transfer_params", h))
		h = prefill(t, p, completionsPath, textBody)
		p.Freeze()
		send(t, d, completionsPath, textBody.with("kv_transfer_params", h)) // hangs
		await(t, "it waits for its KV", func() bool { return gauge(t, d, "vllm:num_requests_waiting") == 1 })
		for _, e := range []*sim.Engine{d, p} {
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
			if err := e.Close(); err != nil {
				t.Errorf("close twice: %v", err)
			}
		}
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	await(t, "goroutines end", func() bool { return runtime.NumGoroutine() <= before })
}

func TestOptionsRefused(t *testing.T) {
	for name, o := range map[string]sim.Options{
		`sim role "x": want prefill, decode, both or encode`:                                            {Role: "x"},
		`sim load failure policy "x": want fail or recompute`:                                           {LoadFailure: "x"},
		"sim blocks -1: want at least 1":                                                                {NumBlocks: -1, MaxModelLen: 1},
		"sim max model len 100: 2 blocks of 16 tokens hold only 32":                                     {NumBlocks: 2, MaxModelLen: 100},
		"sim lease -1ns: want more than 0":                                                              {Lease: -1},
		"sim prefill speed -1 tokens/s: want more than 0":                                               {PrefillTokensPerSecond: -1},
		"listen for HTTP on 192.0.2.1:1: listen tcp 192.0.2.1:1: bind: cannot assign requested address": {Listen: "192.0.2.1:1"},
	} {
		e, err := sim.Start(o)
		if err == nil {
			_ = e.Close()
			t.Errorf("started with what should give %q", name)
		} else if err.Error() != name {
			t.Errorf("%q, want %q", err, name)
		}
	}
}

// The ports of a dead engine refuse connections. Meanwhile no connection to another machine gets
// one of them.
func TestDeadEngineKeepsItsPorts(t *testing.T) {
	p, d := pair(t, sim.Options{})
	p.Kill()
	for _, address := range []string{p.Addr(), p.SideChannelAddr()} {
		if _, err := net.Dial("tcp", address); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("dial %s: %v, want it refused", address, err)
		}
		local, err := net.ResolveTCPAddr("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		dialer := net.Dialer{LocalAddr: local}
		if conn, err := dialer.Dial("tcp", d.Addr()); err == nil {
			_ = conn.Close()
			t.Errorf("a connection left from %s", address)
		}
	}
	if err := p.Restart(); err != nil {
		t.Fatal(err)
	}
	expectAlive(t, p)
}
