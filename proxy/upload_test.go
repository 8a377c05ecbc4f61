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
	"xpyd/sim"
)

// home is the address of clients that do not say otherwise.
const home = "127.0.0.1"

// upload begins a completion of the announced size and sends the given part of it.
func (r *rig) upload(from string, announced, sent int, header string) *net.TCPConn {
	r.t.Helper()
	conn := r.dialFrom(from)
	_ = conn.SetDeadline(time.Now().Add(2 * patience))
	_, err := fmt.Fprintf(conn, "POST /v1/completions HTTP/1.1\r\nHost: x\r\n%sContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		header, announced, strings.Repeat(" ", sent))
	if err != nil {
		r.t.Logf("the upload ended early: %v", err)
	}
	return conn
}

// expectError reads one answer, an error.
func expectError(t *testing.T, conn net.Conn, status int, code string) {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Errorf("no answer: %v", err)
		return
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != status || (answer{body: string(b)}).code() != code {
		t.Errorf("status %d, %v, %s, want %d %s", resp.StatusCode, err, b, status, code)
	}
}

func (r *rig) buffered() float64 { return r.metric("xpyd_request_bytes_buffered") }

// A body that stops is given up, however much of it has come.
func TestUploadThatStopsIsAnswered408(t *testing.T) {
	r := newRig(t, rigOptions{config: func(c *proxy.Config) {
		c.Timeouts.Body, c.Timeouts.BodyStall = 10*time.Minute, 200*time.Millisecond
	}})
	conn := r.upload(home, 2<<20, 1<<20, "")
	expectError(t, conn, 408, "request_timeout")
	r.await("uncharged", func() bool { return r.buffered() == 0 })
}

func TestUploadIsChargedAsItArrives(t *testing.T) {
	r := newRig(t, rigOptions{})
	const sent = 1<<20 + 1
	r.upload(home, 32<<20, sent, "")
	r.await("arrived", func() bool { return r.buffered() >= sent })
	if n := r.buffered(); n > sent+256<<10 {
		t.Errorf("%v bytes are charged for %d that came", n, sent)
	}
}

// stuff lets the client at an address begin uploads that stop, until one is refused.
func (r *rig) stuff(from, header string, status int, code string) {
	r.t.Helper()
	for range 40 {
		const sent = 900 << 10
		before := r.buffered()
		conn := r.upload(from, 1<<20, sent, header)
		refused := make(chan struct{})
		go func() {
			defer close(refused)
			_, _ = bufio.NewReader(conn).Peek(1)
		}()
		done := func() bool {
			select {
			case <-refused:
				return true
			default:
				return r.buffered() >= before+sent
			}
		}
		r.await("charged or refused", done)
		if r.buffered() < before+sent {
			_ = conn.Close()
			<-refused
			again := r.upload(from, 1<<20, sent, header)
			expectError(r.t, again, status, code)
			return
		}
		r.t.Cleanup(func() { _ = conn.Close(); <-refused })
	}
	r.t.Fatal("nothing was refused: the test proves nothing")
}

// One client whose uploads stand still leaves room for the large bodies of others.
func TestOneClientLeavesRoomForOthers(t *testing.T) {
	r := newRig(t, rigOptions{
		engine: func(o *sim.Options) { o.MaxModelLen, o.NumBlocks = 1<<20, 1<<17 },
		config: func(c *proxy.Config) {
			c.APIKeys = []string{"key-a", "key-b"}
			c.Limits.Body, c.Limits.BodyBudget = 1<<20, 8<<20
		},
	})
	r.stuff(home, "Authorization: Bearer key-a\r\n", 429, "client_limit")
	c := forms(strings.Repeat("a", 700<<10), 2)[0]
	r.expectWhole(c, r.call(c, "Authorization", "Bearer key-b"))
}

// Where there are no keys, clients are told apart by their addresses.
func TestOneAddressLeavesRoomForOthers(t *testing.T) {
	r := newRig(t, rigOptions{
		engine: func(o *sim.Options) { o.MaxModelLen, o.NumBlocks = 1<<20, 1<<17 },
		config: func(c *proxy.Config) { c.Limits.Body, c.Limits.BodyBudget = 1<<20, 8<<20 },
	})
	r.stuff("127.0.0.2", "", 429, "client_limit")
	c := forms(strings.Repeat("a", 700<<10), 2)[0]
	r.expectWhole(c, r.call(c)) // from home
}

// When large bodies hold all that they may, small ones still have a reserve.
func TestSmallBodiesHaveAReserve(t *testing.T) {
	r := newRig(t, rigOptions{config: func(c *proxy.Config) {
		c.Limits.Body, c.Limits.BodyBudget, c.Limits.ClientShare = 1<<20, 8<<20, 1
	}})
	r.stuff(home, "", 503, "overloaded")
	for _, size := range []int{10, 20_000} {
		c := forms(strings.Repeat("a", size), 2)[0]
		r.expectWhole(c, r.call(c))
	}
}

// A shutdown reaches a request whose body is still on its way.
func TestDrainEndsUploads(t *testing.T) {
	together(t)
	for _, path := range []string{"/v1/completions", "/v1/chat/completions", "/tokenize"} {
		t.Run(path, func(t *testing.T) {
			r := newRig(t, rigOptions{config: func(c *proxy.Config) { c.Timeouts.Drain = 20 * time.Millisecond }})
			conn := r.dialRaw()
			_ = conn.SetDeadline(time.Now().Add(2 * patience))
			_, _ = io.WriteString(conn, "POST "+path+" HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{")
			r.await("arrived", func() bool { return r.buffered() > 0 })
			if err := r.server.Shutdown(); err != nil {
				t.Errorf("shutdown: %v", err)
			}
			expectError(t, conn, 503, "shutting_down")
		})
	}
}
