package sim_test

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"xpyd/sim"
)

// The engine writes the next event when the test has read the one before, so no read has two events because the test
// was held up. An event of two writes is read in halves now and then, and there are many.
func TestEachEventIsOneWrite(t *testing.T) {
	const tokens = 200
	hold := newBarrier("d1", sim.PhaseStreamEvent)
	_, d := pair(t, sim.Options{Hook: hold.hook})
	release := sync.OnceFunc(func() { close(hold.pass) })
	t.Cleanup(release)
	c := send(t, d, completionsPath, textBody.with("stream", true).with("max_tokens", tokens))
	b := make([]byte, 64<<10)
	var last strings.Builder
	read := func(to *strings.Builder) {
		t.Helper()
		if err := c.nc.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		n, err := c.nc.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		to.Write(b[:n])
	}
	for i := range tokens {
		var event strings.Builder
		read(&event)
		if i == 0 && !strings.Contains(event.String(), "data: ") { // the head and the first event may meet
			read(&event)
		}
		if got := event.String(); strings.Count(got, "data: ") != 1 || !strings.HasSuffix(got, "\n\n\r\n") {
			t.Fatalf("read %q, want one whole event", got)
		}
		<-hold.reached
		hold.pass <- struct{}{}
	}
	release()
	for !strings.Contains(last.String(), "[DONE]") {
		read(&last)
	}
}

func TestIDs(t *testing.T) {
	p, _ := pair(t, sim.Options{})
	for _, tc := range []struct{ path, header, inBody, id, internal string }{
		{"/v1/chat/completions", "rid-77", "", "chatcmpl-rid-77", "chatcmpl-rid-77-"},
		{completionsPath, "rid-77", "", "cmpl-rid-77", "cmpl-rid-77-0-"},
		{completionsPath, "rid-77", "other", "cmpl-rid-77", "cmpl-rid-77-0-"},
		{completionsPath, "", "other", "cmpl-other", "cmpl-other-0-"},
	} {
		b := textBody
		if tc.path != completionsPath {
			b = chatBody
		}
		if tc.inBody != "" {
			b = b.with("request_id", tc.inBody)
		}
		var headers []string
		if tc.header != "" {
			headers = []string{"X-Request-Id", tc.header}
		}
		_, answer := post(t, p.URL()+tc.path, prefillBody(b), headers...)
		var got struct {
			ID     string
			Handle struct {
				Request string `json:"remote_request_id"`
			} `json:"kv_transfer_params"`
		}
		decodeJSON(t, answer, &got)
		suffix, ok := strings.CutPrefix(got.Handle.Request, tc.internal)
		if got.ID != tc.id || !ok || len(suffix) != 8 {
			t.Errorf("%s %q %q: id %s, internal %s", tc.path, tc.header, tc.inBody, got.ID, got.Handle.Request)
		}
	}
}

func TestKeepAliveAndIdleClose(t *testing.T) {
	for keep := 50 * time.Millisecond; !keepsAndCloses(t, keep); keep *= 2 { // until the second request comes before the end
		if keep > 2*time.Second {
			t.Fatal("a connection is never used again")
		}
	}
}

// keepsAndCloses reports whether a connection was used twice.
func keepsAndCloses(t *testing.T, keep time.Duration) bool {
	t.Helper()
	e := start(t, sim.Options{KeepAlive: keep})
	c := send(t, e, completionsPath, textBody)
	in := bufio.NewReader(c.nc)
	var begin time.Time // before the engine has the second request
	for i := range 2 {
		resp, err := http.ReadResponse(in, nil)
		if err != nil { // a busy machine may be late with the first request, too
			return false
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != 200 || resp.Header.Get("Connection") != "" {
			t.Fatalf("answer %d: %d, %v, %v", i, resp.StatusCode, resp.Header, err)
		}
		if i == 0 {
			begin = time.Now()
			if _, err := io.WriteString(c.nc, "GET /health HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
				return false
			}
		}
	}
	if err := c.nc.SetReadDeadline(time.Now().Add(keep + 20*time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := in.ReadByte(); err != io.EOF {
		t.Errorf("idle connection: %v, want EOF", err)
	}
	if took := time.Since(begin); took < keep {
		t.Errorf("closed after %v, want %v", took, keep)
	}
	return true
}
