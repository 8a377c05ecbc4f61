package main

import (
	"strings"
	"testing"
)

func TestVerdictOnAnAnswer(t *testing.T) {
	const event = `{"choices":[{"text":"ab","finish_reason":null}]}`
	const last = `{"choices":[{"text":"c","finish_reason":"length"}]}`
	const failed = `{"error":{"message":"m","type":"server_error","code":"decode_failed"}}`
	for _, tc := range []struct {
		name   string
		stream []string // nil if it is whole
		cut    bool     // the transfer broke off
		status int
		whole  string
		want   verdict
	}{
		{name: "whole stream", stream: []string{event, last, "[DONE]"}, want: verdictRight},
		{name: "whole answer", status: 200, whole: last, want: verdictWrong}, // its text is "c"
		{name: "right answer", status: 200, whole: `{"choices":[{"message":{"content":"abc"},"finish_reason":"length"}]}`, want: verdictRight},
		{name: "stream that ends in an error", stream: []string{event, failed}, cut: true, want: verdictError},
		{name: "the same, ended like a good one", stream: []string{event, failed, "[DONE]"}, want: verdictWrong},
		{name: "the same, without a break", stream: []string{event, failed}, want: verdictWrong},
		{name: "stream that is cut and says nothing", stream: []string{event}, cut: true, want: verdictWrong},
		{name: "stream cut short and ended like a good one", stream: []string{event, "[DONE]"}, want: verdictWrong},
		{name: "another text before the error", stream: []string{last, failed}, cut: true, want: verdictWrong},
		{name: "error", status: 502, whole: failed, want: verdictError},
		{name: "error that is no JSON", status: 502, whole: "oops", want: verdictWrong},
		{name: "error without a type", status: 502, whole: `{"error":{"message":"m","code":1}}`, want: verdictWrong},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := &teller{want: "abc", status: 200, ask: ask{stream: tc.stream != nil}}
			if tc.stream != nil {
				got.follow(strings.NewReader("data: " + strings.Join(tc.stream, "\n\ndata: ") + "\n\n"))
			} else {
				got.status = tc.status
				got.take([]byte(tc.whole))
			}
			got.broke = tc.cut
			if v := got.verdict(); v != tc.want {
				t.Errorf("verdict %d, want %d: %v", v, tc.want, got)
			}
		})
	}
}
