package kvparams

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// kinds writes a stream as one letter an event: c comment, r role, t content, u usage, e error, d
// done. An event that finishes choices is followed by their number.
func kinds(stream []byte) string {
	var b strings.Builder
	for _, ev := range cutEvents(stream) {
		e := Classify(ev)
		b.WriteByte("crtued"[e.Kind])
		if e.Finished > 0 {
			fmt.Fprint(&b, e.Finished)
		}
		if e.Malformed {
			b.WriteByte('!')
		}
	}
	return b.String()
}

func cutEvents(stream []byte) (events [][]byte) {
	for n := NextEventFrom(stream, 0); n > 0; n = NextEventFrom(stream, 0) {
		events = append(events, stream[:n])
		stream = stream[n:]
	}
	return events
}

func TestRecordedStreams(t *testing.T) {
	want := map[string]string{
		"d-chat-stream.sse":                             "rtttttt1ud",
		"d-completions-stream.sse":                      "tttttt1ud",
		"plain-chat-n2-stream.sse":                      "rrttttt1t1ud",
		"plain-completions-n2-stream.sse":               "ttttt1t1ud",
		"plain-chat-logprobs-stream.sse":                "rttt1d",
		"plain-completions-logprobs-stream.sse":         "ttt1d",
		"plain-chat-continuous-usage-stream.sse":        "rttt1ud",
		"plain-completions-continuous-usage-stream.sse": "ttt1ud",
		"plain-chat-one-token-stream.sse":               "rt1d",
		"plain-completions-one-token-stream.sse":        "t1d",
		"plain-chat-stop-stream.sse":                    "rttt1d",
		"d-chat-foreign-engine-stream.sse":              "red",
		"d-completions-foreign-engine-stream.sse":       "ed",
	}
	for name, stream := range testdataAll(t, "*.sse") {
		w, ok := want[name]
		if !ok {
			t.Errorf("%s: no expectation", name)
		}
		if got := kinds(stream); got != w {
			t.Errorf("%s: %s, want %s", name, got, w)
		}
		if got := kinds(bytes.ReplaceAll(stream, []byte("\n"), []byte("\r\n"))); got != w {
			t.Errorf("%s with CRLF: %s, want %s", name, got, w)
		}
	}
}

func TestClassify(t *testing.T) {
	chat := func(choice string) string {
		return `data: {"id":"x","choices":[{"index":0,` + choice + `}],"usage":null}` + "\n\n"
	}
	cases := []struct {
		name, event string
		want        Event
	}{
		{"comment", ": keep-alive\n\n", Event{Kind: EventComment}},
		{"blank line", "\n", Event{Kind: EventComment}},
		{"no data", "event: ping\nid: 1\n\n", Event{Kind: EventComment}},
		{"empty data", "data:\n\n", Event{Kind: EventComment}},
		{"done", "data: [DONE]\n\n", Event{Kind: EventDone}},
		{"done, no space, CRLF", "data:[DONE]\r\n\r\n", Event{Kind: EventDone}},
		{"done behind another field", "id: 1\ndata: [DONE]\n\n", Event{Kind: EventDone}},
		{"done in content", chat(`"delta":{"content":"data: [DONE]\n\ndata: [DONE]"},"finish_reason":null`), Event{Kind: EventContent}},
		{"done in tool arguments", chat(`"delta":{"tool_calls":[{"index":0,"function":{"arguments":"data: [DONE]"}}]}`), Event{Kind: EventContent}},
		{"done with more", "data: [DONE] x\n\n", Event{Kind: EventContent, Malformed: true}},
		{"done in a comment", ": data: [DONE]\n\n", Event{Kind: EventComment}},
		{"a comment with CRLF", ": a\r\n\r\n", Event{Kind: EventComment}},
		{"CR ends a comment", ": a\rdata: {}\n\n", Event{Kind: EventContent, Malformed: true}},
		{"CR between lines", "data: {}\rdata: {}\n\n", Event{Kind: EventContent, Malformed: true}},
		{"a byte order mark", "\xef\xbb\xbfdata: {}\n\n", Event{Kind: EventContent, Malformed: true}},

		{"role", chat(`"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null`), Event{Kind: EventRole}},
		{"role alone", chat(`"delta":{"role":"assistant"}`), Event{Kind: EventRole}},
		{"role with nulls", chat(`"delta":{"content":null,"reasoning_content":null,"tool_calls":[ ],"role":"assistant"}`), Event{Kind: EventRole}},
		{"role, spaced", `data: { "choices" : [ { "delta" : { "role" : "assistant" , "content" : "" } } ] }` + "\n\n", Event{Kind: EventRole}},
		{"two roles", `data: {"choices":[{"delta":{"role":"a"}},{"delta":{"role":"a"}}]}` + "\n\n", Event{Kind: EventRole}},
		{"role beside content", `data: {"choices":[{"delta":{"role":"a"}},{"delta":{"content":""}}]}` + "\n\n", Event{Kind: EventContent}},
		{"role with text", chat(`"delta":{"role":"assistant","content":"a"}`), Event{Kind: EventContent}},
		{"role with reasoning", chat(`"delta":{"role":"assistant","content":"","reasoning":"a"}`), Event{Kind: EventContent}},
		{"role with an end", chat(`"delta":{"role":"assistant","content":""},"finish_reason":"stop"`), Event{Kind: EventContent, Finished: 1, Which: 1}},
		{"role with logprobs", chat(`"delta":{"role":"assistant","content":""},"logprobs":{"content":[]}`), Event{Kind: EventContent}},
		{"role with token ids", chat(`"delta":{"role":"assistant","content":""},"token_ids":[7]`), Event{Kind: EventContent}},
		{"role null", chat(`"delta":{"role":null,"content":""}`), Event{Kind: EventContent}},

		{"empty text", chat(`"delta":{"content":""},"finish_reason":null`), Event{Kind: EventContent}},
		{"empty delta", chat(`"delta":{},"finish_reason":null`), Event{Kind: EventContent}},
		{"reasoning", chat(`"delta":{"reasoning":"a"}`), Event{Kind: EventContent}},
		{"reasoning_content", chat(`"delta":{"reasoning_content":"a"}`), Event{Kind: EventContent}},
		{"tool call", chat(`"delta":{"tool_calls":[{"id":"c","type":"function","index":0,"function":{"name":"f"}}]}`), Event{Kind: EventContent}},
		{"completions text", `data: {"choices":[{"index":0,"text":"","finish_reason":null}]}` + "\n\n", Event{Kind: EventContent}},
		{"end", chat(`"delta":{},"finish_reason":"tool_calls"`), Event{Kind: EventContent, Finished: 1, Which: 1}},
		{"two ends", `data: {"choices":[{"finish_reason":"stop"},{"finish_reason":null},{"finish_reason":"length"}]}` + "\n\n",
			Event{Kind: EventContent, Finished: 2}},
		{"two ends of one choice", `data: {"choices":[{"index":2,"finish_reason":"stop"},{"finish_reason":"length","index":2}]}` + "\n\n",
			Event{Kind: EventContent, Finished: 1, Which: 4}},
		{"ends of choices without a bit", `data: {"choices":[{"index":64,"finish_reason":"stop"},{"index":"1","finish_reason":"stop"},{"index":-1,"finish_reason":"stop"}]}` + "\n\n",
			Event{Kind: EventContent, Finished: 3}},
		{"abort", chat(`"finish_reason":"abort"`), Event{Kind: EventContent, Finished: 1, Which: 1, Broken: 1}},
		{"error as an end", chat(`"finish_reason":"error"`), Event{Kind: EventContent, Finished: 1, Which: 1, Broken: 1}},
		{"no word for an end", chat(`"delta":{"content":"a"},"finish_reason":""`), Event{Kind: EventContent}},
		{"a number for an end", chat(`"delta":{"content":"a"},"finish_reason":1`), Event{Kind: EventContent}},
		{"role without an end", chat(`"delta":{"role":"assistant","content":""},"finish_reason":""`), Event{Kind: EventRole}},
		{"done and blanks", "data: [DONE] \t\n\n", Event{Kind: EventDone}},
		{"blanks and done", "data:  [DONE]\r\n\r\n", Event{Kind: EventDone}},
		{"an error by name", "event: error\ndata: {\"message\":\"secret\"}\n\n", Event{Kind: EventError}},
		{"an error by its last line", "data: {\"choices\":[{\"text\":\"a\"}]}\r\nevent:ERROR \r\n\r\n", Event{Kind: EventError}},
		{"an error as an object", "data: {\"object\":\"error\",\"message\":\"secret\"}\n\n", Event{Kind: EventError}},
		{"an error in words", "event: error\ndata: secret\n\n", Event{Kind: EventError, Malformed: true}},
		{"an error that says it is done", "event: error\ndata: [DONE]\n\n", Event{Kind: EventError, Malformed: true}},
		{"an error without data", "event: error\n\n", Event{Kind: EventError, Malformed: true}},
		{"an error in a name", "event: no error\ndata: {\"choices\":[]}\n\n", Event{Kind: EventUsage, Usage: NoUsage()}},
		{"end in text", chat(`"delta":{"content":"\"finish_reason\":\"stop\""},"finish_reason":null`), Event{Kind: EventContent}},
		{"end in tool arguments", chat(`"delta":{"tool_calls":[{"finish_reason":"stop"}]},"finish_reason":null`), Event{Kind: EventContent}},
		{"end elsewhere", `data: {"finish_reason":"stop","choices":[{"delta":{"content":"a","finish_reason":"stop"}}]}` + "\n\n", Event{Kind: EventContent}},
		{"escaped key", chat(`"delta":{"content":"a"},"finish_r\u0065ason":"stop"`), Event{Kind: EventContent, Finished: 1, Which: 1}},

		{"usage", `data: {"choices":[],"usage":{"prompt_tokens":1}}` + "\n\n", Event{Kind: EventUsage, Usage: Usage{1, -1, -1}}},
		{"usage, spaced", `data: {"choices" : [ ] ,"usage":{}}` + "\n\n", Event{Kind: EventUsage, Usage: NoUsage()}},
		{"usage with text", `data: {"usage":{"completion_tokens":7,"prompt_tokens":3},"choices":[{"delta":{"content":"a"}}]}` + "\n\n",
			Event{Kind: EventContent, Usage: Usage{3, 7, -1}}},
		{"no choices", `data: {"id":"x"}` + "\n\n", Event{Kind: EventContent}},
		{"error", `data: {"error": {"message": "x", "code": 500}}` + "\n\n", Event{Kind: EventError}},
		{"error text", `data: {"error":"x","choices":[{"finish_reason":"stop"}]}` + "\n\n", Event{Kind: EventError, Finished: 1}},
		{"error null", `data: {"error":null,"choices":[]}` + "\n\n", Event{Kind: EventUsage, Usage: NoUsage()}},
		{"error in text", chat(`"delta":{"content":"{\"error\":{}}"}`), Event{Kind: EventContent}},
		{"error deeper", chat(`"delta":{"error":{"message":"x"}}`), Event{Kind: EventContent}},

		{"not JSON", "data: hello\n\n", Event{Kind: EventContent, Malformed: true}},
		{"cut JSON", "data: {\"choices\":[\n\n", Event{Kind: EventContent, Malformed: true}},
		{"a list", "data: []\n\n", Event{Kind: EventContent, Malformed: true}},
		{"two data lines", "data: {\"choices\":\ndata: [],\ndata: \"usage\":{}}\n\n", Event{Kind: EventUsage, Usage: NoUsage()}},
		{"two documents", "data: {\"choices\":[]}\ndata: [DONE]\n\n", Event{Kind: EventContent, Malformed: true}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if n := NextEventFrom([]byte(c.event+"data: x"), 0); n != len(c.event) {
				t.Errorf("NextEventFrom %d, want %d", n, len(c.event))
			}
			got := Classify([]byte(c.event))
			got.text, got.ids, got.in = 0, 0, places{} // see TestTokensOfAnEvent and proxy/carry
			if got != c.want {
				t.Errorf("%s\n got %+v\nwant %+v", c.event, got, c.want)
			}
			if got.Commits() != (c.want.Kind == EventContent) {
				t.Errorf("Commits %v", got.Commits())
			}
		})
	}
}

// An engine may put many tokens into one event, and a client may ask for that.
func TestTokensOfAnEvent(t *testing.T) {
	chat := func(choice string) string { return `data: {"choices":[{` + choice + `}]}` + "\n\n" }
	long := strings.Repeat("some words ", 100) // 1,100 bytes
	for _, c := range []struct {
		event string
		want  int
	}{
		{chat(`"delta":{"content":"a"}`), 1},
		{chat(`"delta":{"content":""},"finish_reason":"stop"`), 1},
		{chat(`"delta":{"role":"assistant","content":""}`), 0},
		{chat(`"delta":{"content":"` + long + `"}`), 137},
		{chat(`"delta":{"role":"assistant","reasoning":"` + long + `","content":"` + long + `"}`), 275},
		{chat(`"delta":{"tool_calls":[{"index":0,"function":{"arguments":"` + long + `"}}]}`), 117},
		{chat(`"delta":{"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"f","arguments":""}}]}`), 1},
		{chat(`"delta":{"content":"a"},"logprobs":{"content":[{"token":"` + long + `"}]}`), 1},
		{"data: {\"choices\":[{\"text\":\"" + long + "\"}]}\n\n", 137},
		{"data: {\"choices\":[{\"token_ids\":[1,2,3]}]}\n\n", 3},
		{"data: {\"choices\":[{\"token_ids\":[ ]}]}\n\n", 1},
		{"data: {\"choices\":[],\"usage\":{\"completion_tokens\":7}}\n\n", 0},
		{"data: [DONE]\n\n", 0},
	} {
		if got := Classify([]byte(c.event)).Tokens(); got != c.want {
			t.Errorf("%d tokens, want %d: %.100s", got, c.want, c.event)
		}
	}
}

func TestNextEvent(t *testing.T) {
	cases := []struct {
		in   string
		want []string
		rest string
	}{
		{"", nil, ""},
		{"data: a", nil, "data: a"},
		{"data: a\n", nil, "data: a\n"},
		{"data: a\n\n", []string{"data: a\n\n"}, ""},
		{"data: a\n\ndata: b\n\nda", []string{"data: a\n\n", "data: b\n\n"}, "da"},
		{"data: a\r\n\r\ndata: b\r\n\r", []string{"data: a\r\n\r\n"}, "data: b\r\n\r"},
		{"data: a\n\r\n\n", []string{"data: a\n\r\n", "\n"}, ""},
		{"\r\n\ndata: a\n\n", []string{"\r\n", "\n", "data: a\n\n"}, ""},
		{"event: x\ndata: a\ndata: b\n\n", []string{"event: x\ndata: a\ndata: b\n\n"}, ""},
		{"data: a\\n\\n\n\r \n\n", []string{"data: a\\n\\n\n\r \n\n"}, ""},
	}
	for _, c := range cases {
		got, rest := cutAll([]byte(c.in), len(c.in)+1)
		if !slices.Equal(got, c.want) || rest != c.rest {
			t.Errorf("%q: %q rest %q, want %q rest %q", c.in, got, rest, c.want, c.rest)
		}
		for step := 1; step <= len(c.in); step++ {
			if got, rest := cutAll([]byte(c.in), step); !slices.Equal(got, c.want) || rest != c.rest {
				t.Errorf("%q in steps of %d: %q rest %q, want %q rest %q", c.in, step, got, rest, c.want, c.rest)
			}
		}
	}
}

// cutAll feeds stream in steps, as reads would, so that each byte is searched once.
func cutAll(stream []byte, step int) (events []string, rest string) {
	var buf []byte
	for len(stream) > 0 {
		from, n := len(buf), min(step, len(stream))
		buf, stream = append(buf, stream[:n]...), stream[n:]
		for n := NextEventFrom(buf, from); n > 0; n = NextEventFrom(buf, 0) {
			events = append(events, string(buf[:n]))
			buf = buf[n:]
		}
	}
	return events, string(buf)
}

// cachedTokensSpan is where the cached tokens of an event stand.
func cachedTokensSpan(ev []byte) (start, end int, ok bool) {
	list, n := Chat.Figures(ev, 7)
	return list[0].At, list[0].End, n > 0
}

func TestCachedTokensSpan(t *testing.T) {
	ev := slices.Clone(cutEvents(testdata(t, "d-chat-stream.sse"))[7])
	start, end, ok := cachedTokensSpan(ev)
	if !ok || string(ev[start:end]) != "0" || !bytes.HasSuffix(ev[:start], []byte(`"cached_tokens":`)) {
		t.Fatalf("span %d:%d %v in %s", start, end, ok, ev)
	}
	edited := string(ev[:start]) + "208" + string(ev[end:])
	if want := strings.Replace(string(ev), `"cached_tokens":0`, `"cached_tokens":208`, 1); edited != want {
		t.Errorf("edited %s", edited)
	}
	if u := Classify(ev).Usage; u != (Usage{225, 6, 0}) {
		t.Errorf("usage %+v", u)
	}
	for _, without := range []string{
		"data: [DONE]\n\n", ": x\n\n", `data: {"usage":{"cached_tokens":5}}` + "\n\n", `data: {"cached_tokens":5}` + "\n\n",
		`data: {"usage":{"prompt_tokens_details":{"cached_tokens":null}}}` + "\n\n",
		`data: {"usage":{"prompt_tokens_details":{"cached_tokens":"5"}}}` + "\n\n",
		`data: {"a":{"usage":{"prompt_tokens_details":{"cached_tokens":5}}}}` + "\n\n",
		"data: {\"usage\":{\"prompt_tokens_details\":\ndata: {\"cached_tokens\":5}}}\n\n",
		`data: {"usage":{"prompt_tokens_details":{"cached_tokens":5}}`,
	} {
		if s, e, ok := cachedTokensSpan([]byte(without)); ok {
			t.Errorf("%q has a span %d:%d", without, s, e)
		}
	}
	for _, with := range []string{
		"id: 7\ndata:{\"usage\":{\"prompt_tokens_details\":{\"cached_tokens\": 55 }}}\n\n",
		"data:   {\"usage\":{\"prompt_tokens_details\":{\"cached_t\\u006fkens\":55}}}\r\n\r\n",
	} {
		if s, e, ok := cachedTokensSpan([]byte(with)); !ok || with[s:e] != "55" {
			t.Errorf("%q: span %d:%d %v", with, s, e, ok)
		}
	}
}

func TestClassifyAllocates(t *testing.T) {
	usage := cutEvents(testdata(t, "d-chat-stream.sse"))[7]
	run := func() {
		if n := NextEventFrom(contentEvent, 100); n != len(contentEvent) {
			t.Fatal(n)
		}
		Classify(contentEvent)
		Classify(usage)
		cachedTokensSpan(usage)
	}
	if n := testing.AllocsPerRun(100, run); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

// slowClassify is Classify by encoding/json, for valid data on one line without duplicate keys.
func slowClassify(t testing.TB, data []byte) Event {
	m := slow(t, data)
	e := Event{Kind: EventContent}
	choices, list := m["choices"].([]any)
	opening := 0
	for _, v := range choices {
		choice := object(v)
		if reason, _ := choice["finish_reason"].(string); reason != "" {
			bit := uint64(0)
			if n, ok := choice["index"].(json.Number); ok && !strings.HasPrefix(n.String(), "-") {
				if i, err := strconv.Atoi(n.String()); err == nil && i < 64 {
					bit = 1 << i
				}
			}
			if e.Finished++; e.Which&bit != 0 {
				e.Finished--
			}
			e.Which |= bit
			if reason == "error" || reason == "abort" {
				e.Broken++
			}
			continue
		}
		if choice["text"] == nil && choice["logprobs"] == nil && choice["token_ids"] == nil && opens(object(choice["delta"])) {
			opening++
		}
	}
	usage := slowUsage(object(m["usage"]))
	if usage.Prompt >= 0 {
		e.Usage = usage
	}
	switch {
	case m["error"] != nil || m["object"] == "error":
		e.Kind = EventError
	case list && len(choices) == 0:
		e.Kind, e.Usage = EventUsage, usage
	case list && opening == len(choices):
		e.Kind = EventRole
	}
	return e
}

func slowUsage(u map[string]any) Usage {
	count := func(v any) int {
		n, ok := v.(json.Number)
		i, err := strconv.Atoi(string(n))
		if !ok || err != nil || i < 0 {
			return -1
		}
		return i
	}
	return Usage{count(u["prompt_tokens"]), count(u["completion_tokens"]), count(object(u["prompt_tokens_details"])["cached_tokens"])}
}

func opens(delta map[string]any) bool {
	role := false
	for k, v := range delta {
		if k == "role" {
			_, role = v.(string)
			continue
		}
		text, err := json.Marshal(v)
		if err != nil || !slices.Contains([]string{`null`, `""`, `[]`, `{}`}, string(text)) {
			return false
		}
	}
	return role
}

// The end of a stream is found wherever its pieces end.
func TestEndsDone(t *testing.T) {
	for stream, want := range map[string]bool{
		"": false, "data: [DONE]": true, "data:[DONE]\n\n": true, "data: {}\r\n\r\ndata: [DONE]\r\n\r\n": true, "data: {}\n\n": false,
		"data: [DONE]\n\ndata: {}\n\n": false, "data: {\"a\":\"data: [DONE]\n\n": false, "data: {}\n\ndata: [DONE": false, "data: data: [DONE]\n\n": false,
	} {
		for i := range len(stream) + 1 {
			for j := i; j <= len(stream); j++ {
				var end []byte
				for _, piece := range []string{stream[:i], stream[i:j], stream[j:]} {
					end = AppendEnd(end, []byte(piece))
				}
				if EndsDone(end) != want || EndsDone([]byte(stream)) != want || len(end) > longestDone {
					t.Fatalf("%q, %q, %q: want %v, %q is kept", stream[:i], stream[i:j], stream[j:], want, end)
				}
			}
		}
	}
}
