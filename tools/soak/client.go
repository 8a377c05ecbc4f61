package soak

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync/atomic"
	"syscall"
	"time"

	"xpyd/tools/completion"
)

// requestBound is how long one request may take in all. It is the deadline of the whole request
// (timeouts.request of the soak's configuration) and what a loaded machine adds.
const requestBound = requestDeadline + 10*time.Second

// pace is how a client reads.
type pace int

const (
	paceSteady pace = iota
	paceSlow        // some bytes at a time, to the end
	paceStuck       // stops for longer than timeouts.write_stall
)

// request is one completion of a soak's client, with the moment at which the client leaves.
type request struct {
	completion.Call
	load   string // kind of client, for the report
	id     string
	key    string // bearer token
	pace   pace
	leaves bool
	manner completion.Manner
	inBody bool               // leaves after half of the body
	after  time.Duration      // otherwise leaves after this time, or if it is 0
	events int                // after this many events
	told   func(leave func()) // gets what makes the client leave, wherever it is; nil if nobody may
	over   *atomic.Bool       // with told: the client has left by that, or the request has ended
	heard  bool               // the first byte of its answer has come
}

// client is one client. It has a raw socket, so that it can leave in every way.
type client struct {
	s      *soak
	r      *rand.Rand
	direct bool         // past the proxy, to the control engine
	conn   *net.TCPConn // nil between two requests unless kept alive
	wire   net.Conn     // conn, or TLS over it
	in     *bufio.Reader
	reused bool
}

func (c *client) connect(q *request) error {
	if c.conn != nil && (q.pace != paceSteady || c.r.IntN(3) == 0) {
		c.drop()
	}
	c.reused = c.conn != nil
	if c.conn == nil {
		d := net.Dialer{Timeout: completion.Patience}
		if q.pace != paceSteady {
			d.Control = smallReceiveBuffer
		}
		address := c.s.proxy.address()
		if c.direct {
			address = c.s.fleet.control.Addr()
		}
		conn, err := d.Dial("tcp", address)
		if err != nil {
			return err
		}
		c.conn, c.wire = conn.(*net.TCPConn), c.secure(conn)
		c.in = bufio.NewReader(c.wire)
	}
	return c.conn.SetDeadline(time.Now().Add(requestBound))
}

// smallReceiveBuffer makes the proxy feel a client that does not read. It is set before the
// connection is made, because it bounds the window.
func smallReceiveBuffer(_, _ string, raw syscall.RawConn) error {
	var err error
	if e := raw.Control(func(fd uintptr) {
		err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096)
	}); e != nil {
		return e
	}
	return err
}

// secure begins TLS if the run has it, in one of two versions. The handshake comes with the first write.
func (c *client) secure(conn net.Conn) net.Conn {
	if c.s.certs == nil || c.direct {
		return conn
	}
	version := [...]uint16{tls.VersionTLS12, tls.VersionTLS13, tls.VersionTLS13}[c.r.IntN(3)]
	return tls.Client(conn, c.s.certs.dialer(version, c.r.IntN(4) > 0))
}

// closeWrite ends the sending side, over TLS with or without a farewell.
func (c *client) closeWrite() {
	if over, ok := c.wire.(*tls.Conn); ok && c.r.IntN(2) == 0 {
		_ = over.CloseWrite() // fails only if the proxy has closed first
		return
	}
	_ = c.conn.CloseWrite() // the same
}

func (c *client) drop() {
	if c.conn != nil {
		if over, ok := c.wire.(*tls.Conn); ok && c.r.IntN(2) == 0 {
			_ = over.Close() // with a farewell
		}
		_ = c.conn.Close() // already closed if the client left by closing it
		c.conn = nil
	}
}

func (q *request) bytes() []byte {
	body := q.Body()
	head := fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: soak\r\nContent-Type: application/json\r\nX-Request-Id: %s\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n",
		q.Path(), q.id, q.key, len(body))
	return append(head, body...)
}

// do carries out one request, files how it ended and returns that. It is a fault if the proxy closes a kept
// connection under a request, even in a hand-over, because clients keep theirs for less than
// timeouts.idle.
func (c *client) do(q *request) string {
	c.count(func(s *second) { s.requests++ })
	what, err := c.try(q)
	c.count(func(s *second) {
		if s.ended++; !q.heard {
			s.heard++
		}
	})
	var bad *wrong
	switch {
	case q.over != nil && q.over.Swap(true):
		c.drop()
		what = "left"
		fallthrough
	case err == nil:
		c.s.tally.ended(q.load, what)
		return what
	case errors.As(err, &bad):
	case timedOut(err):
		bad = wrongf(invOutcomes, "a request without an answer", "%v", err)
	case c.reused:
		bad = wrongf(invOutcomes, "a kept connection that failed", "%v", err)
	default:
		bad = wrongf(invOutcomes, "a connection that failed", "%v", err)
	}
	c.drop()
	c.s.tally.ended(q.load, "WRONG")
	c.s.verdict.breach(bad.invariant, bad.what, "%s, client %s, stage %v: %s", q.id, q.load, c.s.plan.at(time.Now()), bad.detail)
	return "WRONG"
}

// count files something about a request that goes through the proxy.
func (c *client) count(edit func(*second)) {
	if !c.direct {
		c.s.tally.in(time.Now(), edit)
	}
}

func (c *client) try(q *request) (what string, err error) {
	if err := c.connect(q); err != nil {
		return "", fmt.Errorf("connect to the proxy: %w", err)
	}
	if q.told != nil {
		over, conn := new(atomic.Bool), c.conn
		q.over = over
		q.told(func() {
			if !over.Swap(true) {
				_ = conn.Close()
			}
		})
	}
	raw := q.bytes()
	if q.leaves && q.inBody {
		raw = raw[:len(raw)-len(q.Body())/2]
	}
	if _, err := c.wire.Write(raw); err != nil {
		return "", fmt.Errorf("send the request: %w", err)
	}
	if q.leaves && (q.inBody || q.after > 0) {
		return c.leaveUnread(q)
	}
	sent := time.Now()
	if _, err := c.in.Peek(1); err != nil {
		return "", fmt.Errorf("await an answer: %w", err)
	}
	q.heard = true
	c.count(func(s *second) { s.heard++ })
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return "", wrongf(invOutcomes, "an answer that is no HTTP", "%v", err)
	}
	if got := resp.Header.Get("X-Request-Id"); got != q.id && !c.direct {
		return "", wrongf(invBytes, "an answer to another request", "X-Request-Id %q to %q", got, q.id)
	}
	if resp.StatusCode == http.StatusOK && q.Stream {
		what, err = c.readStream(q, resp, sent)
	} else {
		what, err = c.readWhole(q, resp)
	}
	kept := what == "complete" || c.s.certs != nil && resp.StatusCode != http.StatusOK // a handshake is saved
	if err != nil || resp.Close || !kept {
		c.drop()
	}
	return what, err
}

// leaveUnread leaves without reading the answer. Only a half-closed client reads, and a wrong
// answer is then a fault.
func (c *client) leaveUnread(q *request) (string, error) {
	time.Sleep(q.after)
	c.s.faults.clientGone(q.id)
	defer c.drop()
	switch q.manner {
	case completion.MannerReset:
		_ = c.conn.SetLinger(0)
		return "left", nil
	case completion.MannerHalf:
		c.closeWrite()
	default:
		return "left", nil
	}
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return "left", silence(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return "left", silence(err)
	}
	if err := q.Check(body); err != nil {
		return "", wrongf(invOutcomes, "a half-closed client told 200 with a clean end", "%v", err)
	}
	return "left", nil
}

// silence is the only end that a half-closed client must not see.
func silence(err error) error {
	if err != nil && timedOut(err) {
		return wrongf(invOutcomes, "a half-closed client neither answered nor cut off", "%v", err)
	}
	return nil
}

func (c *client) readWhole(q *request, resp *http.Response) (string, error) {
	body, err := io.ReadAll(resp.Body)
	switch {
	case err != nil && timedOut(err):
		return "", err
	case err != nil:
		return "", wrongf(invOutcomes, "an answer with a length that breaks off", "status %d, %d bytes: %v", resp.StatusCode, len(body), err)
	case resp.StatusCode != http.StatusOK:
		what, bad := refused(resp, body)
		if bad != nil {
			return what, bad
		}
		return what, nil
	}
	if bad := q.whole(body); bad != nil {
		return "", bad
	}
	return "complete", nil
}
