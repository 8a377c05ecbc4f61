package proxy_test

import (
	"net/http"
	"strings"
	"testing"

	"xpyd/kvparams"
	"xpyd/proxy"
	"xpyd/sim"
)

const offered = `,"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}]`

// onlyDecodeCalls is a fleet of which only the decode engines were started with --tool-call-parser.
func onlyDecodeCalls(o *sim.Options) {
	if o.Role == sim.RoleDecode {
		o.ToolCallParser = "hermes"
	}
}

func TestToolsThatPrefillRefusesGoToDecode(t *testing.T) {
	together(t)
	for name, more := range map[string]string{
		"auto":     offered,
		"required": offered + `,"tool_choice":"required"`,
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, rigOptions{engine: onlyDecodeCalls, config: func(c *proxy.Config) { c.DecodeOnly.Enabled = false }})
			for i, want := range []float64{1, 1, 2} { // prefill legs after each request
				c := call{chat: true, prompt: prompt, tokens: 4, more: more}
				if i == 2 {
					c.more = ""
				}
				a := r.call(c)
				if a.status != http.StatusOK {
					t.Fatalf("request %d: %d %s", i+1, a.status, a.body)
				}
				if n := r.metric(`xpyd_leg_requests_total{backend="` + r.prefill[0].URL() + `",leg="prefill"`); n != want {
					t.Errorf("%v prefill legs after %d requests, want %v", n, i+1, want)
				}
			}
			if n := strings.Count(r.logs.String(), "--tool-call-parser"); n != 1 {
				t.Errorf("the log names the flag %d times, want once:\n%s", n, r.logs)
			}
			r.expectNothingHeld()
		})
	}
}

// Where the legs begin together, P may refuse while D waits for its blocks.
func TestToolsThatPrefillRefusesBesideDecode(t *testing.T) {
	dialect, _ := kvparams.Lookup("mooncake")
	r := newRig(t, rigOptions{engine: onlyDecodeCalls, dialect: dialect})
	for i := range 3 {
		c := call{chat: true, prompt: prompt, tokens: 4, more: offered}
		a := r.call(c)
		if a.status != http.StatusOK || a.header.Get("X-Xpyd-Reason") != "prefill_refused" {
			t.Fatalf("request %d: %d %s %s", i+1, a.status, a.header.Get("X-Xpyd-Reason"), a.body)
		}
		if n := r.metric(`xpyd_leg_requests_total{backend="` + r.prefill[0].URL() + `",leg="prefill"`); n != 1 {
			t.Errorf("%v prefill legs after %d requests, want 1", n, i+1)
		}
	}
	r.expectNothingHeld()
}

// P fails a tool call that it was told to make. No flag is to blame for that, whatever another request was refused for.
func TestForcedToolThatPrefillFailsIsNoRefusal(t *testing.T) {
	r := newRig(t, rigOptions{engine: onlyDecodeCalls})
	forced := call{chat: true, prompt: prompt + "[[P:status=500]]", tokens: 4, more: offered + `,"tool_choice":"required"`}
	if a := r.call(forced); a.status != http.StatusOK || a.header.Get("X-Xpyd-Reason") != "tool_choice" {
		t.Fatalf("%d %s %s", a.status, a.header.Get("X-Xpyd-Reason"), a.body)
	}
	if strings.Contains(r.logs.String(), "same flags") {
		t.Errorf("the log blames a flag for a failure:\n%s", r.logs)
	}
	r.expectNothingHeld()
}

func TestToolsGoToThePrefillThatTakesThem(t *testing.T) {
	r := newRig(t, rigOptions{prefill: 2, router: inTurn, engine: func(o *sim.Options) {
		if o.Name != "prefill-0" {
			o.ToolCallParser = "hermes"
		}
	}})
	for range 6 {
		if a := r.call(call{chat: true, prompt: prompt, tokens: 4, more: offered}); a.status != http.StatusOK {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	if n := r.metric(`xpyd_decisions_total{path="decode_only"`); n != 1 {
		t.Errorf("%v requests had no prefill, want the one from which xpyd learns that an engine refuses tools", n)
	}
}

// What P's flags may forbid is put to D. What no flag decides is P's to refuse.
func TestPrefillRefusals(t *testing.T) {
	together(t)
	short := func(o *sim.Options) {
		if o.Role == sim.RolePrefill {
			o.MaxModelLen = 256
		}
	}
	long := strings.Repeat("a long prompt ", 300)
	picture := `,"messages":[{"role":"user","content":[{"type":"text","text":"[[P:status=400]]"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]}]`
	for name, tc := range map[string]struct {
		engine func(o *sim.Options)
		path   string
		body   string
		status int
	}{
		"media":                     {nil, "/v1/chat/completions", `{"model":"sim","max_tokens":4` + picture + `}`, 200},
		"longer than P's model":     {short, "/v1/completions", `{"model":"sim","max_tokens":4,"prompt":"` + long + `"}`, 200},
		"longer than both models":   {func(o *sim.Options) { o.MaxModelLen = 256 }, "/v1/completions", `{"model":"sim","max_tokens":4,"prompt":"` + long + `"}`, 400},
		"nothing that a flag rules": {nil, "/v1/completions", `{"model":"sim","max_tokens":4,"prompt":"[[P:status=400]]"}`, 400},
		"tools that may not be called": {nil, "/v1/chat/completions", `{"model":"sim","max_tokens":4,"tool_choice":"none"` + offered +
			`,"messages":[{"role":"user","content":"[[P:status=400]]"}]}`, 400},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, rigOptions{engine: tc.engine})
			a := r.post(tc.path, tc.body)
			legs := r.metric(`xpyd_leg_requests_total{backend="` + r.decode[0].URL() + `",leg="decode"`)
			if a.status != tc.status || (legs > 0) != (tc.status == 200) {
				t.Errorf("%d %s with %v decode legs, want %d", a.status, a.body, legs, tc.status)
			}
			r.expectNothingHeld()
		})
	}
}
