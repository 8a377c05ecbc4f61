package sim_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"xpyd/sim"
)

// callAPI is how one API asks for a call of weather, and how it shows one.
type callAPI struct {
	path     string
	required any
	named    func(string) any
	ask      func(choice any) body
	reason   string // in a whole answer of a call
	cut      string // in an answer that the limit cut short
}

func weatherSchema(t *testing.T) json.RawMessage {
	t.Helper()
	var offered struct {
		Function struct{ Parameters json.RawMessage }
	}
	decodeJSON(t, []byte(weather), &offered)
	return offered.Function.Parameters
}

func callAPIs(t *testing.T) []callAPI {
	schema := weatherSchema(t)
	return []callAPI{
		{path: "/v1/messages", required: body{"type": "any"}, reason: `"stop_reason":"tool_use"`, cut: `"stop_reason":"max_tokens"`,
			named: func(name string) any { return body{"type": "tool", "name": name} },
			ask: func(choice any) body {
				return body{"model": "sim", "max_tokens": 300, "tool_choice": choice, "tools": []body{{"name": "weather", "input_schema": schema}},
					"messages": []sim.Message{{Role: "user", Content: "Weather?"}}}
			}},
		{path: "/v1/responses", required: "required", reason: `"status":"completed"`, cut: `"status":"incomplete"`, named: func(name string) any { return body{"type": "function", "name": name} },
			ask: func(choice any) body {
				return body{"model": "sim", "max_output_tokens": 300, "tool_choice": choice, "input": "Weather?",
					"tools": []body{{"type": "web_search"}, {"type": "function", "name": "weather", "parameters": schema}}}
			}},
	}
}

// wholeCall is a call in a whole answer of either API.
type wholeCall struct {
	Type, ID, Name, Arguments string
	Input                     json.RawMessage
}

func calledIn(t *testing.T, answer []byte) wholeCall {
	t.Helper()
	var a struct{ Content, Output []wholeCall }
	decodeJSON(t, answer, &a)
	all := append(a.Content, a.Output...)
	if len(all) != 1 {
		t.Fatalf("%d parts, want one: %s", len(all), answer)
	}
	return all[0]
}

// sameJSON compares what both texts mean.
func sameJSON(t *testing.T, got, want string) {
	t.Helper()
	var g, w any
	decodeJSON(t, []byte(got), &g)
	decodeJSON(t, []byte(want), &w)
	a, _ := json.Marshal(g)
	b, _ := json.Marshal(w)
	if string(a) != string(b) {
		t.Errorf("arguments %s, want %s", a, b)
	}
}

func TestCallsOfMessagesAndResponses(t *testing.T) {
	e := start(t, sim.Options{ToolCallParser: "hermes"})
	for _, api := range callAPIs(t) {
		for _, choice := range []any{api.required, api.named("weather")} {
			status, answer := post(t, e.URL()+api.path, api.ask(choice))
			c := calledIn(t, answer)
			if status != http.StatusOK || c.Name != "weather" || c.ID == "" || c.Type != "tool_use" && c.Type != "function_call" || !strings.Contains(string(answer), api.reason) {
				t.Errorf("%s: %d %s", api.path, status, answer)
			}
			sameJSON(t, c.Arguments+string(c.Input), arguments(t, "Weather?"))
			_, stream := post(t, e.URL()+api.path, api.ask(choice).with("stream", true))
			checkCallStream(t, api, string(stream))
		}
	}
}

// checkCallStream expects the name in one event, then the arguments in pieces, then the end.
func checkCallStream(t *testing.T, api callAPI, stream string) {
	t.Helper()
	var told strings.Builder
	pieces := 0
	for _, event := range events([]byte(stream)) {
		var e struct {
			Type      string
			Arguments string
			Delta     json.RawMessage
		}
		decodeJSON(t, []byte(event), &e)
		switch e.Type {
		case "content_block_delta":
			var delta struct {
				Type    string
				Partial string `json:"partial_json"`
			}
			decodeJSON(t, e.Delta, &delta)
			if delta.Type != "input_json_delta" {
				t.Errorf("a delta of type %s", delta.Type)
			}
			told.WriteString(delta.Partial)
			pieces++
		case "response.function_call_arguments.delta":
			var delta string
			decodeJSON(t, e.Delta, &delta)
			told.WriteString(delta)
			pieces++
		case "response.function_call_arguments.done":
			if e.Arguments != told.String() {
				t.Errorf("done with %q after %q", e.Arguments, told.String())
			}
		}
	}
	if want := arguments(t, "Weather?"); told.String() != want || pieces < 4 {
		t.Errorf("%s: %d pieces of %q, want %q", api.path, pieces, told.String(), want)
	}
	if !strings.Contains(stream, api.reason) || strings.Contains(stream, "text_delta") || strings.Contains(stream, "output_text") {
		t.Errorf("%s: want %s and no text in %s", api.path, api.reason, stream)
	}
}

// A call that the limit cuts short is text in a whole answer. A stream shows what was there.
func TestCallsOfMessagesAndResponsesCutShort(t *testing.T) {
	e := start(t, sim.Options{ToolCallParser: "hermes"})
	for _, api := range callAPIs(t) {
		for _, tokens := range []int{1, 7, 15} {
			b := api.ask(api.required).with("max_tokens", tokens).with("max_output_tokens", tokens)
			_, answer := post(t, e.URL()+api.path, b)
			if c := calledIn(t, answer); c.Type != "text" && c.Type != "message" || !strings.Contains(string(answer), api.cut) {
				t.Errorf("%s, %d tokens: %s", api.path, tokens, answer)
			}
			_, stream := post(t, e.URL()+api.path, b.with("stream", true))
			if !strings.Contains(string(stream), api.cut) || strings.Contains(string(stream), `"name":"weather","input":{}`) != (tokens > 7 && api.path == "/v1/messages") ||
				strings.Contains(string(stream), "function_call_arguments.done") != (tokens > 7 && api.path == "/v1/responses") {
				t.Errorf("%s, %d tokens, streamed: %s", api.path, tokens, stream)
			}
		}
	}
}

func TestCallsOfMessagesAndResponsesRefused(t *testing.T) {
	bare, parser := start(t, sim.Options{}), start(t, sim.Options{ToolCallParser: "hermes"})
	for i, api := range callAPIs(t) {
		status, answer := post(t, parser.URL()+api.path, api.ask(api.named("news")))
		if status != http.StatusBadRequest || !strings.Contains(string(answer), "tool_choice") {
			t.Errorf("%s names what is not offered: %d %s", api.path, status, answer)
		}
		// Without a parser messages are refused as chats are. A response is text.
		if status, answer := post(t, bare.URL()+api.path, api.ask(api.required)); status != []int{400, 200}[i] || strings.Contains(string(answer), `"function_call"`) {
			t.Errorf("%s without a parser: %d %s", api.path, status, answer)
		}
		for _, choice := range []any{nil, map[int]any{0: body{"type": "none"}, 1: "none"}[i]} {
			if status, answer := post(t, parser.URL()+api.path, api.ask(choice)); status != http.StatusOK || calledIn(t, answer).Name != "" {
				t.Errorf("%s, %v: %d %s", api.path, choice, status, answer)
			}
		}
	}
}
