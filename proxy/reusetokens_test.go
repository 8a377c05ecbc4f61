package proxy_test

import (
	"strings"
	"testing"

	"xpyd/proxy"
	"xpyd/sim"
)

// askReusing sends a chat of each form through engines of the connector and version, and returns the
// records of both legs. Each answer must be the text that one engine alone would give.
func askReusing(t *testing.T, prompt, more string, config func(*proxy.Config), engine func(*sim.Options)) (legs []sim.Record) {
	t.Helper()
	r := newRig(t, rigOptions{config: config, engine: engine})
	for _, stream := range []bool{false, true} {
		c := call{chat: true, stream: stream, prompt: prompt, tokens: 6, more: more}
		a := r.call(c)
		r.expectWhole(c, a)
		if strings.Contains(a.body, `"prompt_token_ids":[`) != strings.Contains(more, "return_token_ids\":true") {
			t.Errorf("ids of the prompt in the client's answer: %s", a.body)
		}
	}
	r.expectNothingHeld()
	legs = append(r.prefill[0].Requests(), r.decode[0].Requests()...)
	if len(legs) != 4 {
		t.Fatalf("%d legs, want 4", len(legs))
	}
	for _, leg := range legs {
		if leg.Status != 200 || leg.WrongKV {
			t.Errorf("%s: status %d, wrong KV %v", leg.Leg, leg.Status, leg.WrongKV)
		}
	}
	if strings.Contains(r.logs.String(), "prompt_token_ids") {
		t.Error("ids in the log")
	}
	return legs
}

// Decode gets the ids of a long prompt's tokens from the prefill, and tokenises no message. Where that
// cannot be, it gets the same body as ever.
func TestDecodeGetsTheTokensOfThePrefill(t *testing.T) {
	together(t)
	long := strings.Repeat("abcd \u00e4\u4e16 ", 60)
	for _, c := range []struct {
		name, prompt, more, connector, version string
		from, answer                           int64
		reused                                 bool
	}{
		{name: "long", reused: true},
		{name: "client wants ids too", more: `,"return_token_ids":true`, reused: true},
		{name: "client wants no ids", more: `,"return_token_ids":false`, reused: true},
		{name: "push", connector: "nixl-push", reused: true},
		{name: "short", prompt: "abcd"},
		{name: "off", from: -1},
		{name: "the answer might be too large", answer: 4096},
		{name: "truncated", more: `,"truncate_prompt_tokens":100000`},
		{name: "older engines", version: "0.31.0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			prompt := c.prompt
			if prompt == "" {
				prompt = long
			}
			legs := askReusing(t, prompt, c.more, func(p *proxy.Config) {
				p.KV.ReuseTokensFrom = max(0, 512+c.from*512)
				if c.connector != "" {
					p.Connector = c.connector
				}
				if c.answer > 0 {
					p.Limits.Answer = c.answer
				}
			}, func(o *sim.Options) {
				if c.connector != "" {
					o.Connector = sim.Connector(c.connector)
				}
				if c.version != "" {
					o.Version = c.version
				}
			})
			for i, leg := range legs {
				if want := c.reused && i >= 2; leg.PromptIDs != want {
					t.Errorf("leg %d (%s): ids in place of messages %v, want %v", i, leg.Leg, leg.PromptIDs, want)
				}
			}
		})
	}
}
