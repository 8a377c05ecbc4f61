package verify

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// of reads a whole answer.
func of(t *testing.T, status int, body string) *answer {
	t.Helper()
	a := &answer{status: status}
	if err := a.readWhole(strings.NewReader(body)); err != nil {
		t.Fatal(err)
	}
	return a
}

func TestDifference(t *testing.T) {
	const same = `{"choices":[{"index":0,"text":"é one","finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":2}}`
	const call = `{"choices":[{"index":0,"message":{"content":null,"tool_calls":[{"id":"%s","function":{"name":"f","arguments":"{%s}"}}]},"finish_reason":"tool_calls"}]}`
	const sure = `{"choices":[{"index":0,"text":"a","finish_reason":"length","logprobs":{"tokens":["a"],"token_logprobs":[%v],"top_logprobs":[{"a":%[1]v}]}}]}`
	for _, tc := range []struct {
		name       string
		want, got  string
		status     int // of got; 200 of want
		difference string
	}{
		{"nothing", same, same, 200, ""},
		{"another id of the same call", fmt.Sprintf(call, "1", ""), fmt.Sprintf(call, "2", ""), 200, ""},
		{"logprobs that rounding explains", fmt.Sprintf(sure, -1.0), fmt.Sprintf(sure, -1.05), 200, ""},
		{"the order of choices", `{"choices":[{"index":0,"text":"a"},{"index":1,"text":"b"}]}`, `{"choices":[{"index":1,"text":"b"},{"index":0,"text":"a"}]}`, 200, ""},
		{"text", same, strings.Replace(same, "one", "two", 1), 200, "the text differs from character 3 of 5 on"},
		{"finish", same, strings.Replace(same, "stop", "length", 1), 200, `finish_reason "length", decode alone has "stop"`},
		{"usage", same, strings.Replace(same, `"prompt_tokens":5`, `"prompt_tokens":6`, 1), 200, "usage says 6 prompt and 2 completion tokens, decode alone 5 and 2"},
		{"status", same, same, 201, "status 201, decode alone answers 200"},
		{"choices", same, `{"choices":[]}`, 200, "0 choices, decode alone has 1"},
		{"arguments", fmt.Sprintf(call, "1", ""), fmt.Sprintf(call, "1", " "), 200, "other tool calls: 1, decode alone makes 1"},
		{"reasoning", `{"choices":[{"message":{"reasoning":"a"}}]}`, `{"choices":[{"message":{"reasoning":"b"}}]}`, 200, "the reasoning differs from character 1 of 1 on"},
		{"logprobs", fmt.Sprintf(sure, -1.0), fmt.Sprintf(sure, -1.3), 200, "log probabilities differ by up to 0.300"},
		{"error", `{"error":{"message":"a","code":400,"param":["x"]}}`, `{"error":{"message":"b","code":400,"param":["x"]}}`, 200, "another error than decode alone with status 200"},
	} {
		if got := difference(of(t, 200, tc.want), of(t, tc.status, tc.got)); got != tc.difference {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.difference)
		}
	}
}

// TestExcuse: two servers answer with different texts. Whether that is wrong depends on how sure
// decode alone is of its own.
func TestExcuse(t *testing.T) {
	for _, tc := range []struct {
		name        string
		alone       string // log probabilities of the second token: "b" and, in its place, "c"
		first       string // of the first token, through the proxy; −0.5 of decode alone
		state       State
		contradicts string
	}{
		{name: "as good as equal", alone: `-0.70,-0.72`, first: "-0.51", state: Unknown, contradicts: "place 2 are 0.020 apart"},
		{name: "decode is sure", alone: `-0.1,-3.5`, first: "-0.5", state: Fail, contradicts: "the text differs from character 2 of 2 on"},
		{name: "equal, but all is shifted", alone: `-0.70,-0.72`, first: "-0.9", state: Fail, contradicts: "the text differs"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b, c, _ := strings.Cut(tc.alone, ",")
			serve := func(second, first, logprob string) string {
				s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					var asked map[string]any
					if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
						t.Error(err)
					}
					logprobs := "null"
					if asked["logprobs"] != nil {
						logprobs = fmt.Sprintf(`{"tokens":["a",%q],"token_logprobs":[%s,%s],"top_logprobs":[{"a":%[2]s},{"b":%[4]s,"c":%[5]s}]}`, second, first, logprob, b, c)
					}
					fmt.Fprintf(w, `{"choices":[{"index":0,"text":"a%s","finish_reason":"length","logprobs":%s}]}`, second, logprobs)
				}))
				t.Cleanup(s.Close)
				return s.URL
			}
			r := newRun(Options{URL: serve("c", tc.first, c), Decode: []string{serve("b", "-0.5", b)}, Timeout: time.Minute})
			_, row := r.same(context.Background(), completions, r.greedy(completions, "any", 2))
			if row == nil || row.State != tc.state || !strings.Contains(row.Detail, tc.contradicts) {
				t.Errorf("%+v, want %s and %q", row, tc.state, tc.contradicts)
			}
		})
	}
}

// TestStreamsAreRead: a stream gives the same answer as a whole body, and a broken one none.
func TestStreamsAreRead(t *testing.T) {
	const role, a, b = `{"id":"x","choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}`, `{"choices":[{"index":0,"delta":{"content":"a","tool_calls":[{"index":0,"function":{"name":"f","arguments":"{"}}]}}]}`,
		`{"choices":[{"index":0,"delta":{"content":"b","tool_calls":[{"index":0,"function":{"arguments":"}"}}]},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":2}}`
	whole := of(t, 200, `{"id":"x","choices":[{"index":0,"message":{"content":"ab","tool_calls":[{"function":{"name":"f","arguments":"{}"}}]},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":2}}`)
	for _, tc := range []struct {
		events []string
		rest   string
		fails  string
	}{
		{events: []string{role, a, b, "[DONE]"}},
		{events: []string{role, a, b}, fails: "without [DONE]"},
		{events: []string{role, a, b, "[DONE]", a}, fails: "an event after [DONE]"},
		{events: []string{role, `{"error":{"message":"broke"}}`, "[DONE]"}, fails: "an error event: broke"},
		{events: []string{role, "{"}, fails: "read an event"},
		{events: []string{role}, rest: "data: {", fails: "unexpected EOF"},
	} {
		var text strings.Builder
		for _, e := range tc.events {
			fmt.Fprintf(&text, "data: %s\n\n", e)
		}
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
			fmt.Fprint(w, text.String()+tc.rest)
		}))
		r := newRun(Options{URL: s.URL, Timeout: time.Minute})
		got, err := r.through(context.Background(), chat, nil)
		s.Close()
		switch {
		case tc.fails == "" && (err != nil || difference(whole, got) != ""):
			t.Errorf("%q: %v", tc.events, err)
		case tc.fails != "" && (err == nil || !strings.Contains(err.Error(), tc.fails)):
			t.Errorf("%q: %v, want %q", tc.events, err, tc.fails)
		}
	}
}
