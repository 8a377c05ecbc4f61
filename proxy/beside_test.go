package proxy_test

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"

	"xpyd/router"
)

// Where both legs start at once, the head of the answer may go out while P still works. It says nothing
// of P's time then, and the race detector sees that it does not look at it.
func TestServerTimingBesideARunningPrefill(t *testing.T) {
	end := make(chan struct{})
	p := newStub(t, func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		<-end
		_, _ = io.WriteString(w, `{"choices":[]}`)
	})
	d := newStub(t, func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, `data: {"choices":[{"index":0,"text":"a","finish_reason":null}]}`+"\n\n")
		_ = http.NewResponseController(w).Flush()
		<-end
		<-q.Context().Done()
	})
	r := newRig(t, rigOptions{dialect: newPushDialect(), router: func(c *router.Config) {
		p.asPrefill(c)
		d.asDecode(c)
	}})
	resp, err := r.client.Post(r.url+"/v1/completions", "application/json", strings.NewReader(forms(prompt, 2)[1].body()))
	if err != nil {
		t.Fatal(err)
	}
	_, _ = bufio.NewReader(resp.Body).ReadString('\n')
	if timing := resp.Header.Get("Server-Timing"); !strings.HasPrefix(timing, "queue;") || strings.Contains(timing, "prefill") {
		t.Errorf("Server-Timing %q", timing)
	}
	close(end)
	r.await("prefill ended", func() bool { return r.metric(`xpyd_in_flight{backend="`+p.server.URL) == 0 })
	_ = resp.Body.Close()
	r.await("logged", func() bool { return strings.Contains(r.logs.String(), `"message":"completion"`) })
	if strings.Contains(r.logs.String(), "handoff_ms") {
		t.Errorf("a handoff, though decode had the request before prefill answered\n%s", r.logs)
	}
}
