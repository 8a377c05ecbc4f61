package netio

import (
	"io"
	"net"
	"sync"
)

// longer moves a connection to a server that has room for longer heads. So only the clients that send such heads have
// large buffers. The first server has no way to give its buffer up, or to let go of what it has read. So what has come
// of a head that is not complete is kept, and the second server reads it again.
type longer struct {
	head  []byte           // of the head that is being read
	moved bool             // nothing is kept any more
	take  func(*Conn) bool // hands the connection over; it is set until the first server has closed the connection
}

// keep notes what was read. open is the length of a head that is not complete.
func (l *longer) keep(b []byte, open int) {
	switch {
	case l.moved:
	case open > len(b):
		l.head = append(l.head, b...)
	case open > 0:
		l.head = append(l.head[:0], b[len(b)-open:]...)
	case cap(l.head) > maxFramingField: // fasthttp reads the first byte of a request alone, which is kept here
		l.head = nil
	default:
		l.head = l.head[:0]
	}
}

// again reads what was kept, for the second server.
func (l *longer) again(p []byte) int {
	if !l.moved {
		return 0
	}
	n := copy(p, l.head)
	if l.head = l.head[n:]; len(l.head) == 0 {
		l.head = nil
	}
	return n
}

// Move lets to accept the connection, from the begin of the head that is being read, once the server that refuses this
// head closes it. What that server still writes is dropped. A connection moves once.
func (c *Conn) Move(to *Rooms) bool {
	if c.longer.moved || len(c.longer.head) == 0 {
		return false
	}
	c.longer.moved = true
	c.longer.take = func(c *Conn) bool {
		c.longer.take = nil
		return to.take(c)
	}
	return true
}

// Write writes all of p.
func (c *Conn) Write(p []byte) (int, error) {
	if c.longer.take != nil {
		return len(p), nil
	}
	return c.Socket.Write(p)
}

// Rooms is the listener of the second server. NewRooms makes one.
type Rooms struct {
	conns chan *Conn
	done  chan struct{}
	once  sync.Once
	addr  net.Addr
}

// NewRooms returns a listener that accepts the connections that move to it. addr is that of the first one.
func NewRooms(addr net.Addr) *Rooms {
	return &Rooms{conns: make(chan *Conn), done: make(chan struct{}), addr: addr}
}

func (r *Rooms) take(c *Conn) bool {
	select {
	case r.conns <- c:
		return true
	case <-r.done:
		return false
	}
}

// Accept returns the next connection that moves.
func (r *Rooms) Accept() (net.Conn, error) {
	select {
	case c := <-r.conns:
		return c, nil
	case <-r.done:
		return nil, io.EOF
	}
}

// Close ends accepting.
func (r *Rooms) Close() error {
	r.once.Do(func() { close(r.done) })
	return nil
}

// Addr is the address of the first listener.
func (r *Rooms) Addr() net.Addr { return r.addr }
