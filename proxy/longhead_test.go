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

	"xpyd/netio/tlsconf/tlstest"
	"xpyd/proxy"
)

// longHead is a request whose head is so long, because of one field or of many.
func longHead(c call, id string, size int, fields int) string {
	first, rest, _ := strings.Cut(raw(c, id), "\r\n")
	each := (size - len(first) - strings.Index(rest, "\r\n\r\n") - 6) / fields
	var pad strings.Builder
	for i := range fields {
		name := fmt.Sprintf("Cookie-%02d: ", i)
		pad.WriteString(name + strings.Repeat("a", each-len(name)-2) + "\r\n")
	}
	return first + "\r\n" + pad.String() + rest
}

// Heads have up to 32 KiB, on whatever connection, wherever they break, and the requests behind them are answered too.
func TestLongHeadsOfRequests(t *testing.T) {
	ca := tlstest.NewCA(t)
	for _, secure := range []bool{false, true} {
		o := rigOptions{}
		if secure {
			o = secured(t, ca, o)
		}
		r := newRig(t, o)
		c := forms(prompt, 3)[1]
		for name, step := range map[string]int{"at once": 1 << 20, "in pieces": 1000, "around the buffer": 12<<10 - 1} {
			var conn net.Conn = nil
			if secure {
				conn, _ = r.dialTLS(ca, 0)
			} else {
				conn = r.dialRaw()
			}
			_ = conn.SetDeadline(time.Now().Add(2 * patience))
			all := ""
			for i, size := range []int{500, 11 << 10, 14 << 10, 500, 30 << 10, 500} {
				all += longHead(c, fmt.Sprint("long-", i), size, 1+i*4)
			}
			go func() {
				for len(all) > 0 {
					n := min(step, len(all))
					_, _ = io.WriteString(conn, all[:n])
					all = all[n:]
				}
			}()
			in := bufio.NewReader(conn)
			for i := range 6 {
				resp, err := http.ReadResponse(in, nil)
				if err != nil {
					t.Fatalf("%s, TLS %v, answer %d: %v", name, secure, i, err)
				}
				body, err := io.ReadAll(resp.Body)
				if err != nil || resp.StatusCode != 200 || resp.Header.Get("X-Request-Id") != fmt.Sprint("long-", i) || !strings.HasSuffix(string(body), "data: [DONE]\n\n") {
					t.Errorf("%s, TLS %v, answer %d: %d %v %v %s", name, secure, i, resp.StatusCode, err, resp.Header, body)
				}
			}
			_ = conn.Close()
		}
		r.await("closed", func() bool { return r.server.Connections() == 0 })
		r.expectNothingHeld()
	}
}

// What is longer is refused, in its first request and behind another long one, and a line without CR LF is one still.
func TestHeadsThatAreTooLong(t *testing.T) {
	r := newRig(t, rigOptions{})
	c := forms(prompt, 3)[0]
	for name, tc := range map[string]struct {
		send string
		want []int
	}{
		"first":         {longHead(c, "a", 33<<10, 1), []int{431}},
		"second":        {longHead(c, "a", 30<<10, 1) + longHead(c, "b", 33<<10, 1), []int{200, 431}},
		"bare LF":       {strings.Replace(longHead(c, "a", 30<<10, 2), "\r\nX-Request-Id", "\nX-Request-Id", 1), []int{400}},
		"100 fields":    {longHead(c, "a", 30<<10, 99), []int{431}},
		"a long target": {"GET /" + strings.Repeat("a", 20<<10) + " HTTP/1.1\r\nHost: x\r\n\r\n", []int{404}},
	} {
		conn := r.dialRaw()
		_ = conn.SetDeadline(time.Now().Add(2 * patience))
		go func() { _, _ = io.WriteString(conn, tc.send) }()
		in := bufio.NewReader(conn)
		for i, want := range tc.want {
			if got, err := nextStatus(in); err != nil || got != want {
				t.Errorf("%s, answer %d: %d, %v, want %d", name, i, got, err, want)
			}
		}
		_ = conn.Close()
	}
}

// A shutdown closes idle connections with long heads too, and waits for those that are at work.
func TestDrainOfClientsWithLongHeads(t *testing.T) {
	r := newRig(t, rigOptions{config: func(c *proxy.Config) { c.Timeouts.Drain = time.Minute }})
	conn := r.dialRaw()
	_ = conn.SetDeadline(time.Now().Add(2 * patience))
	_, _ = io.WriteString(conn, longHead(forms(prompt, 3)[0], "a", 30<<10, 1))
	in := bufio.NewReader(conn)
	if got, err := nextStatus(in); err != nil || got != 200 {
		t.Fatalf("%d, %v", got, err)
	}
	began := time.Now()
	if err := r.server.Shutdown(); err != nil || time.Since(began) > patience {
		t.Errorf("%v after %v", err, time.Since(began))
	}
	if _, err := in.ReadByte(); err == nil {
		t.Error("the connection goes on")
	}
}
