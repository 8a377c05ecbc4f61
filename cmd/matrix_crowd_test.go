package cmd

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"xpyd/sim"
)

// crowd returns the number of idle clients of T30, which is 10,000 or what the descriptors allow.
func crowd(t *testing.T) int {
	var lim syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &lim); err != nil {
		t.Fatal(err)
	}
	n := min(10_000, int(lim.Cur)-1000) // this process and the child have that many each
	if n < 1000 {
		t.Fatalf("RLIMIT_NOFILE %d leaves no room for a crowd; raise it to 11000", lim.Cur)
	}
	if n < 10_000 {
		t.Logf("%d idle connections in place of 10000: RLIMIT_NOFILE is %d", n, lim.Cur)
	}
	return n
}

// settle opens n connections that have had one answer and send no further request.
func (c *child) settle(n int) []net.Conn {
	conns := make([]net.Conn, n)
	errs := make(chan error, 16)
	var wg sync.WaitGroup
	for w := range cap(errs) {
		wg.Go(func() {
			for i := w; i < n; i += cap(errs) {
				conn, err := net.Dial("tcp", c.addr)
				if err == nil {
					conns[i] = conn
					err = alive(conn)
				}
				if err != nil {
					errs <- fmt.Errorf("idle client %d: %w", i, err)
					return
				}
			}
		})
	}
	wg.Wait()
	c.t.Cleanup(func() {
		for _, conn := range conns {
			if conn != nil {
				_ = conn.Close()
			}
		}
	})
	select {
	case err := <-errs:
		c.t.Fatal(err)
	default:
	}
	return conns
}

// alive requests /livez on a connection.
func alive(conn net.Conn) error {
	_ = conn.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(conn, "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		return err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return err
	}
	if _, err = io.Copy(io.Discard, resp.Body); err == nil && resp.StatusCode != 200 {
		err = fmt.Errorf("status %d", resp.StatusCode)
	}
	return err
}

// drip writes the head at once and then a byte every 100 ms. It returns what the server answered before
// it closed the connection.
func (c *child) drip(head string) (string, error) {
	conn, err := net.Dial("tcp", c.addr)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	closed := make(chan struct{})
	go func() {
		_, err := io.WriteString(conn, head)
		for tick := time.NewTicker(100 * time.Millisecond); err == nil; {
			select {
			case <-tick.C:
				_, err = io.WriteString(conn, " ")
			case <-closed:
				return
			}
		}
	}()
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	b, err := io.ReadAll(conn)
	close(closed)
	if err != nil && strings.HasPrefix(string(b), "HTTP/1.1 ") && strings.Contains(err.Error(), "reset") {
		err = nil // the last byte and the close crossed on the way
	}
	return string(b), err
}

// latencies runs n completions, 4 at a time on connections of their own, and returns their times in
// ascending order.
func (c *child) latencies(n int) []time.Duration {
	body := fmt.Appendf(nil, `{"model":"sim","prompt":%q,"max_tokens":8}`, childPrompt)
	want := sim.Text(childPrompt, 8)
	client := http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4}, Timeout: patience}
	defer client.CloseIdleConnections()
	all := make([]time.Duration, n)
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := w; i < n; i += 4 {
				start := time.Now()
				resp, err := client.Post("http://"+c.addr+"/v1/completions", "application/json", bytes.NewReader(body))
				if err != nil {
					c.t.Errorf("good client: %v", err)
					return
				}
				b, err := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if all[i] = time.Since(start); err != nil || !strings.Contains(string(b), want) {
					c.t.Errorf("good client: %d %s %v", resp.StatusCode, b, err)
					return
				}
			}
		})
	}
	wg.Wait()
	slices.Sort(all)
	return all
}

// T30: a crowd of idle clients, and clients that send a head or a body byte by byte. The slow ones get
// an error and are closed. All others are served as fast as before.
func TestCrowdAndSlowClients(t *testing.T) {
	engines := pair(t, nil)
	c := startChild(t, engines, "", nil, "--timeouts-header", "1s", "--timeouts-body", "1s")
	c.latencies(200)
	const requests = 500
	before := c.latencies(requests)
	idle := c.settle(crowd(t))

	const slow = 50 // of each kind
	const p99 = requests * 99 / 100
	limit, best := 3*before[p99]+20*time.Millisecond, time.Hour
	for i := 0; i < 12 && best > limit; i++ { // a busy machine can only delay
		var wg sync.WaitGroup
		for range slow {
			for _, head := range []string{
				"POST /v1/completions HTTP/1.1\r\nHost: x\r\nX-Slow: ",
				"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{",
			} {
				wg.Go(func() {
					if got, err := c.drip(head); err != nil || !strings.HasPrefix(got, "HTTP/1.1 408 ") || !strings.Contains(got, "request_timeout") {
						t.Errorf("a slow client got %q, %v", got, err)
					}
				})
			}
		}
		during := c.latencies(requests)
		wg.Wait()
		best = min(best, during[p99])
		t.Logf("p50 %v, p99 %v before; p50 %v, p99 %v beside %d idle and %d slow clients",
			before[requests/2], before[p99], during[requests/2], during[p99], len(idle), 2*slow)
	}
	if best > limit {
		t.Errorf("p99 of the others is %v, was %v", best, before[p99])
	}
	for i := 0; i < len(idle); i += 100 {
		if err := alive(idle[i]); err != nil {
			t.Errorf("idle client %d: %v", i, err)
		}
	}
	c.expectIdle(engines)
}
