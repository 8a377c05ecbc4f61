package proxy_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"xpyd/proxy"
	"xpyd/router"
)

// hasty is an engine that answers a completion or /tokenize when it has read its head, and
// reads no more of it, but keeps the connection open.
func hasty(t *testing.T, answer string) (url string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return "http://" + hastyOn(t, ln, answer)
}

func hastyOn(t *testing.T, ln net.Listener, answer string) (addr string) {
	over := make(chan struct{})
	t.Cleanup(func() {
		close(over)
		_ = ln.Close()
	})
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				if tcp, ok := c.(*net.TCPConn); ok {
					_ = tcp.SetReadBuffer(64 << 10)
				}
				head, err := bufio.NewReader(c).ReadString('\n')
				if err != nil || strings.HasPrefix(head, "GET") {
					_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 23\r\n\r\n"+`{"data":[{"id":"sim"}]}`)
					return
				}
				_, _ = io.WriteString(c, answer)
				<-over
			}()
		}
	}()
	return ln.Addr().String()
}

// An engine refuses a large body before it has read it, and the client hears that at once.
func TestEarlyAnswerToALargeBody(t *testing.T) {
	together(t)
	const body = `{"error":{"message":"too much","code":413}}`
	answer := fmt.Sprintf("HTTP/1.1 413 Payload Too Large\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	for _, leg := range []string{"prefill", "decode", "tokenize"} {
		t.Run(leg, func(t *testing.T) {
			r := newRig(t, rigOptions{
				prefill: map[string]int{"prefill": 1, "decode": -1, "tokenize": -1}[leg],
				config: func(c *proxy.Config) {
					c.Timeouts.Prefill, c.Timeouts.FirstEvent = 5*time.Second, 5*time.Second // what the wait would end with
				},
				router: func(c *router.Config) {
					url := hasty(t, answer)
					if leg == "prefill" {
						c.Prefill = router.MustEntries(url)
					} else {
						c.Decode = router.MustEntries(url)
					}
				},
			})
			c := forms(strings.Repeat("word ", 8<<20/5), 2)[0]
			a := r.post(map[bool]string{true: "/tokenize", false: c.path()}[leg == "tokenize"], c.body())
			if a.status != 413 || a.body != body {
				t.Fatalf("%d %.300s", a.status, a.body)
			}
		})
	}
}
