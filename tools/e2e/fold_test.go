package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// stream returns an answer as readStream takes it.
func stream(events ...string) string {
	return "data: " + strings.Join(events, "\n\ndata: ") + "\n\n"
}

func read(t *testing.T, text string) answer {
	t.Helper()
	var a answer
	if err := a.readStream(strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	a.strip()
	return a
}

func whole(t *testing.T, text string) answer {
	t.Helper()
	v, err := decode(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	a := answer{content: v}
	a.strip()
	return a
}

const usage = `{"id":"a","choices":[],"usage":{"prompt_tokens":3,"prompt_tokens_details":{"cached_tokens":2}}}`

// The same tokens in events of other sizes, and in another order of the choices, fold to the same.
func TestStreamsThatSayTheSame(t *testing.T) {
	one := read(t, stream(
		`{"id":"a","created":1,"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}`,
		`{"id":"a","created":1,"choices":[{"index":0,"delta":{"content":"ab"},"token_ids":[1,2],"logprobs":{"content":[{"logprob":-1.0},{"logprob":-2}]},"finish_reason":null}]}`,
		`{"id":"a","created":1,"choices":[{"index":0,"delta":{"content":"c"},"token_ids":[3],"finish_reason":"stop"}]}`,
		`{"id":"a","created":1,"choices":[{"index":1,"delta":{"tool_calls":[{"index":0,"id":"x","function":{"arguments":"{}"}}]},"finish_reason":"stop"}]}`,
		usage, "[DONE]"))
	other := read(t, stream(
		`{"id":"b","created":2,"choices":[{"index":1,"delta":{"tool_calls":[{"index":0,"id":"y","function":{"arguments":"{"}}]}}]}`,
		`{"id":"b","created":2,"choices":[{"index":1,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"}"}}]},"finish_reason":"stop"}]}`,
		`{"id":"b","created":2,"choices":[{"index":0,"delta":{"role":"assistant","content":"a"},"token_ids":[1],"logprobs":{"content":[{"logprob":-1.0}]}}]}`,
		`{"id":"b","created":2,"choices":[{"index":0,"delta":{"content":"bc"},"token_ids":[2,3],"logprobs":{"content":[{"logprob":-2.00001}]},"finish_reason":"stop"}]}`,
		strings.Replace(usage, `"a"`, `"b"`, 1), "[DONE]"))
	c := comparison{tolerance: 1e-4}
	c.compare("answer", one.content, other.content)
	if len(c.diffs)+len(one.problems)+len(other.problems) > 0 {
		t.Errorf("diffs %q, problems %q and %q", c.diffs, one.problems, other.problems)
	}
	if one.cached == nil || one.cached != other.cached || one.promptTokens() != 3 {
		t.Errorf("cached_tokens %v and %v, prompt tokens %d", one.cached, other.cached, one.promptTokens())
	}
	if c.worst == 0 {
		t.Error("the difference of logprobs was not seen")
	}
}

// These must never count as the same.
func TestStreamsThatDiffer(t *testing.T) {
	const good = `{"choices":[{"index":0,"text":"ab","token_ids":[1,2],"finish_reason":"stop","logprobs":{"token_logprobs":[-1]}}],"usage":{"completion_tokens":2}}`
	for _, tc := range []struct{ name, bad string }{
		{"text", strings.Replace(good, "ab", "aB", 1)},
		{"token id", strings.Replace(good, "[1,2]", "[1,3]", 1)},
		{"token missing", strings.Replace(good, "[1,2]", "[1]", 1)},
		{"finish reason", strings.Replace(good, "stop", "length", 1)},
		{"no finish reason", strings.Replace(good, `"stop"`, "null", 1)},
		{"logprob beyond the tolerance", strings.Replace(good, "[-1]", "[-1.001]", 1)},
		{"usage", strings.Replace(good, `"completion_tokens":2`, `"completion_tokens":3`, 1)},
		{"no usage", strings.Replace(good, `{"completion_tokens":2}`, "null", 1)},
		{"a choice more", strings.Replace(good, `"choices":[`, `"choices":[{"index":1},`, 1)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := comparison{tolerance: 1e-4}
			c.compare("answer", whole(t, good).content, whole(t, tc.bad).content)
			if len(c.diffs) == 0 {
				t.Error("no difference found")
			}
			c = comparison{tolerance: 1e-4}
			c.compare("answer", read(t, stream(good, "[DONE]")).content, read(t, stream(tc.bad, "[DONE]")).content)
			if len(c.diffs) == 0 {
				t.Error("no difference found in the stream")
			}
		})
	}
}

func TestStreamsWithProblems(t *testing.T) {
	const good = `{"id":"a","choices":[{"index":0,"text":"b","finish_reason":"stop"}]}`
	for _, tc := range []struct {
		name string
		text string
	}{
		{"no end", stream(good)},
		{"two ends", stream(good, "[DONE]", "[DONE]")},
		{"an event after the end", stream("[DONE]", good)},
		{"an error event", stream(good, `{"id":"a","error":{"code":500}}`, "[DONE]")},
		{"another id", stream(good, strings.Replace(good, `"a"`, `"c"`, 1), "[DONE]")},
		{"no JSON", stream(good, `{"id":`, "[DONE]")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if a := read(t, tc.text); len(a.problems) == 0 {
				t.Error("no problem found")
			}
		})
	}
	c := comparison{}
	c.compare("answer", read(t, stream(good, "[DONE]")).content, read(t, stream(good, `{"id":"a","choices":[{"index":0,"finish_reason":"stop"}]}`, "[DONE]")).content)
	if len(c.diffs) == 0 {
		t.Error("a finish_reason that came twice is no difference")
	}
}

// Every request of the exactness check has its own id and text, there are enough, and none ends an
// engine.
func TestCases(t *testing.T) {
	for _, kv := range connectors() {
		t.Run(kv.name, func(t *testing.T) { testCases(t, kv) })
	}
}

func testCases(t *testing.T, kv connector) {
	all := cases(1, 1, kv)
	seen := map[string]bool{}
	streams := 0
	for _, c := range all {
		if seen[c.id] || seen[string(c.request.body)] && c.status == 200 {
			t.Errorf("%v comes twice", c)
		}
		seen[c.id], seen[string(c.request.body)] = true, true
		var body struct{ Prompt []int }
		if json.Unmarshal(c.request.body, &body) == nil && slices.Contains(kv.lethal, len(body.Prompt)) {
			t.Errorf("%v: its prompt of %d tokens ends an engine", c, len(body.Prompt))
		}
		if c.stream {
			streams++
		}
	}
	if len(all) < 300 || streams < len(all)/3 {
		t.Errorf("%d requests, %d of them streamed", len(all), streams)
	}
}
