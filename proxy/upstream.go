package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"xpyd/netio"
)

// stage is how far an exchange with a backend had come when it failed.
type stage uint8

const (
	stageDial  stage = iota // no connection: the backend has seen nothing
	stageWrite              // some of the request may have arrived
	stageHead               // request written, no complete response head
	stageBody               // inside the response body
)

// upstreamError is a transport failure towards a backend.
type upstreamError struct {
	stage  stage
	silent bool // no byte of a response was received
	reused bool // the connection had served a request before
	err    error
}

func (e *upstreamError) Error() string {
	return [...]string{"dial", "write request", "read response head", "read response body"}[e.stage] + ": " + e.err.Error()
}

func (e *upstreamError) Unwrap() error { return e.err }

func (e *upstreamError) timeout() bool { return errors.Is(e.err, os.ErrDeadlineExceeded) }

// isDial reports that no connection came about.
func isDial(err error) bool {
	var ue *upstreamError
	return errors.As(err, &ue) && ue.stage == stageDial
}

// upstream is the HTTP/1.1 client of one backend: a LIFO pool of connections. Safe
// for concurrent use.
type upstream struct {
	addr     string       // host:port to dial
	host     string       // authority, for the Host field
	name     *backendName // nil where addr is an address
	dialer   net.Dialer
	spare    func()                    // frees descriptors; nil: there is nothing to free
	engine   atomic.Pointer[string]    // engine id of the last handle that came from here
	models   atomic.Pointer[modelList] // what it served when it last came up
	vitality vitality
	wake     chan struct{} // probes it at once; capacity 1
	leaving  atomic.Bool   // a reload has removed it
	born     time.Time
	// progress is when one of its streams last went on, in nanoseconds since born, to the second.
	progress atomic.Int64
	maxIdle  time.Duration // below the server's keep-alive
	releases releasePlaces
	scratch  *netio.Scratch
	watch    *netio.Watcher // of its connections; nil: none

	mu     sync.Mutex
	idle   []*upstreamConn // oldest first
	closed bool
}

// upstreamConn is one connection; it belongs to the exchange that took it, or to the
// pool while idle.
type upstreamConn struct {
	netio.Socket
	in      netio.Inbox
	born    time.Time
	since   time.Time // start of idleness
	reused  bool
	half    bool // the write side is shut: good for the answer that is on its way only
	scratch *netio.Scratch
}

func newUpstream(addr, host string, dialTimeout, maxIdle time.Duration) *upstream {
	return &upstream{
		addr: addr, host: host, born: time.Now(), maxIdle: maxIdle, scratch: netio.NewScratch(), wake: make(chan struct{}, 1),
		dialer: net.Dialer{
			Timeout:         dialTimeout,
			KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3},
		},
	}
}

// take returns an idle connection, youngest first, or dials. Whether the former is quiet
// yet shows when the request is written.
func (u *upstream) take() (*upstreamConn, error) {
	if c := u.popIdle(); c != nil {
		return c, nil
	}
	return u.dial()
}

func (u *upstream) popIdle() *upstreamConn {
	u.mu.Lock()
	defer u.mu.Unlock()
	n := len(u.idle)
	if n == 0 {
		return nil
	}
	c := u.idle[n-1]
	if time.Since(c.since) > u.maxIdle {
		// The youngest is too old, so all are.
		for _, old := range u.idle {
			_ = old.Close()
		}
		u.idle = u.idle[:0]
		return nil
	}
	u.idle = u.idle[:n-1]
	return c
}

func (u *upstream) dial() (*upstreamConn, error) {
	conn, err := u.connect(context.Background())
	if err != nil {
		return nil, err
	}
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		panic("BUG: tcp dial returned " + fmt.Sprintf("%T", conn))
	}
	c := &upstreamConn{born: time.Now(), in: u.scratch.Inbox(), scratch: u.scratch}
	if err := c.Attach(tcp, u.watch); err != nil {
		_ = tcp.Close()
		return nil, err
	}
	return c, nil
}

// put gives a connection whose response was read to its end back to the pool. Each
// call also closes one connection that has been idle too long, so the pool shrinks
// without a goroutine of its own.
func (u *upstream) put(c *upstreamConn) {
	c.since = time.Now()
	c.reused = true
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed || u.outlived(c, c.since) {
		_ = c.Close()
		return
	}
	if len(u.idle) > 0 && c.since.Sub(u.idle[0].since) > u.maxIdle {
		_ = u.idle[0].Close()
		u.idle = append(u.idle[:0], u.idle[1:]...)
	}
	u.idle = append(u.idle, c)
}

// expire closes the connections that have been idle for too long.
func (u *upstream) expire(now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	n := 0
	for n < len(u.idle) && now.Sub(u.idle[n].since) > u.maxIdle {
		_ = u.idle[n].Close()
		n++
	}
	u.idle = append(u.idle[:0], u.idle[n:]...)
}

// close drops the pool; connections in use are closed when they come back.
func (u *upstream) close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.closed = true
	for _, c := range u.idle {
		_ = c.Close()
	}
	u.idle = nil
}

// Close ends the connection; who owns it calls it.
func (c *upstreamConn) Close() error {
	c.in.Empty()
	return c.Socket.Close()
}
