// Package upstream is the HTTP/1.1 client of backends. It keeps pools of connections and never uses a
// stale one. Each connection carries one exchange at a time. An exchange has deadlines, and tells how
// it failed. The package also looks up the names of backends. It knows neither roles nor completions.
// It retries in one case only: when a kept connection breaks without an answer.
package upstream

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"xpyd/netio"
	"xpyd/netio/tlsconf"
)

// Config is what New needs.
type Config struct {
	Addr string // host:port to dial
	Host string // authority, for the Host field
	// Prefix goes before the path of every request.
	Prefix string
	// Fields are complete header lines of every request, each ending in CRLF. They precede the fields of
	// the request, so they count if both have the same field.
	Fields []byte
	// DialTimeout bounds a dial, including all addresses of a name.
	DialTimeout time.Duration
	// TLS returns the TLS configuration for each dial. It is nil if the backend speaks plain HTTP.
	TLS func() *tls.Config
	// Handshake bounds the TLS handshake after the dial.
	Handshake time.Duration
	// MaxIdle is how long an unused connection is kept. It must be below the server's keep-alive.
	MaxIdle time.Duration
	LookUp  LookUp         // looks up names; nil means the system's resolver
	Spare   func()         // called to free descriptors if a dial finds none; nil if there is nothing to free
	Scratch *netio.Scratch // shared with other clients; nil means one of its own
	Watcher *netio.Watcher // watches the client's connections; may be nil
	Loops   *netio.Loops   // follow the client's streams; may be nil
}

// Client is the HTTP/1.1 client of one backend, with a LIFO pool of connections. It is safe for
// concurrent use.
type Client struct {
	addr    string
	host    string
	prefix  string
	fields  []byte
	name    *name // nil if addr is an address
	dialer  net.Dialer
	tls     func() *tls.Config // nil: plain
	shake   time.Duration      // bounds the handshake
	spare   func()
	maxIdle time.Duration
	scratch *netio.Scratch
	watcher *netio.Watcher
	loops   *netio.Loops

	born time.Time
	// progress is when one of its streams last went on or an answer was complete, in nanoseconds since born, to the second.
	progress atomic.Int64
	debt     debt

	mu     sync.Mutex
	idle   []*conn // oldest first
	closed bool
}

// conn is one connection. It belongs to the exchange that took it, or to the pool while it is idle.
type conn struct {
	netio.Socket
	in      netio.Inbox
	born    time.Time
	since   time.Time // when it became idle
	reused  bool
	half    bool // the write side is shut, so it can only bring the answer that is on its way
	scratch *netio.Scratch
}

// New makes a client. Close ends it.
func New(cfg Config) *Client {
	u := &Client{
		addr: cfg.Addr, host: cfg.Host, prefix: cfg.Prefix, fields: cfg.Fields, name: newName(cfg.Addr, cfg.LookUp), born: time.Now(), maxIdle: cfg.MaxIdle,
		tls: cfg.TLS, shake: cfg.Handshake, spare: cfg.Spare, scratch: cfg.Scratch, watcher: cfg.Watcher, loops: cfg.Loops,
		dialer: net.Dialer{
			Timeout:         cfg.DialTimeout,
			KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3},
		},
	}
	if u.scratch == nil {
		u.scratch = netio.NewScratch()
	}
	return u
}

// Addr returns the host:port that the client dials.
func (u *Client) Addr() string { return u.addr }

// goesOn notes that a stream made progress, or that an answer is complete.
func (u *Client) goesOn(now time.Time) { u.progress.Store(int64(now.Sub(u.born))) }

// Stalled reports that none of the client's streams has made progress for d and no answer was complete, which shows that
// the backend hangs and not a single stream. The client notes the progress of streams once a second, when it moves their
// deadlines.
func (u *Client) Stalled(d time.Duration) bool {
	return time.Since(u.born)-time.Duration(u.progress.Load()) >= d
}

// take returns the youngest idle connection, or dials. Whether an idle one is still quiet shows when
// the request is written.
func (u *Client) take() (*conn, error) {
	if c := u.popIdle(); c != nil {
		return c, nil
	}
	return u.dial()
}

func (u *Client) popIdle() *conn {
	u.mu.Lock()
	defer u.mu.Unlock()
	n := len(u.idle)
	if n == 0 {
		return nil
	}
	c := u.idle[n-1]
	if time.Since(c.since) > u.maxIdle {
		// The youngest is too old, so all are.
		u.closeOldest(n)
		return nil
	}
	u.idle = slices.Delete(u.idle, n-1, n)
	return c
}

func (u *Client) dial() (*conn, error) {
	dialled, err := u.Dial(context.Background())
	if err != nil {
		return nil, err
	}
	tcp, ok := dialled.(*net.TCPConn)
	if !ok {
		panic("BUG: tcp dial returned " + fmt.Sprintf("%T", dialled))
	}
	c := &conn{born: time.Now(), in: u.scratch.Inbox(), scratch: u.scratch}
	if err := c.Attach(tcp, u.watcher); err != nil {
		_ = tcp.Close()
		return nil, err
	}
	if u.tls == nil {
		return c, nil
	}
	if err := c.SecureClient(u.tls(), time.Now().Add(u.shake)); err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("handshake: %w", tlsconf.Explain(err))
	}
	return c, nil
}

// descriptorPause is the pause before a dial that found no free descriptor is tried again.
const descriptorPause = 5 * time.Millisecond

// Dial connects to the backend. The connection belongs to the caller and to no pool. If there is no
// free descriptor, Dial calls Spare and tries again within the dialer's timeout.
func (u *Client) Dial(ctx context.Context) (net.Conn, error) {
	for deadline := time.Now().Add(u.dialer.Timeout); ; {
		conn, err := u.connectOnce(ctx)
		if !netio.OutOfResources(err) || !time.Now().Before(deadline) || ctx.Err() != nil {
			return conn, err
		}
		if u.spare != nil {
			u.spare()
		}
		time.Sleep(descriptorPause)
	}
}

// put gives a connection whose response was read to its end back to the pool. Each call also closes
// one connection that has been idle too long, so the pool shrinks without a goroutine of its own.
func (u *Client) put(c *conn) {
	c.since = time.Now()
	c.reused = true
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed || u.outlived(c, c.since) {
		_ = c.Close()
		return
	}
	if len(u.idle) > 0 && c.since.Sub(u.idle[0].since) > u.maxIdle {
		u.closeOldest(1)
	}
	u.idle = append(u.idle, c)
}

// Expire closes the connections that have been idle for too long.
func (u *Client) Expire(now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	n := 0
	for n < len(u.idle) && now.Sub(u.idle[n].since) > u.maxIdle {
		n++
	}
	u.closeOldest(n)
}

// closeOldest closes the n oldest idle connections. The slice must not keep what left it, because a TLS
// connection holds its buffers even after it was closed. u.mu is held.
func (u *Client) closeOldest(n int) {
	for _, c := range u.idle[:n] {
		_ = c.Close()
	}
	u.idle = slices.Delete(u.idle, 0, n) // clears the places after the new end
}

// DropIdle closes the connections that no request uses.
func (u *Client) DropIdle() { u.Expire(time.Now().Add(u.maxIdle + time.Hour)) }

// Close closes the idle connections. It closes a connection in use when that comes back.
func (u *Client) Close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.closed = true
	for _, c := range u.idle {
		_ = c.Close()
	}
	u.idle = nil
}

// Close ends the connection. Its owner calls it.
func (c *conn) Close() error {
	c.in.Empty()
	return c.Socket.Close()
}
