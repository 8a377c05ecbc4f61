package proxy_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
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
			_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
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
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
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
