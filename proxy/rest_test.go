package proxy_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"xpyd/proxy"
	"xpyd/router"
)

// A client may rest for longer than timeouts.stream_idle, as long as it is within timeouts.write_stall. The
// decode engine was not silent for that time: nobody read what it sent.
func TestClientThatRestsBlamesNoEngine(t *testing.T) {
	together(t)
	const size = 3 << 20 // more than the sockets hold
	piece := strings.Repeat("x", 8<<10)
	stream := newStub(t, func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		for range size / len(piece) {
			_, _ = fmt.Fprintf(w, `data: {"choices":[{"index":0,"text":%q,"finish_reason":null}]}`+"\n\n", piece)
			_ = http.NewResponseController(w).Flush()
			time.Sleep(500 * time.Microsecond) // the pace of an engine: no read of the proxy finds all that its buffer can take
		}
		_, _ = io.WriteString(w, `data: {"choices":[{"index":0,"text":"","finish_reason":"stop"}]}`+"\n\ndata: [DONE]\n\n")
	})
	whole := longAnswer(size)
	for name, tc := range map[string]struct {
		decode func(c *router.Config)
		ends   string
	}{
		"stream":       {stream.asDecode, "data: [DONE]\n\n"},
		"large answer": {answering(t, whole), whole[len(whole)-30:]},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, rigOptions{prefill: -1, router: tc.decode, config: func(c *proxy.Config) {
				c.Timeouts.StreamIdle, c.Timeouts.WriteStall, c.Limits.Answer = time.Second, time.Minute, 1<<20
			}})
			in := r.lazy(raw(call{stream: name == "stream", prompt: prompt, tokens: 9}, "rests"))
			over := time.Now().Add(3 * time.Second) // the sockets are full in no time, and the deadline is two seconds away at most
			r.await("rested", func() bool { return time.Now().After(over) })
			resp, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			if got := string(body); err != nil || len(got) < size || !strings.HasSuffix(got, tc.ends) {
				t.Errorf("%v, %d bytes that end in %q", err, len(got), got[max(0, len(got)-200):])
			}
			r.await("counted", func() bool { return r.metric("xpyd_requests_total{") == 1 })
			if n := r.metric(`xpyd_requests_total{api="completions",outcome="ok"`); n != 1 {
				t.Errorf("not counted as ok\n%s", r.logs)
			}
			r.expectNoBlame()
		})
	}
}
