package proxy_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"xpyd/proxy"
	"xpyd/router"
	"xpyd/sim"
)

// apiCall is a request of one of the APIs that came after OpenAI's first two.
type apiCall struct {
	api    string // as metrics name it
	stream bool
	prompt string
	tokens int
	more   string // further members, each with a leading comma
}

func apiCalls(prompt string, tokens int) (all []apiCall) {
	for _, api := range []string{"messages", "responses", "generate"} {
		for _, stream := range []bool{false, true} {
			all = append(all, apiCall{api: api, stream: stream, prompt: prompt, tokens: tokens})
		}
	}
	return all
}

func (c apiCall) name() string {
	return c.api + map[bool]string{true: " streamed", false: ""}[c.stream]
}

func (c apiCall) path() string {
	return map[string]string{"messages": "/v1/messages", "responses": "/v1/responses", "generate": "/inference/v1/generate"}[c.api]
}

func (c apiCall) body() string {
	text, _ := json.Marshal(c.prompt)
	switch c.api {
	case "messages":
		return fmt.Sprintf(`{"model":"sim","max_tokens":%d,"system":"be brief","messages":[{"role":"user","content":%s}],"stream":%v%s}`, c.tokens, text, c.stream, c.more)
	case "responses":
		return fmt.Sprintf(`{"model":"sim","max_output_tokens":%d,"instructions":"be brief","input":%s,"stream":%v%s}`, c.tokens, text, c.stream, c.more)
	}
	ids, _ := json.Marshal(tokenIDs(c.prompt))
	return fmt.Sprintf(`{"model":"sim","token_ids":%s,"sampling_params":{"temperature":0,"max_tokens":%d},"stream":%v%s}`, ids, c.tokens, c.stream, c.more)
}

// tokenIDs is the sim's tokeniser: four bytes are a token.
func tokenIDs(text string) (ids []int) {
	for ; text != ""; text = text[min(4, len(text)):] {
		id := 0
		for i := min(4, len(text)) - 1; i >= 0; i-- {
			id = id<<8 | int(text[i])
		}
		ids = append(ids, id)
	}
	return ids
}

// want is the text that every engine answers with, or the ids of its tokens.
func (c apiCall) want() string {
	if c.api != "generate" {
		return sim.Text(sim.ChatPrompt(sim.Message{Role: "system", Content: "be brief"}, sim.Message{Role: "user", Content: c.prompt}), c.tokens)
	}
	var ids []int
	for i := range c.tokens {
		token := strings.TrimPrefix(sim.Text(c.prompt, i+1), sim.Text(c.prompt, i))
		ids = append(ids, sim.TokenID(token))
	}
	return fmt.Sprint(ids)
}

// got is the text of an answer, or the ids of its tokens.
func (c apiCall) got(a answer) string {
	var ids []int
	var out strings.Builder
	add := func(raw string) {
		var m struct {
			Choices []struct {
				IDs []int `json:"token_ids"`
			}
			Content []struct{ Text string }
			Output  []struct{ Content []struct{ Text string } }
			Delta   json.RawMessage
		}
		_ = json.Unmarshal([]byte(raw), &m)
		for _, choice := range m.Choices {
			ids = append(ids, choice.IDs...)
		}
		for _, part := range m.Content {
			out.WriteString(part.Text)
		}
		for _, item := range m.Output {
			for _, part := range item.Content {
				out.WriteString(part.Text)
			}
		}
		var text string
		var delta struct{ Text string }
		if json.Unmarshal(m.Delta, &text) == nil || json.Unmarshal(m.Delta, &delta) == nil {
			out.WriteString(text + delta.Text)
		}
	}
	if !c.stream {
		add(a.body)
	}
	for line := range strings.Lines(a.body) {
		if data, ok := strings.CutPrefix(line, "data: "); ok && c.stream {
			add(data)
		}
	}
	if c.api == "generate" {
		return fmt.Sprint(ids)
	}
	return out.String()
}

// ends reports whether a stream came to the end that its clients wait for.
func (c apiCall) ends(body string) bool {
	last := body[strings.LastIndex(strings.TrimSuffix(body, "\n\n"), "\n\n")+1:]
	switch c.api {
	case "messages":
		return strings.Contains(last, "event: message_stop\n")
	case "responses":
		return strings.Contains(last, "event: response.completed\n") || strings.Contains(last, "event: response.incomplete\n")
	}
	return strings.Contains(last, "data: [DONE]\n")
}

func (r *rig) expectAPI(c apiCall, a answer) {
	r.t.Helper()
	if a.err != nil || a.status != 200 || c.got(a) != c.want() {
		r.t.Fatalf("%s: status %d, error %v, text %q, want %q\nbody %.900s\n%s", c.name(), a.status, a.err, c.got(a), c.want(), a.body, r.logs)
	}
	if c.stream && !c.ends(a.body) {
		r.t.Fatalf("%s: wrong end: %q", c.name(), a.body[max(0, len(a.body)-200):])
	}
}

func TestAPIsThroughBothLegs(t *testing.T) {
	r := newRig(t, rigOptions{engine: func(o *sim.Options) { o.Version, o.Bidirectional = "0.33.0", true }})
	for _, c := range apiCalls(prompt, 12) {
		t.Run(c.name(), func(t *testing.T) {
			id := strings.ReplaceAll(c.name(), " ", "-")
			a := r.post(c.path(), c.body(), "X-Request-Id", id, "Anthropic-Version", "2023-06-01")
			r.expectAPI(c, a)
			if got := a.header.Get("X-Xpyd-Path"); got != "disaggregated" {
				t.Errorf("path %q, reason %q", got, a.header.Get("X-Xpyd-Reason"))
			}
			if strings.Contains(a.body, "remote_") {
				t.Errorf("the client sees a handle: %s", a.body)
			}
			p, d := r.record(r.prefill[0], id), r.record(r.decode[0], id)
			if !p.DoRemoteDecode || p.MaxTokens != 1 || p.Stream {
				t.Errorf("prefill leg %+v", p)
			}
			if d.Leg != "decode" || d.MaxTokens != 12 || d.Stream != c.stream || !slices.Equal(d.BlockIDs, p.BlockIDs) || len(d.BlockIDs) == 0 {
				t.Errorf("decode leg %+v, want the blocks %v", d, p.BlockIDs)
			}
			if d.Header.Get("Anthropic-Version") != "2023-06-01" {
				t.Errorf("header %v", d.Header)
			}
			if n := r.metric(fmt.Sprintf(`xpyd_requests_total{api="%s",outcome="ok"}`, c.api)); n == 0 {
				t.Errorf("not counted")
			}
		})
	}
	for _, e := range r.prefill {
		r.await("free of pinned blocks", func() bool { return e.Ledger().Pinned == 0 })
	}
}

// The limit of a request comes to the prefill engine in each place where a client may write it.
func TestAPIsPrefillLegIsOneToken(t *testing.T) {
	r := newRig(t, rigOptions{})
	for i, tc := range []struct{ path, body, want string }{
		{"/v1/messages", `{"max_tokens":7,"model":"sim","stream":true,"messages":[{"role":"user","content":"a"}]}`,
			`{"max_tokens":1,"model":"sim","stream":false,"messages":[{"role":"user","content":"a"}],"kv_transfer_params":`},
		{"/v1/responses", `{"model":"sim","input":"a"}`, `{"model":"sim","input":"a","max_output_tokens":1,"store":false,"kv_transfer_params":`},
		{"/v1/responses", `{"store":true,"max_output_tokens":3,"stream":false,"model":"sim","input":[{"role":"user","content":"a"}],"enable_response_messages":true}`,
			`{"store":false,"max_output_tokens":1,"stream":false,"model":"sim","input":[{"role":"user","content":"a"}],"enable_response_messages":false,"kv_transfer_params":`},
		{"/inference/v1/generate", `{"token_ids":[1,2],"sampling_params":{ },"model":"sim"}`,
			`{"token_ids":[1,2],"sampling_params":{ "max_tokens":1,"min_tokens":1},"model":"sim","kv_transfer_params":`},
		{"/inference/v1/generate", `{"sampling_params":{"max_tokens":5,"min_tokens":2,"seed":1},"token_ids":[1,2],"stream":true,"stream_options":{"include_usage":true}}`,
			`{"sampling_params":{"max_tokens":1,"min_tokens":1,"seed":1},"token_ids":[1,2],"stream":false,"kv_transfer_params":`},
		{"/inference/v1/generate", `{"sampling_params":{"seed":1,"max_tokens":5},"token_ids":[1,2],"max_tokens":9}`,
			`{"sampling_params":{"seed":1,"max_tokens":1,"min_tokens":1},"token_ids":[1,2],"max_tokens":9,"kv_transfer_params":`},
	} {
		id := fmt.Sprintf("edit-%d", i)
		if a := r.post(tc.path, tc.body, "X-Request-Id", id); a.status != 200 || a.header.Get("X-Xpyd-Path") != "disaggregated" {
			t.Errorf("%s: %d %v %s", tc.body, a.status, a.header, a.body)
			continue
		}
		if got := string(r.record(r.prefill[0], id).Body); !strings.HasPrefix(got, tc.want) {
			t.Errorf("prefill got %s\nwant %s…", got, tc.want)
		}
		if got, want := string(r.record(r.decode[0], id).Body), tc.body[:len(tc.body)-1]+`,"kv_transfer_params":`; !strings.HasPrefix(got, want) {
			t.Errorf("decode got %s\nwant %s…", got, want)
		}
	}
	r.expectNothingHeld()
}

func TestAPIsWithoutPrefillGoToDecodeAlone(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.prefill[0].Kill()
	for _, c := range apiCalls(prompt, 5) {
		a := r.post(c.path(), c.body())
		r.expectAPI(c, a)
		if got := a.header.Get("X-Xpyd-Reason"); got != "prefill_unavailable" {
			t.Errorf("%s: reason %q", c.name(), got)
		}
	}
	r.expectNothingHeld()
}

// Tools that vLLM does not call itself are the client's, as those of Codex are.
func TestToolsOfClientsTakeBothLegs(t *testing.T) {
	r := newRig(t, rigOptions{engine: func(o *sim.Options) { o.ToolCallParser = "hermes" }})
	for _, tool := range []string{"function", "custom", "namespace", "local_shell", "shell", "apply_patch", "tool_search", "web_search", "image_generation", "file_search", "what comes next"} {
		a := r.post("/v1/responses", `{"model":"sim","input":"a","max_output_tokens":2,"tools":[{"type":"`+tool+`","name":"f"}]}`)
		if path := a.header.Get("X-Xpyd-Path"); a.status != 200 || path != "disaggregated" {
			t.Errorf("%s: %d, path %s, %s", tool, a.status, path, a.body)
		}
	}
}

// What two legs cannot serve, and why.
func TestAPIsDecodeAlone(t *testing.T) {
	r := newRig(t, rigOptions{engine: func(o *sim.Options) { o.ToolCallParser = "hermes" }})
	const user = `"messages":[{"role":"user","content":"a"}]`
	for i, tc := range []struct {
		path, body, reason string
		status             int
	}{
		{"/v1/messages", `{"model":"sim",` + user + `}`, "invalid_fields", 400},
		{"/v1/messages", `{"model":"sim","max_tokens":0,` + user + `}`, "max_tokens_zero", 400},
		{"/v1/responses", `{"model":"sim","input":"a","previous_response_id":"resp_1"}`, "stateful", 404},
		{"/v1/responses", `{"model":"sim","input":"a","max_output_tokens":2,"tools":[{"type":"function","name":"f"},{"name":"x","type":"web_search_preview"}]}`, "server_tools", 200},
		{"/v1/responses", `{"model":"sim","input":"a","max_output_tokens":2,"tools":[{"type":"mcp","server_label":"x"}]}`, "server_tools", 200},
		{"/v1/responses", `{"model":"sim","input":"a","max_output_tokens":2,"store":"yes"}`, "invalid_fields", 200},
		{"/inference/v1/generate", `{"model":"sim","token_ids":[1],"sampling_params":{"n":2,"temperature":1,"max_tokens":2}}`, "n", 200},
		{"/inference/v1/generate", `{"model":"sim","token_ids":[1],"sampling_params":{"prompt_logprobs":1,"max_tokens":2}}`, "prompt_logprobs", 200},
		{"/inference/v1/generate", `{"model":"sim","token_ids":[1]}`, "invalid_fields", 400},
	} {
		id := fmt.Sprintf("alone-%d", i)
		a := r.post(tc.path, tc.body, "X-Request-Id", id)
		if got := a.header.Get("X-Xpyd-Path") + " " + a.header.Get("X-Xpyd-Reason"); got != "decode_only "+tc.reason || a.status != tc.status {
			t.Errorf("%s: %d, path and reason %q, want %s; %s", tc.body, a.status, got, tc.reason, a.body)
			continue
		}
		if got := string(r.record(r.decode[0], id).Body); got != tc.body {
			t.Errorf("decode got %s, want the client's own bytes %s", got, tc.body)
		}
	}
	for _, body := range []string{
		`{"model":"sim","max_tokens":2,` + user + `,"n":2,"tool_choice":{"type":"auto"}}`, // n means nothing here
		`{"model":"sim","max_tokens":2,` + user + `,"tool_choice":{"type":"any"}}`,
	} {
		if a := r.post("/v1/messages", body); a.status != 200 || a.header.Get("X-Xpyd-Path") != "disaggregated" {
			t.Errorf("%s: %d %v %s", body, a.status, a.header, a.body)
		}
	}
}

func TestAPIsRefuseWhatClientsMayNotSend(t *testing.T) {
	r := newRig(t, rigOptions{config: func(c *proxy.Config) { c.DenyFields = []string{"secret_field"} }})
	for _, c := range apiCalls("a", 2) {
		for _, tc := range []struct{ more, code string }{
			{`,"kv_transfer_params":{"do_remote_prefill":true}`, "unsupported_parameter"},
			{`,"vllm_xargs":{"kv_transfer_params":"x"}`, "unsupported_parameter"},
			{`,"secret_field":1`, "unsupported_parameter"},
			{`,"model":"sim"`, "duplicate_field"},
		} {
			c.more = tc.more
			a := r.post(c.path(), c.body())
			if a.status != 400 || a.code() != tc.code || strings.HasPrefix(a.body, `{"type":"error","error":{"type":"invalid_request_error","message":"`) != (c.api == "messages") {
				t.Errorf("%s%s: %d %s", c.name(), tc.more, a.status, a.body)
			}
		}
	}
	for path, body := range map[string]string{
		"/v1/responses":          `{"model":"sim","input":"a","background":true}`,
		"/inference/v1/generate": `{"token_ids":[1],"sampling_params":{"extra_args":{"kv_transfer_params":{"a":1}}}}`,
	} {
		if a := r.post(path, body); a.status != 400 || a.code() != "unsupported_parameter" {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
	if n := len(r.prefill[0].Requests()) + len(r.decode[0].Requests()); n != 0 {
		t.Errorf("engines were asked %d times", n)
	}
}

// D dies in place of each event of a stream, or in the middle of it: what came before is the client's, then
// comes one error event, and never the end that a client takes for a whole answer.
func TestAPIsWhoseDecodeDies(t *testing.T) {
	r := newRig(t, rigOptions{router: func(c *router.Config) { c.Health.EjectAfter = 0 }})
	for _, c := range apiCalls("", 3) {
		if !c.stream {
			continue
		}
		for _, fault := range []string{"die", "cut", "error-cut", "error-done", "corrupt"} {
			for k := 2; k < 14; k++ {
				c.prompt = fmt.Sprintf("[[D:%s@%d]]%s", fault, k, prompt)
				a := r.post(c.path(), c.body())
				if a.status == 200 && a.err == nil && c.ends(a.body) && c.got(a) == c.want() {
					break // the stream has fewer events
				}
				if a.status != 200 { // before a token, and then again
					if a.status < 500 {
						t.Errorf("%s %s@%d: %d %s", c.api, fault, k, a.status, a.body)
					}
					continue
				}
				if a.err == nil || c.ends(a.body) || a.code() != "decode_failed" {
					t.Errorf("%s %s@%d: error %v, ends %v, code %s: %s", c.api, fault, k, a.err, c.ends(a.body), a.code(), a.body)
				}
				if strings.Count(a.body, `"decode_failed"`) == 0 || !strings.HasPrefix(c.want(), strings.TrimSuffix(c.got(a), "]")) {
					t.Errorf("%s %s@%d: text %q of %q", c.api, fault, k, c.got(a), c.want())
				}
				if k == 13 {
					t.Errorf("%s %s: no stream was whole", c.api, fault)
				}
			}
		}
	}
	r.expectNothingHeld()
}

// The error events are those that each API's clients understand.
func TestAPIsErrorEvents(t *testing.T) {
	r := newRig(t, rigOptions{router: func(c *router.Config) { c.Health.EjectAfter = 0 }})
	for api, want := range map[string]string{
		"messages":  "event: error\ndata: " + `{"type":"error","error":{"type":"api_error","message":"decode backend broke off its stream","code":"decode_failed"}}` + "\n\n",
		"responses": "event: error\ndata: " + `{"type":"error","code":"decode_failed","message":"decode backend broke off its stream","param":null,"sequence_number":6,"error":{"message":"decode backend broke off its stream","type":"server_error","param":null,"code":"decode_failed"}}` + "\n\n",
		"generate":  "data: " + `{"error":{"message":"decode backend broke off its stream","type":"server_error","param":null,"code":"decode_failed"}}` + "\n\n",
	} {
		c := apiCall{api: api, stream: true, prompt: prompt + "[[D:die@6]]", tokens: 20}
		if a := r.post(c.path(), c.body()); !strings.HasSuffix(a.body, want) {
			t.Errorf("%s: %s", api, a.body)
		}
	}
}

// A whole answer that does not say how it ended is none, as an engine that aborted leaves it.
func TestAPIsAnswerWithoutAnEnd(t *testing.T) {
	r := newRig(t, rigOptions{router: func(c *router.Config) { c.Health.EjectAfter = 0 }})
	for _, c := range apiCalls(prompt+"[[D:no-finish]]", 3) {
		a := r.post(c.path(), c.body())
		switch {
		case !c.stream && (a.status != 502 || a.code() != "decode_failed"):
			t.Errorf("%s: %d %s", c.name(), a.status, a.body)
		case c.stream && (a.err == nil || c.ends(a.body)):
			t.Errorf("%s: error %v, %s", c.name(), a.err, a.body)
		}
	}
	r.expectNothingHeld()
}

func TestAPIsClientLeaves(t *testing.T) {
	r := newRig(t, rigOptions{})
	for i, c := range apiCalls(prompt+"[[D:stall@5]]", 20) {
		ctx, cancel := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url+c.path(), strings.NewReader(c.body()))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		left := r.metric("xpyd_client_gone_total")
		done := make(chan struct{})
		go func() {
			defer close(done)
			if resp, err := r.client.Do(req); err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
		}()
		r.await("stalled on the decode engine", func() bool { return len(legs(r.prefill, "prefill")) == i+1 && r.metric("xpyd_in_flight") > 0 })
		cancel()
		<-done
		r.await(c.name()+" left", func() bool { return r.metric("xpyd_client_gone_total") == left+1 })
	}
	r.expectNothingHeld()
}

// The cached tokens of an answer are those of the prefill engine, and what is left of the prompt is the rest.
func TestAPIsCachedTokens(t *testing.T) {
	r := newRig(t, rigOptions{engine: func(o *sim.Options) { o.Version = "0.31.4" }})
	if err := r.prefill[0].SetFault(sim.Fault{Kind: sim.FaultCached, Value: 16}); err != nil {
		t.Fatal(err)
	}
	for _, c := range apiCalls(prompt, 3) {
		if c.api == "generate" && c.stream {
			c.more = `,"stream_options":{"include_usage":true}`
		}
		a := r.post(c.path(), c.body())
		r.expectAPI(c, a)
		want := `"cached_tokens":16`
		if c.api == "messages" {
			chat := sim.ChatPrompt(sim.Message{Role: "system", Content: "be brief"}, sim.Message{Role: "user", Content: prompt})
			want = fmt.Sprintf(`"usage":{"input_tokens":%d,"output_tokens":3,"cache_creation_input_tokens":0,"cache_read_input_tokens":16}`, len(tokenIDs(chat))-16)
		}
		if !strings.Contains(a.body, want) {
			t.Errorf("%s: no %s in %s", c.name(), want, a.body)
		}
	}
}

// A key in X-Api-Key opens Anthropic's routes and the list of models, which is in both APIs, and no other.
func TestAPIKeyOfAnthropicsClients(t *testing.T) {
	r := newRig(t, rigOptions{config: func(c *proxy.Config) { c.APIKeys = []string{"sk-right"} }})
	messages := apiCall{api: "messages", prompt: "a", tokens: 2}
	count := `{"model":"sim","messages":[{"role":"user","content":"a"}]}`
	for _, tc := range []struct {
		path, body, header, value string
		status                    int
	}{
		{messages.path(), messages.body(), "X-Api-Key", "sk-right", 200},
		{messages.path(), messages.body(), "X-Api-Key", "sk-wrong", 401},
		{messages.path(), messages.body(), "Authorization", "Bearer sk-right", 200},
		{messages.path(), messages.body(), "X-Other", "", 401},
		{"/v1/messages/count_tokens", count, "X-Api-Key", "sk-right", 200},
		{"/v1/messages/count_tokens", count, "X-Api-Key", "sk-wrong", 401},
		{"/v1/responses", `{"model":"sim","input":"a","max_output_tokens":2}`, "X-Api-Key", "sk-right", 401},
	} {
		a := r.post(tc.path, tc.body, tc.header, tc.value)
		if a.status != tc.status || tc.status == 401 && tc.path != "/v1/responses" && !strings.HasPrefix(a.body, `{"type":"error","error":{"type":"authentication_error","message":"missing or wrong API key; send X-Api-Key: KEY or `) {
			t.Errorf("%s with %s: %d %s", tc.path, tc.header, a.status, a.body)
		}
		if tc.status == 200 && strings.HasSuffix(tc.path, "count_tokens") && !strings.HasPrefix(a.body, `{"input_tokens":`) {
			t.Errorf("count: %s", a.body)
		}
	}
	for key, status := range map[string]int{"sk-right": 200, "sk-wrong": 401} {
		if a := r.send(http.MethodGet, "/v1/models", "", "X-Api-Key", key); a.status != status || status == 401 && !strings.Contains(a.body, "send X-Api-Key: KEY or ") {
			t.Errorf("/v1/models: %d %s, want %d", a.status, a.body, status)
		}
	}
	if a := r.post("/v1/messages/batches", "{}"); a.status != 404 || !strings.Contains(a.body, `"type":"not_found_error"`) {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// A prefill engine that cannot answer a forced call with one token is not to blame. Decode serves it alone.
func TestMessageThatForcesATool(t *testing.T) {
	r := newRig(t, rigOptions{})
	c := apiCall{api: "messages", prompt: prompt + "[[P:status=500]]", tokens: 3, more: `,"tool_choice":{"name":"f","type":"tool"}`}
	a := r.post(c.path(), c.body())
	r.expectAPI(c, a)
	if got := a.header.Get("X-Xpyd-Reason"); got != "tool_choice" {
		t.Errorf("reason %q", got)
	}
}
