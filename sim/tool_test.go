package sim_test

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"xpyd/sim"
)

const chatPath = "/v1/chat/completions"

// weather has every kind of value among its required properties, and one that is not.
const weather = `{"type":"function","function":{"name":"weather","parameters":{"type":"object","properties":{
	"town":{"type":"string"},"days":{"type":"integer","minimum":1},"unit":{"enum":["C","F"]},"sea":{"type":"boolean"},
	"where":{"type":["object","null"],"properties":{"land":{"type":"string"}},"required":["land"]},
	"hours":{"type":"array"},"wind":{"type":"string"}},
	"required":["town","days","unit","sea","where","hours"]}}}`

// asking requests a call of weather, without a limit, so that the call is whole.
func asking(choice any, prompt string) body {
	return body{"model": "sim", "tools": []json.RawMessage{json.RawMessage(weather)}, "tool_choice": choice,
		"messages": []sim.Message{{Role: "user", Content: prompt}}}
}

func named(name string) body { return body{"type": "function", "function": body{"name": name}} }

// arguments returns what weather is called with: its required properties in their order, each
// string three words of the answer's text.
func arguments(t *testing.T, prompt string) string {
	t.Helper()
	p := sim.ChatPrompt(sim.Message{Role: "user", Content: prompt})
	town, both := sim.Text(p, 3), sim.Text(p, 6)
	quote := func(s string) string {
		var b strings.Builder
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		if err := e.Encode(strings.TrimSpace(s)); err != nil {
			t.Fatal(err)
		}
		return strings.ReplaceAll(strings.TrimSpace(b.String()), `\u2028`, "\u2028")
	}
	return `{"town": ` + quote(town) + `, "days": 1, "unit": "C", "sea": false, "where": {"land": ` + quote(both[len(town):]) + `}, "hours": []}`
}

// message is a message or a delta.
type message struct {
	Content   *string
	ToolCalls []struct {
		Index    *int
		ID, Type string
		Function struct{ Name, Arguments *string }
	} `json:"tool_calls"`
}

func TestToolCallWhole(t *testing.T) {
	e := start(t, sim.Options{ToolCallParser: "hermes"})
	for _, tc := range []struct {
		name, prompt string
		choice       any
		content      string // as JSON
		reason       string
	}{
		{"required", "Weather?", "required", `""`, "tool_calls"},
		{"named", "Weather?", named("weather"), `""`, "stop"},
		{"auto", "Weather? [[text:tool]]", "auto", "null", "tool_calls"},
		{"look-alikes of [DONE]", "Weather? [[text:done]]", "required", `""`, "tool_calls"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			status, answer := post(t, e.URL()+chatPath, asking(tc.choice, tc.prompt))
			quoted, _ := json.Marshal(arguments(t, tc.prompt))
			want := regexp.MustCompile(`"message":\{"role":"assistant","content":` + tc.content +
				`,"refusal":null,"annotations":null,"audio":null,"function_call":null,"tool_calls":\[\{"id":"chatcmpl-tool-[0-9a-f]{16}",` +
				`"type":"function","function":\{"name":"weather","arguments":` + regexp.QuoteMeta(string(quoted)) +
				`\}\}\],"reasoning":null\},"logprobs":null,"finish_reason":"` + tc.reason + `","stop_reason":null`)
			if status != http.StatusOK || !want.Match(answer) {
				t.Errorf("%d %s, want %s", status, answer, want)
			}
		})
	}
}

// The name comes in one event and the arguments in pieces. The tags around them have no event.
func TestToolCallStreamed(t *testing.T) {
	e := start(t, sim.Options{ToolCallParser: "hermes"})
	for _, tc := range []struct {
		name, prompt string
		choice       any
		reason       string
	}{
		{"required", "Weather?", "required", "tool_calls"},
		{"named", "Weather?", named("weather"), "stop"},
		{"auto", "Weather? [[text:tool]]", "auto", "tool_calls"},
		{"look-alikes of [DONE]", "Weather? [[text:done]]", "required", "tool_calls"},
		{"characters of many bytes", "Weather? [[text:utf8]]", "required", "tool_calls"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			status, answer := post(t, e.URL()+chatPath, asking(tc.choice, tc.prompt).with("stream", true))
			all := events(answer)
			if status != http.StatusOK || len(all) < 10 {
				t.Fatalf("%d %s", status, answer)
			}
			first := regexp.MustCompile(`"choices":\[\{"index":0,"delta":\{"content":null,"tool_calls":\[\{"id":"chatcmpl-tool-[0-9a-f]{16}",` +
				`"type":"function","index":0,"function":\{"name":"weather"\}\}\]\},"logprobs":null,"finish_reason":null,"token_ids":null\}\]\}$`)
			piece := regexp.MustCompile(`"choices":\[\{"index":0,"delta":\{"content":null,"tool_calls":\[\{"index":0,"function":\{"arguments":("(?:[^"\\]|\\.)+")\}\}\]\},` +
				`"logprobs":null,"finish_reason":null,"token_ids":null\}\]\}$`)
			last := `"choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"` + tc.reason + `","stop_reason":null,"token_ids":null}]`
			n := len(all)
			if !strings.Contains(all[0], `"role":"assistant"`) || !first.MatchString(all[1]) || !strings.Contains(all[n-2], last) || all[n-1] != "[DONE]" {
				t.Errorf("%q\n%q\n...\n%q\n%q", all[0], all[1], all[n-2], all[n-1])
			}
			var told strings.Builder
			for _, event := range all[2 : n-2] {
				m := piece.FindStringSubmatch(event)
				if m == nil {
					t.Fatalf("%s, want a piece of the arguments", event)
				}
				var text string
				decodeJSON(t, []byte(m[1]), &text)
				told.WriteString(text)
			}
			if want := arguments(t, tc.prompt); told.String() != want {
				t.Errorf("arguments %.300q, want %.300q", told.String(), want)
			}
		})
	}
}

// A call that the limit cuts short is no call in a whole answer, and part of a call in a stream.
func TestToolCallCutShort(t *testing.T) {
	e := start(t, sim.Options{ToolCallParser: "hermes"})
	want := `<tool_call>` + "\n" + `{"name": "weather", "arguments": ` + arguments(t, "Weather?")
	for _, tokens := range []int{1, 7, 15} {
		b := asking("required", "Weather?").with("max_tokens", tokens)
		_, answer := post(t, e.URL()+chatPath, b)
		if got := text(t, answer); got != want[:4*tokens] || !strings.Contains(string(answer), `"finish_reason":"length"`) || strings.Contains(string(answer), "tool_calls") {
			t.Errorf("%d tokens: %s", tokens, answer)
		}
		_, answer = post(t, e.URL()+chatPath, b.with("stream", true))
		if got := text(t, answer); got != "" || !strings.Contains(string(answer), `"finish_reason":"length"`) ||
			strings.Contains(string(answer), `"name":"weather"`) != (tokens > 7) {
			t.Errorf("%d tokens, streamed: %s", tokens, answer)
		}
	}
}

// A client that asks for the model's own tokens gets all of them, including those without a delta.
func TestToolCallTokenIDs(t *testing.T) {
	e := start(t, sim.Options{ToolCallParser: "hermes"})
	b := asking("required", "Weather?").with("return_token_ids", true)
	_, whole := post(t, e.URL()+chatPath, b)
	_, streamed := post(t, e.URL()+chatPath, b.with("stream", true))
	var answer struct {
		Choices []struct {
			IDs []int `json:"token_ids"`
		}
		Usage struct {
			Completion int `json:"completion_tokens"`
		}
	}
	decodeJSON(t, whole, &answer)
	if n := len(answer.Choices[0].IDs); n != answer.Usage.Completion || len(events(streamed)) != n+2 {
		t.Errorf("%d ids, %d tokens, %d events; want the role, an event a token, and [DONE]", n, answer.Usage.Completion, len(events(streamed)))
	}
}

func TestToolCallOverBothLegs(t *testing.T) {
	p, d := pair(t, sim.Options{ToolCallParser: "hermes"})
	for i, choice := range []any{"required", named("weather")} {
		for j, stream := range []bool{false, true} {
			b := asking(choice, "Weather?").with("stream", stream)
			handle := prefill(t, p, chatPath, b) // one token of the call: text
			_, answer := post(t, d.URL()+chatPath, b.with("kv_transfer_params", handle))
			var told strings.Builder
			if !stream {
				answer = []byte("data: " + string(answer))
			}
			for _, event := range events(answer) {
				var c struct {
					Choices []struct{ Message, Delta message }
				}
				if event == "[DONE]" {
					continue
				}
				decodeJSON(t, []byte(event), &c)
				for _, call := range append(c.Choices[0].Message.ToolCalls, c.Choices[0].Delta.ToolCalls...) {
					if call.Function.Arguments != nil {
						told.WriteString(*call.Function.Arguments)
					}
				}
			}
			if want := arguments(t, "Weather?"); told.String() != want {
				t.Errorf("%v, stream %v: arguments %q, want %q", choice, stream, told.String(), want)
			}
			awaitFreed(t, p, "read", 2*i+j+1)
		}
	}
}

func TestToolChoiceRefused(t *testing.T) {
	bare, parser := start(t, sim.Options{}), start(t, sim.Options{ToolCallParser: "hermes"})
	for _, tc := range []struct {
		name    string
		e       *sim.Engine
		choice  any
		message string // "" is an answer with text
	}{
		{"required without a parser", bare, "required", `tool_choice="required" requires --tool-call-parser to be set`},
		{"named without a parser", bare, named("weather"), `tool_choice=function "weather" requires --tool-call-parser to be set`},
		{"auto without a parser", bare, "auto", `"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set`},
		{"none without a parser", bare, "none", ""},
		{"null without a parser", bare, nil, ""},
		{"auto", parser, "auto", ""},
		{"none", parser, "none", ""},
		{"a function that is not offered", parser, named("news"), "The tool specified in `tool_choice` does not match any of the specified `tools` (parameter=tool_choice)"},
		{"no such mode", parser, "always", "Invalid value for `tool_choice`: always! Only named tools, \"none\", \"auto\" or \"required\" are supported. (parameter=tool_choice)"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			status, answer := post(t, tc.e.URL()+chatPath, asking(tc.choice, "Weather?"))
			if tc.message == "" {
				if got := text(t, answer); status != http.StatusOK || got != sim.Text(sim.ChatPrompt(sim.Message{Role: "user", Content: "Weather?"}), 64) {
					t.Errorf("%d %s", status, answer)
				}
				return
			}
			var refusal struct{ Error struct{ Message string } }
			decodeJSON(t, answer, &refusal)
			if status != http.StatusBadRequest || refusal.Error.Message != tc.message {
				t.Errorf("%d %q, want 400 %q", status, refusal.Error.Message, tc.message)
			}
		})
	}
}

func TestToolCallParserIsKnown(t *testing.T) {
	if err := (sim.Options{ToolCallParser: "other"}).Validate(); err == nil || !strings.Contains(err.Error(), `"other"`) {
		t.Errorf("error %v, want one that names the parser", err)
	}
}
