package sim_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"xpyd/sim"
)

// start runs an engine for the length of the test.
func start(t *testing.T, o sim.Options) *sim.Engine {
	t.Helper()
	e, err := sim.Start(o.Fast())
	if err != nil {
		t.Fatalf("start engine: %v", err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Errorf("close engine: %v", err)
		}
	})
	return e
}

// pair starts a prefill and a decode engine.
func pair(t *testing.T, o sim.Options) (p, d *sim.Engine) {
	t.Helper()
	o.Role, o.Name = sim.RolePrefill, "p1"
	p = start(t, o)
	o.Role, o.Name = sim.RoleDecode, "d1"
	return p, start(t, o)
}

// body is a JSON object under construction.
type body map[string]any

func (b body) with(name string, value any) body {
	c := body{name: value}
	for k, v := range b {
		if k != name {
			c[k] = v
		}
	}
	return c
}

const prefillFlags = `{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,` +
	`"remote_block_ids":null,"remote_host":null,"remote_port":null}`

// post sends a request and reads the whole answer.
func post(t *testing.T, url string, b body, headers ...string) (int, []byte) {
	t.Helper()
	status, answer, err := tryPost(url, b, headers...)
	if err != nil {
		t.Fatalf("post %s: %v", url, err)
	}
	return status, answer
}

func tryPost(url string, b body, headers ...string) (int, []byte, error) {
	raw, err := json.Marshal(b)
	if err != nil {
		return 0, nil, err
	}
	req, err := http.NewRequest(http.MethodPost, url, bytes.NewReader(raw))
	if err != nil {
		return 0, nil, err
	}
	req.Close = true
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	return resp.StatusCode, answer, err
}

// prefill runs the first leg of b and returns the handle.
func prefill(t *testing.T, p *sim.Engine, path string, b body) json.RawMessage {
	t.Helper()
	leg := b.with("max_tokens", 1).with("stream", false).with("kv_transfer_params", json.RawMessage(prefillFlags))
	delete(leg, "stream_options")
	status, answer := post(t, p.URL()+path, leg, "X-Request-Id", "rid-1")
	if status != http.StatusOK {
		t.Fatalf("prefill: %d %s", status, answer)
	}
	var reply struct {
		Handle json.RawMessage `json:"kv_transfer_params"`
	}
	decodeJSON(t, answer, &reply)
	if len(reply.Handle) < 10 {
		t.Fatalf("prefill gave no handle: %s", answer)
	}
	return reply.Handle
}

func decodeJSON(t *testing.T, raw []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(raw, into); err != nil {
		t.Fatalf("parse %q: %v", raw, err)
	}
}

// text returns what an answer says in its first choice, streamed or not.
func text(t *testing.T, answer []byte) string {
	t.Helper()
	if bytes.HasPrefix(answer, []byte("{")) {
		return choiceText(t, answer)
	}
	var b strings.Builder
	for _, event := range events(answer) {
		if event != "[DONE]" && !strings.Contains(event, `"choices":[]`) {
			b.WriteString(choiceText(t, []byte(event)))
		}
	}
	return b.String()
}

func choiceText(t *testing.T, raw []byte) string {
	t.Helper()
	var c struct {
		Choices []struct {
			Text           string
			Message, Delta struct{ Content string }
		}
	}
	decodeJSON(t, raw, &c)
	if len(c.Choices) == 0 {
		t.Fatalf("no choice in %s", raw)
	}
	return c.Choices[0].Text + c.Choices[0].Message.Content + c.Choices[0].Delta.Content
}

// events returns the payloads of a stream's events.
func events(stream []byte) []string {
	var all []string
	for line := range strings.Lines(string(stream)) {
		if payload, ok := strings.CutPrefix(strings.TrimRight(line, "\r\n"), "data: "); ok {
			all = append(all, payload)
		}
	}
	return all
}

// await polls until the condition holds.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 20s: %s", what)
		}
	}
}

// awaitFreed waits until nothing is pinned and checks how the blocks were freed.
func awaitFreed(t *testing.T, e *sim.Engine, by string, count int) {
	t.Helper()
	await(t, "blocks free", func() bool { l := e.Ledger(); return l.Pinned == 0 && l.FreedBy[by] >= count })
	l := e.Ledger()
	for other, n := range l.FreedBy {
		if other != by && n > 0 || other == by && n != count {
			t.Errorf("freed by %s: %d, want only %s: %d", other, n, by, count)
		}
	}
}

var chatBody = body{"model": "sim", "max_tokens": 9, "temperature": 0,
	"messages": []sim.Message{{Role: "system", Content: "be brief"}, {Role: "user", Content: "tell me of the harbour at night, and why"}}}

var textBody = body{"model": "sim", "max_tokens": 9, "prompt": "once upon a time in a harbour far away"}

func chatText(n int) string {
	return sim.Text(sim.ChatPrompt(chatBody["messages"].([]sim.Message)...), n)
}

func TestBothLegsAnswerAsOneEngine(t *testing.T) {
	p, d := pair(t, sim.Options{})
	plain := start(t, sim.Options{})
	cases := []struct {
		name, path string
		b          body
		want       string
	}{
		{"chat", "/v1/chat/completions", chatBody, chatText(9)},
		{"chat streamed", "/v1/chat/completions", chatBody.with("stream", true), chatText(9)},
		{"completions", "/v1/completions", textBody, sim.Text(textBody["prompt"].(string), 9)},
		{"completions streamed", "/v1/completions", textBody.with("stream", true), sim.Text(textBody["prompt"].(string), 9)},
		{"token ids", "/v1/completions", textBody.with("prompt", []int{5, 6, 7, 1819043144}), sim.Text(sim.TokensPrompt(5, 6, 7, 1819043144), 9)},
	}
	for i, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			_, alone := post(t, plain.URL()+tc.path, tc.b)
			if got := text(t, alone); got != tc.want {
				t.Errorf("one engine says %q, want %q", got, tc.want)
			}
			handle := prefill(t, p, tc.path, tc.b)
			if p.Ledger().Pinned == 0 {
				t.Error("nothing pinned between the legs")
			}
			status, answer := post(t, d.URL()+tc.path, tc.b.with("kv_transfer_params", handle))
			if status != http.StatusOK {
				t.Fatalf("decode: %d %s", status, answer)
			}
			if got := text(t, answer); got != tc.want {
				t.Errorf("the pair says %q, want %q", got, tc.want)
			}
			awaitFreed(t, p, "read", i+1)
		})
	}
	if l := p.Ledger(); l.StaleReads != 0 || len(l.Entries) != len(cases) {
		t.Errorf("ledger: %d stale reads, %d entries, want 0 and %d", l.StaleReads, len(l.Entries), len(cases))
	}
}
