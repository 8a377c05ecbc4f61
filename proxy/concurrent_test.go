package proxy_test

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"

	"xpyd/router"
)

// Legs that began together: once D has answered, what becomes of P is nothing to the client.
func TestConcurrentPrefillEndsBehindTheFirstToken(t *testing.T) {
	for _, how := range []string{"breaks off", "answers 500", "goes down", "hangs"} {
		t.Run(how, func(t *testing.T) {
			end, goOn := make(chan struct{}), make(chan struct{})
			p := newStub(t, func(w http.ResponseWriter, q *http.Request) {
				_, _ = io.Copy(io.Discard, q.Body)
				select {
				case <-end:
				case <-q.Context().Done():
				}
				if how == "answers 500" {
					w.WriteHeader(500)
					return
				}
				panic(http.ErrAbortHandler)
			})
			const first, rest = `data: {"choices":[{"index":0,"text":"a","finish_reason":null}]}` + "\n\n",
				`data: {"choices":[{"index":0,"text":"b","finish_reason":"stop"}]}` + "\n\ndata: [DONE]\n\n"
			d := newStub(t, func(w http.ResponseWriter, q *http.Request) {
				_, _ = io.Copy(io.Discard, q.Body)
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, first)
				_ = http.NewResponseController(w).Flush()
				<-goOn
				_, _ = io.WriteString(w, rest)
			})
			r := newRig(t, rigOptions{dialect: newPushDialect(), router: func(c *router.Config) {
				p.asPrefill(c)
				d.asDecode(c)
			}})
			resp, err := r.client.Post(r.url+"/v1/completions", "application/json", strings.NewReader(forms(prompt, 2)[1].body()))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = resp.Body.Close() }()
			br := bufio.NewReader(resp.Body)
			if line, err := br.ReadString('\n'); err != nil || !strings.HasPrefix(first, line) {
				t.Fatalf("%q, %v", line, err)
			}
			switch how {
			case "goes down":
				r.server.FailChecks(p.server.URL)
			case "hangs":
			default:
				close(end)
			}
			if how != "hangs" {
				r.await("prefill ended", func() bool { return r.metric(`xpyd_in_flight{backend="`+p.server.URL) == 0 })
			}
			close(goOn)
			body, err := io.ReadAll(br)
			if err != nil || !strings.HasSuffix(string(body), rest) {
				t.Errorf("%q, %v", body, err)
			}
			r.await("counted", func() bool { return r.metric("xpyd_requests_total{") == 1 })
			if n := r.metric(`xpyd_requests_total{api="completions",outcome="ok"`); n != 1 {
				t.Errorf("not counted as ok\n%s", r.logs)
			}
		})
	}
}
