package proxy_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"xpyd/proxy"
	"xpyd/sim"
)

// raw10 is a completion as an old proxy sends it.
func raw10(c call, fields string) string {
	body := c.body()
	return fmt.Sprintf("POST %s HTTP/1.0\r\n%sContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", c.path(), fields, len(body), body)
}

// read10 reads an answer up to the end of its connection, as a client of HTTP/1.0 does, which takes
// what ends without an error for the whole answer.
func (r *rig) read10(conn net.Conn) (head http.Header, a answer) {
	r.t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(2 * patience))
	all, err := io.ReadAll(conn)
	top, body, found := bytes.Cut(all, []byte("\r\n\r\n"))
	if !found {
		r.t.Fatalf("no head in %q (%v)\n%s", all, err, r.logs)
	}
	// This has no body, because net/http would undo the framing under test.
	resp, bad := http.ReadResponse(bufio.NewReader(bytes.NewReader(append(top, "\r\n\r\n"...))), &http.Request{Method: http.MethodHead})
	if bad != nil {
		r.t.Fatalf("head %q: %v", top, bad)
	}
	if resp.Close { // net/http takes the field out
		resp.Header.Set("Connection", "close")
	}
	a = answer{status: resp.StatusCode, header: resp.Header, body: string(body), err: err}
	if len(resp.TransferEncoding) > 0 || bytes.Contains(bytes.ToLower(top), []byte("transfer-encoding")) {
		r.t.Errorf("a client of HTTP/1.0 gets a transfer encoding: %q", top)
	}
	return resp.Header, a
}

// reached waits for the rig's first request to come to b. In a stream the proxy has passed on what
// the engine wrote, or is about to, so what happens next happens to a stream.
func (r *rig) reached(b *barrier) {
	r.t.Helper()
	select {
	case <-b.reached:
	case <-time.After(patience):
		r.t.Fatalf("the engine never came to %s\n%s", b.phase, r.logs)
	}
	if b.phase == sim.PhaseStreamEvent {
		r.committed(1)
	}
}

// committed waits until n requests have reached their first event, each with a handle.
func (r *rig) committed(n float64) {
	r.t.Helper()
	r.await("committed", func() bool { return r.metric(`xpyd_kv_handles_total{end="burnt"}`) >= n })
}

func (r *rig) call10(c call, fields string) answer {
	r.t.Helper()
	conn := r.dialRaw()
	_, _ = io.WriteString(conn, raw10(c, fields))
	head, a := r.read10(conn)
	if head.Get("Connection") != "close" || head.Get("Content-Length") != "" {
		r.t.Errorf("Connection %q, Content-Length %q; want a close and no length", head.Get("Connection"), head.Get("Content-Length"))
	}
	return a
}

func TestStreamToHTTP10EndsWithItsConnection(t *testing.T) {
	r := newRig(t, rigOptions{})
	for _, fields := range []string{"", "Connection: close\r\n", "Connection: keep-alive\r\n"} {
		for _, chat := range []bool{false, true} {
			c := streamed(chat, 30, "")
			a := r.call10(c, fields)
			r.expectWhole(c, a)
			if a.header.Get("Content-Type") != "text/event-stream; charset=utf-8" || a.header.Get("X-Accel-Buffering") != "no" || a.header.Get("X-Xpyd-Path") == "" || a.header.Get("Date") == "" {
				t.Errorf("head %v", a.header)
			}
		}
	}
	r.await("counted", func() bool { return r.metric(`xpyd_requests_total{api="chat",outcome="ok"}`) == 3 })
	r.expectNothingHeld()
}

// An engine streams for anything that is true in Python.
func TestStreamOfOneToHTTP10(t *testing.T) {
	r := newRig(t, rigOptions{})
	c := call{prompt: prompt, tokens: 5}
	body := strings.Replace(c.body(), `"stream":false`, `"stream":1`, 1)
	conn := r.dialRaw()
	_, _ = fmt.Fprintf(conn, "POST %s HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", c.path(), len(body), body)
	_, a := r.read10(conn)
	c.stream = true
	r.expectWhole(c, a)
}

// A client of HTTP/1.0 takes the end of a connection for the end of an answer, so one that
// fails ends in a reset.
func TestStreamToHTTP10ThatFailsIsReset(t *testing.T) {
	for _, chat := range []bool{false, true} {
		r := newRig(t, rigOptions{})
		c := streamed(chat, 9, "[[D:cut@4]]")
		a := r.call10(c, "")
		r.expectBroken(c, a, "decode_failed")
		if !errors.Is(a.err, syscall.ECONNRESET) {
			t.Errorf("the connection ended with %v, want a reset", a.err)
		}
		api := map[bool]string{true: "chat", false: "completions"}[chat]
		r.await("counted", func() bool { return r.metric(`xpyd_requests_total{api="`+api+`",outcome="broken"}`) == 1 })
		r.expectNothingHeld()
		r.expectWhole(forms(prompt, 4)[1], r.call10(forms(prompt, 4)[1], ""))
	}
}

func TestStreamToHTTP10IsResetAtTheEndOfTheDrain(t *testing.T) {
	b := newBarrier(sim.PhaseStreamEvent, 2)
	r := newRig(t, rigOptions{
		config: func(c *proxy.Config) { c.Timeouts.Drain = 50 * time.Millisecond },
		engine: func(o *sim.Options) { o.Hook = b.hook },
	})
	t.Cleanup(b.open)
	conn := r.dialRaw()
	c := streamed(false, 9, "")
	_, _ = io.WriteString(conn, raw10(c, ""))
	r.reached(b)
	go func() { _ = r.server.Shutdown() }()
	_, a := r.read10(conn)
	r.expectBroken(c, a, "shutting_down")
}

// An answer that cannot be held whole has no length, unless the engine gives one.
func TestLargeAnswerToHTTP10(t *testing.T) {
	together(t)
	text := strings.Repeat("x", 100<<10)
	whole := `{"id":"cmpl-1","object":"text_completion","created":1,"model":"sim","choices":[{"index":0,"text":"` + text + `","finish_reason":"stop"}]}`
	for _, tc := range []struct {
		name   string
		length bool
		cut    bool
	}{{"chunked", false, false}, {"cut", false, true}, {"with a length", true, false}} {
		t.Run(tc.name, func(t *testing.T) {
			d := newStub(t, func(w http.ResponseWriter, req *http.Request) {
				_, _ = io.Copy(io.Discard, req.Body)
				w.Header().Set("Content-Type", "application/json")
				if tc.length {
					w.Header().Set("Content-Length", fmt.Sprint(len(whole)))
				}
				_, _ = io.WriteString(w, whole)
				if tc.cut {
					_ = http.NewResponseController(w).Flush()
					panic(http.ErrAbortHandler)
				}
			})
			r := newRig(t, rigOptions{prefill: -1, router: d.asDecode, config: func(c *proxy.Config) { c.Limits.Answer = 8 << 10 }})
			conn := r.dialRaw()
			_, _ = io.WriteString(conn, raw10(forms(prompt, 4)[0], ""))
			head, a := r.read10(conn)
			switch {
			case tc.cut:
				if !errors.Is(a.err, syscall.ECONNRESET) {
					t.Errorf("the connection ended with %v behind %d bytes, want a reset", a.err, len(a.body))
				}
			case a.err != nil || a.body != whole:
				t.Errorf("%d bytes of %d, %v", len(a.body), len(whole), a.err)
			}
			want := map[bool]string{true: fmt.Sprint(len(whole))}[tc.length]
			if got := head.Get("Content-Length"); got != want {
				t.Errorf("Content-Length %q, want %q", got, want)
			}
		})
	}
}

// An answer of known length leaves the connection open for a client that asks for it.
func TestWholeAnswersToHTTP10KeepTheConnection(t *testing.T) {
	r := newRig(t, rigOptions{})
	conn := r.dialRaw()
	answers := bufio.NewReader(conn)
	_ = conn.SetReadDeadline(time.Now().Add(2 * patience))
	for _, c := range []call{forms(prompt, 4)[0], forms(prompt, 5)[2]} {
		_, _ = io.WriteString(conn, raw10(c, "Connection: keep-alive\r\n"))
		resp, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		r.expectWhole(c, answer{status: resp.StatusCode, body: string(body), err: err})
		if resp.Header.Get("Connection") != "keep-alive" || resp.ContentLength < 0 {
			t.Errorf("Connection %q, length %d", resp.Header.Get("Connection"), resp.ContentLength)
		}
	}
}

// Its connection closes while D streams. Nothing is held any more, and D is told.
func TestClientOfHTTP10LeavesItsStream(t *testing.T) {
	together(t)
	for name, leave := range leaving() {
		t.Run(name, func(t *testing.T) {
			b := newBarrier(sim.PhaseStreamEvent, 2)
			r := newRig(t, rigOptions{engine: func(o *sim.Options) { o.Hook = b.hook }})
			t.Cleanup(b.open)
			conn := r.dialRaw()
			_, _ = io.WriteString(conn, raw10(streamed(false, 9, ""), ""))
			r.reached(b)
			leave(conn)
			r.await("told", func() bool { return r.metric(`xpyd_client_gone_total{phase="stream"}`) == 1 })
			b.open()
			r.expectNothingHeld()
		})
	}
}

// What is still in the sockets when a whole stream ends belongs to the client.
func TestSlowReaderOfHTTP10GetsAll(t *testing.T) {
	r := newRig(t, rigOptions{})
	conn := r.dialRaw()
	_ = conn.SetReadBuffer(4 << 10)
	c := call{stream: true, prompt: prompt, tokens: 500}
	_, _ = io.WriteString(conn, raw10(c, ""))
	r.await("written", func() bool { return r.metric(`xpyd_requests_total{api="completions",outcome="ok"}`) == 1 })
	r.await("closed", func() bool { return r.server.Connections() == 0 })
	_, a := r.read10(conn)
	r.expectWhole(c, a)
}
