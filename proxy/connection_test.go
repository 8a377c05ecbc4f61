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

// A client that asks for its connection to be closed gets that, however it writes it.
func TestConnectionThatIsToEnd(t *testing.T) {
	r := newRig(t, rigOptions{})
	completion := func(stream bool) string {
		c := call{prompt: prompt, tokens: 2, stream: stream}
		return strings.TrimPrefix(raw(c, "ends"), "POST ")
	}
	for _, tc := range []struct {
		fields string
		ends   bool
	}{
		{"Connection: close\r\n", true},
		{"Connection: Close\r\n", true},
		{"connection:CLOSE\r\n", true},
		{"Connection: foo, close\r\n", true},
		{"Connection: close ,keep-alive\r\n", true},
		{"Connection: ,\tcloSE\t,\r\n", true},
		{"Connection: close\r\nConnection: foo\r\n", true},
		{"Connection: foo\r\nConnection: Close\r\n", true},
		{"Connection: keep-alive\r\n", false},
		{"Connection: closed, xclose, close-not\r\n", false},
		{"Connections: close\r\nX-Connection: close\r\n", false},
	} {
		for name, rest := range map[string]string{"own": "/livez HTTP/1.1\r\nHost: x\r\n\r\n", "whole": completion(false), "streamed": completion(true)} {
			method := "POST "
			if name == "own" {
				method = "GET "
			}
			conn := r.dialRaw()
			_ = conn.SetDeadline(time.Now().Add(2 * patience))
			_, _ = io.WriteString(conn, method+strings.Replace(rest, "Host: x\r\n", "Host: x\r\n"+tc.fields, 1))
			br := bufio.NewReader(conn)
			resp, err := http.ReadResponse(br, nil)
			if err != nil {
				t.Fatalf("%q, %s: %v", tc.fields, name, err)
			}
			body, err := io.ReadAll(resp.Body)
			if err != nil || resp.StatusCode != 200 || resp.Close != tc.ends {
				t.Errorf("%q, %s: status %d, close %v, %v, %.100q", tc.fields, name, resp.StatusCode, resp.Close, err, body)
			}
			if !tc.ends {
				_, _ = io.WriteString(conn, "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
				if resp, err := http.ReadResponse(br, nil); err != nil || resp.StatusCode != 200 {
					t.Errorf("%q, %s: the next request: %v %v", tc.fields, name, resp, err)
				}
			} else if rest, err := io.ReadAll(br); len(rest) > 0 || err != nil {
				t.Errorf("%q, %s: %q and %v in place of the end", tc.fields, name, rest, err)
			}
			_ = conn.Close()
		}
	}
	r.expectNothingHeld()
}

// An expectation is the same in upper and lower case. The client waits for the 100, and not for
// ever.
func TestExpectInAnyCase(t *testing.T) {
	r := newRig(t, rigOptions{})
	c := forms(prompt, 2)[0]
	head, body, _ := strings.Cut(raw(c, "expects"), "\r\n\r\n")
	for _, tc := range []struct {
		value  string
		status int // without the 100, 0: the 100 and then 200
	}{
		{"100-continue", 0}, {"100-Continue", 0}, {"100-CONTINUE", 0}, {"200-ok", 417}, {"100-Continue, x", 417},
	} {
		conn := r.dialRaw()
		_ = conn.SetDeadline(time.Now().Add(2 * patience))
		_, _ = fmt.Fprintf(conn, "%s\r\nExpect: %s\r\n\r\n", head, tc.value)
		br := bufio.NewReader(conn)
		resp, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Errorf("%q: no answer while the body is held back: %v", tc.value, err)
			continue
		}
		if tc.status == 0 && resp.StatusCode == 100 {
			_, _ = io.WriteString(conn, body)
			if resp, err = http.ReadResponse(br, nil); err != nil || resp.StatusCode != 200 {
				t.Errorf("%q: %v %v behind the 100", tc.value, resp, err)
			}
		} else if resp.StatusCode != tc.status {
			t.Errorf("%q: %d", tc.value, resp.StatusCode)
		}
		_ = conn.Close()
	}
}

// What comes on a kept connection before a handler runs is answered also when timeouts.write_stall has
// passed since the answer before.
func TestKeptConnectionOutlastsTheWriteStall(t *testing.T) {
	const stall = 2 * time.Second
	r := newRig(t, rigOptions{config: func(c *proxy.Config) { c.Timeouts.WriteStall = stall }})
	head, body, _ := strings.Cut(raw(forms(prompt, 2)[0], "expects"), "\r\n\r\n")
	cases := []struct {
		name, send, then string
		statuses         []int
	}{
		{"expects", head + "\r\nExpect: 100-continue\r\n\r\n", body, []int{100, 200}},
		{"malformed", "GET /livez HTTP/1.1\r\nHost: x\r\nX A: 1\r\n\r\n", "", []int{400}},
		{"long head", "GET /livez HTTP/1.1\r\nHost: x\r\nA: " + strings.Repeat("a", 40<<10) + "\r\n\r\n", "", []int{431}},
	}
	conns, readers := make([]net.Conn, len(cases)), make([]*bufio.Reader, len(cases))
	for i := range cases {
		conns[i] = r.dialRaw()
		defer func() { _ = conns[i].Close() }()
		_ = conns[i].SetDeadline(time.Now().Add(4 * patience))
		readers[i] = bufio.NewReader(conns[i])
		_, _ = io.WriteString(conns[i], "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
		if got, err := nextStatus(readers[i]); err != nil || got != 200 {
			t.Fatalf("%s: first answer %d, %v", cases[i].name, got, err)
		}
	}
	time.Sleep(stall + 1500*time.Millisecond) // with the second that is added to each deadline
	for i, tc := range cases {
		_, _ = io.WriteString(conns[i], tc.send)
		for k, want := range tc.statuses {
			if got, err := nextStatus(readers[i]); err != nil || got != want {
				t.Errorf("%s: answer %d is %d, %v; want %d", tc.name, k, got, err, want)
			}
			_, _ = io.WriteString(conns[i], tc.then)
		}
	}
}

// nextStatus reads an answer.
func nextStatus(br *bufio.Reader) (int, error) {
	resp, err := http.ReadResponse(br, nil)
	if err != nil {
		return 0, fmt.Errorf("read an answer: %w", err)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}
