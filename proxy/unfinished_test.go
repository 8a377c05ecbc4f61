package proxy_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"xpyd/proxy"
)

// The events that engines have not finished are charged to limits.answer_budget. A stream that has no room in it breaks
// off with an error event, or is refused if its client has had nothing, and the others go on.
func TestUnfinishedEventsAreCharged(t *testing.T) {
	together(t)
	for _, first := range []bool{true, false} {
		t.Run(fmt.Sprintf("first=%v", first), func(t *testing.T) {
			const streams, fit, size, limit = 8, 2, 2 << 20, 5 << 20
			finish := make(chan struct{})
			end := sync.OnceFunc(func() { close(finish) })
			defer end()
			d := newStub(t, func(w http.ResponseWriter, q *http.Request) {
				_, _ = io.Copy(io.Discard, q.Body)
				w.Header().Set("Content-Type", "text/event-stream")
				if !first {
					_, _ = io.WriteString(w, `data: {"choices":[{"index":0,"text":"abc","finish_reason":null}]}`+"\n\n")
				}
				_, _ = io.WriteString(w, `data: {"choices":[{"index":0,"text":"`)
				fill(w, size)
				w.(http.Flusher).Flush()
				select {
				case <-finish:
				case <-q.Context().Done():
				}
				_, _ = io.WriteString(w, `","finish_reason":"stop"}]}`+"\n\ndata: [DONE]\n\n")
			})
			r := newRig(t, rigOptions{prefill: -1, router: d.asDecode, config: func(c *proxy.Config) {
				c.Limits.AnswerBudget, c.Limits.ClientShare = limit, 1
			}, before: func(r *rig) { r.server.BreakAtOnce() }})
			held := func() float64 { return r.metric("xpyd_answer_bytes_buffered") }
			answers := make(chan answer, streams)
			var all sync.WaitGroup
			for range streams {
				all.Go(func() { answers <- r.call(forms(prompt, 4)[1]) })
			}
			whole, most := 0, 0.
			for n := range streams - fit {
				var a answer
				select {
				case a = <-answers:
				case <-time.After(patience):
					t.Fatalf("%d streams broke off, and %v bytes are held", n, held())
				}
				most = max(most, held())
				if first && a.status != 503 || a.code() != "overloaded" {
					t.Fatalf("%d %.300s %v, want it refused while others hold the budget (%v bytes)", a.status, a.body, a.err, held())
				}
			}
			end()
			all.Wait()
			close(answers)
			for a := range answers {
				if a.code() == "overloaded" {
					continue // both of the last two may have wanted to grow at the same moment
				}
				if whole++; a.status != 200 || a.err != nil || !strings.Contains(a.body, "[DONE]") {
					t.Errorf("%d %.100s %v, want a whole stream of one within the budget", a.status, a.body, a.err)
				}
			}
			if whole == 0 || most < size || most > limit {
				t.Errorf("%d whole streams, %v bytes held, want them between %d and %d", whole, most, size, limit)
			}
			r.await("uncharged", func() bool { return held() == 0 })
			r.expectNoBlame()
		})
	}
}
