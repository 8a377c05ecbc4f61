package soak

import (
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

// client is one client.
type client struct {
	completion.Conn
	s      *soak
	r      *rand.Rand
	direct bool // past the proxy, to the control engine
	reused bool
}

func (c *client) connect(q *request) error {
	if c.TCP != nil && (q.pace != paceSteady || c.r.IntN(3) == 0) {
		c.drop()
	}
	if c.reused = c.TCP != nil; !c.reused {
		var d net.Dialer
		if q.pace != paceSteady {
			d.Control = smallReceiveBuffer
		}
		address := c.s.proxy.address()
		if c.direct {
			address = c.s.fleet.control.Addr()
		}
		if err := c.Dial(d, address, c.secure); err != nil {
			return err
		}
	}
	return c.TCP.SetDeadline(time.Now().Add(requestBound))
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

// farewell draws whether a client that leaves says so, as TLS can.
func (c *client) farewell() bool { return c.s.certs != nil && c.r.IntN(2) == 0 }

func (c *client) drop() { c.Drop(c.farewell()) }

func (q *request) bytes() []byte {
	body := q.Body()
	return append(q.Head(len(body), "X-Request-Id: "+q.id+"\r\nAuthorization: Bearer "+q.key+"\r\n"), body...)
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
	c.s.verdict.Breach(bad.invariant, bad.what, "%s, client %s, stage %v: %s", q.id, q.load, c.s.plan.at(time.Now()), bad.detail)
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
		return "", err
	}
	if q.told != nil {
		over, conn := new(atomic.Bool), c.TCP
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
	if _, err := c.Wire.Write(raw); err != nil {
		return "", fmt.Errorf("send the request: %w", err)
	}
	if q.leaves && (q.inBody || q.after > 0) {
		return c.leaveUnread(q)
	}
	sent := time.Now()
	if _, err := c.In.Peek(1); err != nil {
		return "", fmt.Errorf("await an answer: %w", err)
	}
	q.heard = true
	c.count(func(s *second) { s.heard++ })
	resp, err := http.ReadResponse(c.In, nil)
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
	if c.Leave(q.manner, c.farewell()); q.manner != completion.MannerHalf {
		return "left", nil
	}
	if _, wrong, err := c.HalfClosed(q.Call); wrong != "" {
		return "", wrongf(invOutcomes, wrong, "%v", err)
	}
	return "left", nil
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
