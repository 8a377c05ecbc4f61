package netio

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// sendBuffer bounds what the kernel buffers for a client that reads slowly. Without it one slow
// reader holds 4 MiB.
const sendBuffer = 256 << 10

// keepAlive finds clients that vanished. It is set on each connection, because a listener that was
// inherited has lost Go's own setting.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}

// Terms are what clients get from a listener.
type Terms struct {
	PerIP      int                 // connections of one address, or of one IPv6 /64; 0 means no limit
	WriteStall time.Duration       // how long a client may leave a write unread
	TurnedAway func(reason string) // counts clients that got no place; may be nil
	NoRoom     []byte              // the answer to a client for which there is no descriptor
	Watcher    *Watcher            // notices clients that leave; may be nil
	Lingering  *Lingering          // takes clients with an unread body after their answer; nil if none linger
	TLS        *tls.Config         // nil: plain HTTP
	NotTLS     []byte              // the plain answer to a client that speaks HTTP on a TLS port
	Unsecured  func(why error)     // hears why a handshake failed; may be nil
	// Balancers are the peers whose connections begin with a header of the PROXY protocol. The listener
	// calls Unintroduced for a connection without one; it may be nil.
	Balancers    []netip.Prefix
	Unintroduced func(peer netip.Addr, why error)
}

// Listener accepts clients with the socket options that long streams need, and caps the connections of
// one address. fasthttp has such a cap too, but it hides the descriptor.
type Listener struct {
	net.Listener
	terms  Terms
	limit  int          // of the descriptors of clients, see clientDescriptors
	open   atomic.Int64 // connections accepted and not closed
	closed atomic.Bool  // Close was called
	pulse  pulse        // of the loop that accepts

	born     time.Time
	oldest   []idleConn // that may be closed for others; only the goroutine that accepts has these
	lookFrom int64      // when to look for more

	mu    sync.Mutex // guards count, the place of each connection, and conns
	count map[netip.Addr]int
	conns map[*Conn]struct{} // that are open
}

// Conn is an accepted connection that knows its descriptor, which stays valid until Close.
type Conn struct {
	Socket
	ip     netip.Addr // until introduce has run, that of the balancer
	ln     *Listener
	closed sync.Once
	unread atomic.Bool // its client may still send what no handler will read

	idle     atomic.Int64 // since when it waits for the next request, on the clock of ln; 0 if it does not, or evicted
	framing  Framing      // of what the client sends
	longer   longer
	balanced bool // a balancer made the connection
	begun    bool // what comes before HTTP has been read

	counted bool // under the cap of its address
	left    bool // Close was called, so it takes no place
}

// IP is the address of the client. An IPv4 address never has the form of an IPv6 address. If a balancer
// names its clients, IP is right only after a request has arrived.
func (c *Conn) IP() netip.Addr { return c.ip }

// Network is what tells clients apart that are known by their address alone: an IPv4 address, or the /64 of an IPv6
// address, all of which one client usually has (https://www.rfc-editor.org/rfc/rfc6177). Link-local clients share theirs.
func (c *Conn) Network() netip.Addr {
	if !c.ip.Is6() || c.ip.IsLinkLocalUnicast() {
		return c.ip
	}
	p, _ := c.ip.Prefix(64)
	return p.Addr()
}

// Misframed reports that the client has sent something that Framing refused.
func (c *Conn) Misframed() bool { return c.framing.Refused() }

// Departed reports, without waiting, whether the client has closed the connection or its sending side.
func (c *Conn) Departed() bool {
	return departed(c.fd) || c.secure != nil && c.secure.departed()
}

// LeaveUnread makes Close wait for the end of the bytes that the client may still send, see Lingering.
func (c *Conn) LeaveUnread() { c.unread.Store(true) }

// ErrInUse says that another socket has the address.
var ErrInUse = errors.New("is in use; end its owner or choose another address")

// Listen opens the data port. An empty host means all addresses.
func Listen(addr string) (net.Listener, error) {
	cfg := net.ListenConfig{
		KeepAlive: -1, // Accept sets it
		Control:   func(_, _ string, c syscall.RawConn) error { return tune(c) },
	}
	cfg.SetMultipathTCP(false) // Go's default, on which TCP_USER_TIMEOUT does not exist
	ln, err := cfg.Listen(context.Background(), "tcp", addr)
	if err != nil {
		if errors.Is(err, unix.EADDRINUSE) {
			return nil, fmt.Errorf("listen: %s %w", addr, ErrInUse)
		}
		return nil, fmt.Errorf("listen: %w", err)
	}
	return ln, nil
}

// Inherit makes the data port from a listening TCP socket that this process got at its start. The
// caller still owns f and may close it at once. When the listener closes, the other processes that hold
// the socket keep it, and the connections in its queue.
func Inherit(f *os.File) (net.Listener, error) {
	ln, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("inherited socket: %w", err)
	}
	tcp, ok := ln.(*net.TCPListener)
	if !ok {
		_ = ln.Close()
		return nil, fmt.Errorf("inherited socket: want TCP, got %s", ln.Addr().Network())
	}
	raw, err := tcp.SyscallConn()
	if err == nil {
		err = tune(raw)
	}
	if err != nil {
		_ = ln.Close()
		return nil, fmt.Errorf("inherited socket: %w", err)
	}
	return ln, nil
}

// deadPeer is how long the kernel waits for a peer that acknowledges nothing.
const deadPeer = 30 * time.Second

// tune sets what accepted connections inherit from their listener.
func tune(c syscall.RawConn) error {
	var err error
	ctlErr := c.Control(func(fd uintptr) {
		if err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF, sendBuffer); err == nil {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(deadPeer.Milliseconds()))
		}
	})
	if err = errors.Join(ctlErr, err); err != nil {
		return fmt.Errorf("set SO_SNDBUF and TCP_USER_TIMEOUT: %w", err)
	}
	return nil
}

// NewListener makes a Listener from a socket of Listen or Inherit. After an error ln is still open.
func NewListener(ln net.Listener, terms Terms) (*Listener, error) {
	if terms.TurnedAway == nil {
		terms.TurnedAway = func(string) {}
	}
	l := &Listener{Listener: ln, terms: terms, limit: clientDescriptors(), pulse: newPulse(), born: time.Now(), count: map[netip.Addr]int{}, conns: map[*Conn]struct{}{}}
	return l, l.allowStall(terms.WriteStall)
}

// allowStall lets a client leave a write unread for longer than the kernel gives a peer that
// acknowledges nothing. For the kernel a closed window counts as such a peer.
func (l *Listener) allowStall(stall time.Duration) error {
	tcp, ok := l.Listener.(*net.TCPListener)
	if !ok || stall <= deadPeer {
		return nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return fmt.Errorf("set TCP_USER_TIMEOUT: %w", err)
	}
	ctlErr := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int((stall + time.Second).Milliseconds()))
	})
	if err = errors.Join(ctlErr, err); err != nil {
		return fmt.Errorf("set TCP_USER_TIMEOUT: %w", err)
	}
	return nil
}

// Open returns how many accepted connections are open.
func (l *Listener) Open() int64 { return l.open.Load() }

// Close ends accepting. Later calls do nothing.
func (l *Listener) Close() error {
	if l.closed.Swap(true) {
		return nil
	}
	defer l.pulse.beat()
	return l.Listener.Close()
}

// Accept returns the next client whose address is under its cap. It closes the others at once.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			l.turned()
			continue
		}
		if OutOfResources(err) {
			l.makeRoom()
			time.Sleep(acceptPause) // descriptors come back as requests end
			continue
		}
		if err != nil {
			return nil, err
		}
		tcp, ok := conn.(*net.TCPConn)
		if !ok {
			return nil, fmt.Errorf("accept: want TCP, got %T", conn)
		}
		c := &Conn{ln: l, ip: tcp.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()}
		if err = c.open(tcp); err == nil {
			err = tcp.SetKeepAliveConfig(keepAlive)
		}
		if err == nil && c.fd >= l.limit && !l.makeRoom() {
			l.terms.TurnedAway("descriptors")
			l.turnAway(tcp)
			continue
		}
		if err == nil {
			err = l.adopt(c)
		}
		c.balanced = within(l.terms.Balancers, c.ip)
		if err == nil && (c.balanced || l.takePlace(c)) {
			l.open.Add(1)
			l.mu.Lock()
			l.conns[c] = struct{}{}
			l.mu.Unlock()
			return c, nil
		}
		c.peer.part()
		if err == nil {
			l.terms.TurnedAway("per_ip")
		}
		_ = tcp.Close()
	}
}

// adopt gives a new connection its TLS and its watcher.
func (l *Listener) adopt(c *Conn) error {
	if l.terms.TLS != nil {
		c.secureServer(l.terms.TLS)
		c.peer.secure = c.secure
	}
	if l.terms.Watcher == nil {
		return nil
	}
	return l.terms.Watcher.join(&c.peer, c.fd)
}

// acceptPause is the pause after an accept that failed because descriptors or memory ran out.
const acceptPause = 50 * time.Millisecond

// OutOfResources reports that this process or host lacks a resource for one more connection. fasthttp
// would then end the server, although the next accept may succeed. ENOSPC is epoll's error at
// fs.epoll.max_user_watches. A connection takes two of these watches, and a third while a loop follows
// it.
func OutOfResources(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.ENOMEM) || errors.Is(err, unix.ENOSPC)
}

func (l *Listener) takePlace(c *Conn) bool {
	if l.terms.PerIP <= 0 {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.left || l.count[c.Network()] >= l.terms.PerIP {
		return false
	}
	c.counted = true
	l.count[c.Network()]++
	return true
}

func (l *Listener) freePlace(c *Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
	if c.left = true; !c.counted {
		return
	}
	of := c.Network()
	if l.count[of]--; l.count[of] == 0 {
		delete(l.count, of)
	}
}

// Read reads what the client has sent, as far as its framing is correct. The first call also reads what
// comes before HTTP: a balancer's header and the TLS handshake. If that fails, Read reports to HTTP
// that the client has closed the connection.
func (c *Conn) Read(p []byte) (int, error) {
	if !c.begun {
		c.begun = true
		if !c.begin() {
			return 0, io.EOF
		}
	}
	if n := c.longer.again(p); n > 0 {
		return n, nil
	}
	body, since := c.framing.inBody(), int64(0)
	if c.framing.between() {
		since = c.ln.now()
		c.idle.Store(since)
	}
	n, err := c.framing.Read(&c.Socket, p)
	c.longer.keep(p[:n], c.framing.head)
	if since > 0 && !c.idle.CompareAndSwap(since, 0) {
		return 0, io.EOF // evicted
	}
	if !body && c.ln.terms.WriteStall > 0 {
		// fasthttp sets a deadline only for what a handler answers. It writes "100 Continue", and refuses a head, under
		// that of the answer before, which may have passed.
		_ = c.SetWriteDeadline(time.Now().Add(c.ln.terms.WriteStall))
	}
	return n, err
}

// begin reads what comes before HTTP, and reports whether HTTP follows.
func (c *Conn) begin() bool {
	if c.balanced && !c.introduce() {
		return false
	}
	if c.secure == nil {
		return true
	}
	err := c.secure.Handshake()
	if err != nil {
		c.unsecured(err)
	}
	return err == nil
}

// unsecured is called after a handshake that failed. A client that said nothing is no failure, however its connection
// ended: balancers look at a port like that, and browsers keep connections ready.
func (c *Conn) unsecured(err error) {
	if !c.secure.heard || errors.Is(err, io.EOF) {
		return
	}
	terms := &c.ln.terms
	terms.TurnedAway("tls")
	if terms.Unsecured != nil {
		terms.Unsecured(err)
	}
	var plain tls.RecordHeaderError
	if errors.As(err, &plain) && Printable(plain.RecordHeader[:]) {
		_, _ = c.writeNow(terms.NotTLS)
		c.LeaveUnread() // of a request, which would make the answer a reset
	}
}

// Close closes the connection and gives back its place under the cap, once. If the client may still be
// sending, Close first waits until it has finished, see Lingering.
func (c *Conn) Close() error {
	if take := c.longer.take; take != nil && take(c) {
		return nil
	}
	c.closed.Do(func() {
		if c.unread.Load() && c.ln.terms.Lingering != nil {
			c.ln.terms.Lingering.drain(c)
		}
		c.ln.freePlace(c)
		c.ln.open.Add(-1)
		c.peer.part()
	})
	return c.close()
}
