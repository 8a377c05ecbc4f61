package sim_test

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"xpyd/sim"
)

func TestEachEventIsOneWrite(t *testing.T) {
	e := start(t, sim.Options{TokenLatency: 20 * time.Millisecond})
	c := send(t, e, completionsPath, textBody.with("stream", true).with("max_tokens", 4))
	b := make([]byte, 64<<10)
	var reads []string
	for !bytes.Contains([]byte(strings.Join(reads, "")), []byte("[DONE]")) {
		if err := c.nc.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
			t.Fatal(err)
		}
		n, err := c.nc.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		reads = append(reads, string(b[:n]))
	}
	for _, r := range reads[1:3] { // the head and the first event may meet
		if strings.Count(r, "data: ") != 1 || !strings.HasSuffix(r, "\n\n\r\n") {
			t.Errorf("read %q, want one whole event", r)
		}
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
	e := start(t, sim.Options{KeepAlive: 50 * time.Millisecond})
	c := send(t, e, completionsPath, textBody)
	in := bufio.NewReader(c.nc)
	for i := range 2 {
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatalf("answer %d: %v", i, err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != 200 || resp.Header.Get("Connection") != "" {
			t.Fatalf("answer %d: %d, %v, %v", i, resp.StatusCode, resp.Header, err)
		}
		if i == 0 {
			if _, err := io.WriteString(c.nc, "GET /health HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
		}
	}
	begin := time.Now()
	if _, err := in.ReadByte(); err != io.EOF {
		t.Errorf("idle connection: %v, want EOF", err)
	}
	if took := time.Since(begin); took < 40*time.Millisecond || took > 4*time.Second {
		t.Errorf("closed after %v, want about 50ms", took)
	}
}
