package proxy_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// An answer is whole once each of its choices has ended, however often one of them ends.
func TestEachChoiceMustEnd(t *testing.T) {
	together(t)
	end := func(index int) string {
		return fmt.Sprintf(`data: {"choices":[{"index":%d,"text":"a","finish_reason":"stop"}]}`+"\n\n", index)
	}
	const done = "data: [DONE]\n\n"
	two := `{"choices":[{"index":0,"text":"a","finish_reason":"stop"},{"index":1,"text":"b","finish_reason":"stop"}]}`
	one := strings.Replace(two, `,{"index":1,"text":"b","finish_reason":"stop"}`, "", 1)
	for _, tc := range []struct {
		name, n, answer string
		stream, whole   bool
	}{
		{"stream", "2", end(0) + end(1) + done, true, true},
		{"stream, one ends twice", "2", end(0) + end(0) + done, true, false},
		{"stream, one ends", "2", end(1) + done, true, false},
		{"stream, n in quotes", `"2"`, end(0) + done, true, false},
		{"stream, n with a fraction", "2.0", end(0) + done, true, false},
		{"stream, n in quotes, both end", `"2"`, end(1) + end(0) + done, true, true},
		{"whole", "2", two, false, true},
		{"whole, one is missing", "2", one, false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			engine := newStub(t, func(w http.ResponseWriter, q *http.Request) {
				_, _ = io.Copy(io.Discard, q.Body)
				if w.Header().Set("Content-Type", "application/json"); tc.stream {
					w.Header().Set("Content-Type", "text/event-stream")
				}
				_, _ = io.WriteString(w, tc.answer)
			})
			r := newRig(t, rigOptions{prefill: -1, router: engine.asDecode, before: func(r *rig) { r.server.BreakAtOnce() }})
			a := r.post("/v1/completions", fmt.Sprintf(`{"model":"sim","prompt":"x","n":%s,"stream":%v,"max_tokens":1}`, tc.n, tc.stream))
			whole := a.status == 200 && a.err == nil && (!tc.stream || strings.HasSuffix(a.body, done))
			if whole != tc.whole || !whole && strings.Contains(a.body, "[DONE]") {
				t.Errorf("%d %v, whole %v: %s", a.status, a.err, whole, a.body)
			}
		})
	}
}
