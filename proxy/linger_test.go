package proxy_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"xpyd/proxy"
)

// uploads is a size that the sockets of both sides do not take without a reader.
const uploads = 24 << 20

// upload writes a request and the whole of its body before it reads, as Python's http.client
// does, and returns the answer.
func upload(conn net.Conn, head string, body io.Reader) (status int, text string, err error) {
	if _, err := io.WriteString(conn, head+"\r\n\r\n"); err != nil {
		return 0, "", fmt.Errorf("write the head: %w", err)
	}
	if _, err := io.Copy(struct{ io.Writer }{conn}, body); err != nil {
		return 0, "", fmt.Errorf("write the body: %w", err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, "", fmt.Errorf("read the answer: %w", err)
	}
	b, err := io.ReadAll(resp.Body)
	if !resp.Close {
		err = fmt.Errorf("the answer to a body that was not read keeps the connection (%w)", err)
	}
	return resp.StatusCode, string(b), err
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// A client that is answered before it has sent its body goes on sending, and then reads the answer.
func TestEarlyAnswerReachesAClientThatUploads(t *testing.T) {
	r := newRig(t, rigOptions{config: func(c *proxy.Config) {
		c.APIKeys = []string{"key"}
		c.Limits.Body = uploads / 2
	}})
	const key, length = "\r\nAuthorization: Bearer key", "\r\nContent-Type: application/json\r\nContent-Length: "
	for _, tc := range []struct {
		name, head string
		status     int
		size       int64
	}{
		{"401", "POST /v1/completions HTTP/1.1\r\nHost: x" + length, 401, uploads / 2},
		{"404", "POST /v1/nothing HTTP/1.1\r\nHost: x" + key + length, 404, uploads},
		{"405", "POST /v1/models HTTP/1.1\r\nHost: x" + key + length, 405, uploads},
		{"413", "POST /v1/completions HTTP/1.1\r\nHost: x" + key + length, 413, uploads},
		{"415", "POST /v1/completions HTTP/1.1\r\nHost: x" + key + "\r\nContent-Encoding: br" + length, 415, uploads / 2},
		{"400 of the gate", "POST /v1/completions HTTP/1.1\r\nHost: x\r\nHost: y" + key + length, 400, uploads},
		{"a body on a GET", "GET /livez HTTP/1.1\r\nHost: x" + length, 200, uploads},
		{"tokenize", "POST /tokenize HTTP/1.1\r\nHost: x" + key + length, 413, uploads},
	} {
		t.Run(tc.name, func(t *testing.T) {
			conn := r.dialRaw()
			defer func() { _ = conn.Close() }()
			_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
			status, text, err := upload(conn, tc.head+fmt.Sprint(tc.size), io.LimitReader(zeros{}, tc.size))
			if err != nil || status != tc.status {
				t.Errorf("%d %s, %v, want %d", status, text, err, tc.status)
			}
		})
	}
	t.Run("413 in mid-body", func(t *testing.T) {
		conn := r.dialRaw()
		defer func() { _ = conn.Close() }()
		_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
		chunk := "100000\r\n" + strings.Repeat("a", 1<<20) + "\r\n"
		body := strings.NewReader(strings.Repeat(chunk, uploads>>20) + "0\r\n\r\n")
		status, text, err := upload(conn, "POST /v1/completions HTTP/1.1\r\nHost: x"+key+"\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked", body)
		if err != nil || status != 413 {
			t.Errorf("%d %s, %v, want 413", status, text, err)
		}
	})
	r.await("no connection left", func() bool { return r.server.Lingering() == 0 })
}

// refused sends a request without a key, and a part of the body that it announces.
func (r *rig) refused() *net.TCPConn {
	r.t.Helper()
	conn := r.dialRaw()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	_, _ = io.WriteString(conn, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\nabc")
	if answer, err := io.ReadAll(conn); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 401 ") {
		r.t.Fatalf("%q, %v, want a 401 and an end", answer, err)
	}
	return conn
}

// expectCut fails unless the proxy reads no more, and resets a client that still sends.
func (r *rig) expectCut(what string, conn net.Conn) {
	r.t.Helper()
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) { // other bounds cut after 10 s
		if _, err := conn.Write([]byte("x")); err != nil {
			return
		}
		if time.Now().After(end) {
			r.t.Fatalf("%s: not cut after 5 s\n%s", what, r.logs)
		}
	}
}

// What is read only to be dropped is bounded, in time, however much is sent, and in number.
func TestReadingForNothingEnds(t *testing.T) {
	together(t)
	for _, tc := range []struct {
		name           string
		silence, total time.Duration
		limit          int
		silent         bool // the client sends nothing more
	}{
		{"in silence", 30 * time.Millisecond, time.Minute, 8, true},
		{"bytes that trickle", time.Minute, 100 * time.Millisecond, 8, false},
		{"one too many", time.Minute, time.Minute, 0, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, rigOptions{
				config: func(c *proxy.Config) { c.APIKeys = []string{"key"} },
				before: func(r *rig) { r.server.Linger(tc.silence, tc.total, tc.limit) },
			})
			conn := r.refused()
			if tc.silent {
				r.await("left", func() bool { return r.server.Lingering() == 0 })
			}
			r.expectCut(tc.name, conn)
		})
	}
}

// The end of the process does not wait for clients that only send what is dropped.
func TestShutdownEndsReadingForNothing(t *testing.T) {
	r := newRig(t, rigOptions{
		config: func(c *proxy.Config) { c.APIKeys = []string{"key"} },
		before: func(r *rig) { r.server.Linger(time.Minute, time.Minute, 8) },
	})
	conns := []*net.TCPConn{r.refused(), r.refused()}
	r.await("read on", func() bool { return r.server.Lingering() == 2 })
	start := time.Now()
	if err := r.server.Shutdown(); err != nil {
		t.Error(err)
	}
	if d := time.Since(start); d > 10*time.Second {
		t.Errorf("the shutdown took %v", d)
	}
	r.await("left", func() bool { return r.server.Lingering() == 0 })
	for _, conn := range conns {
		r.expectCut("one of two", conn)
	}
}
