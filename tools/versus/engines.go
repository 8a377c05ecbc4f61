package versus

import (
	"bytes"
	"fmt"
	"net/netip"
	"runtime"
	"syscall"
	"time"
)

// role is what a port answers as.
type role uint8

const (
	prefill role = iota
	decode
)

// pacing is how decode engines stream.
type pacing struct {
	events   int           // of a stream
	interval time.Duration // between two events of a stream; 0 for as fast as possible
	hold     bool          // after its events a stream stays open and silent
}

// engines answers as prefill and decode engines on many ports, on one thread.
type engines struct {
	poll      *poller
	wake      int // an eventfd, by which close ends the thread
	book      *book
	listeners map[int]role
	conns     map[int]*engineConn
	scratch   []byte
	event     []byte        // the chunk of a content event
	stamped   int           // the place of its stamp
	rushing   []*engineConn // streams without an interval whose turn it is
	wheel     wheel
	ended     chan struct{}
	err       error // why the thread ended, if not by close

	Prefill, Decode []string // host:port
}

// engineConn is a connection from a proxy.
type engineConn struct {
	sendBuffer
	role   role
	head   []byte // of a request, until it is whole
	body   int    // bytes of the body that are to come
	size   int    // of the whole body
	left   int    // events of the stream that are to come
	closed bool
}

func startEngines(prefills, decodes int, b *book) (*engines, error) {
	e := &engines{
		book:      b,
		listeners: map[int]role{}, conns: map[int]*engineConn{},
		scratch: make([]byte, 256<<10), ended: make(chan struct{}),
	}
	chunk, at := contentEvent()
	e.event, e.stamped = chunk, at+len(chunk)-eventSize-2
	var err error
	if e.poll, err = newPoller(); err != nil {
		return nil, err
	}
	wake, _, errno := syscall.Syscall(syscall.SYS_EVENTFD2, 0, syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0)
	if errno != 0 {
		return nil, fmt.Errorf("create an eventfd: %w", errno)
	}
	e.wake = int(wake)
	if err := e.poll.add(e.wake, syscall.EPOLLIN); err != nil {
		return nil, err
	}
	for i := range prefills + decodes {
		to, r := &e.Prefill, prefill
		if i >= prefills {
			to, r = &e.Decode, decode
		}
		addr, err := e.listen(r)
		if err != nil {
			return nil, err
		}
		*to = append(*to, addr)
	}
	go e.run()
	return e, nil
}

// close ends the thread and its sockets.
func (e *engines) close() error {
	one := []byte{1, 0, 0, 0, 0, 0, 0, 0}
	if _, err := syscall.Write(e.wake, one); err != nil {
		return fmt.Errorf("end the engines: %w", err)
	}
	<-e.ended
	return e.err
}

func (e *engines) listen(r role) (string, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", fmt.Errorf("open an engine's socket: %w", err)
	}
	e.listeners[fd] = r
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return "", fmt.Errorf("bind an engine's socket: %w", err)
	}
	if err := syscall.Listen(fd, 4096); err != nil {
		return "", fmt.Errorf("listen on an engine's socket: %w", err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		return "", fmt.Errorf("ask for an engine's port: %w", err)
	}
	in4, ok := name.(*syscall.SockaddrInet4)
	if !ok {
		panic(fmt.Sprintf("BUG: an IPv4 socket has the address %T", name))
	}
	return netip.AddrPortFrom(netip.AddrFrom4(in4.Addr), uint16(in4.Port)).String(), e.poll.add(fd, syscall.EPOLLIN)
}

// run is the thread.
func (e *engines) run() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(e.ended)
	defer e.closeAll()
	for {
		ready, err := e.poll.wait(e.patience())
		if err != nil {
			e.err = err
			return
		}
		for _, ev := range ready {
			fd := int(ev.Fd)
			if fd == e.wake {
				return
			}
			if r, ok := e.listeners[fd]; ok {
				e.accept(fd, r)
			} else if c := e.conns[fd]; c != nil {
				e.serve(c, ev.Events)
			}
		}
		e.wheel.turn(stamp(), e.sendEvent)
		e.rush()
	}
}

// patience returns how long, in ms, to wait for sockets.
func (e *engines) patience() int {
	switch {
	case len(e.rushing) > 0:
		return 0
	case e.wheel.streams > 0:
		return 1
	}
	return -1
}

func (e *engines) closeAll() {
	for fd := range e.listeners {
		_ = syscall.Close(fd)
	}
	for _, c := range e.conns {
		e.drop(c)
	}
	_ = syscall.Close(e.wake)
	e.poll.close()
}

func (e *engines) accept(listener int, r role) {
	for {
		fd, _, err := syscall.Accept4(listener, syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC)
		if err != nil {
			return // there is no reader, or it has gone
		}
		c := &engineConn{sendBuffer: sendBuffer{fd: fd, poll: e.poll}, role: r}
		_ = syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1) // as uvicorn does
		if e.poll.add(fd, wantRead) != nil {
			_ = syscall.Close(fd)
			continue
		}
		e.conns[fd] = c
	}
}

func (e *engines) drop(c *engineConn) {
	c.closed = true
	delete(e.conns, c.fd)
	_ = syscall.Close(c.fd)
}

func (e *engines) serve(c *engineConn, ready uint32) {
	if ready&syscall.EPOLLOUT != 0 {
		if err := c.flush(); err != nil {
			e.drop(c)
			return
		}
		if !c.blocked() && c.left > 0 && e.book.pace.interval == 0 {
			e.rushing = append(e.rushing, c)
		}
	}
	if ready&^syscall.EPOLLOUT == 0 {
		return
	}
	n, err := receive(c.fd, e.scratch)
	if err == nil {
		err = e.feed(c, e.scratch[:n])
	}
	if err != nil {
		e.drop(c)
	}
}

// feed takes bytes of requests, and answers each request when it is whole.
func (e *engines) feed(c *engineConn, b []byte) error {
	for len(b) > 0 {
		if c.body > 0 {
			n := min(c.body, len(b))
			c.body -= n
			b = b[n:]
		} else {
			before := len(c.head)
			c.head = append(c.head, b...)
			end := bytes.Index(c.head, []byte("\r\n\r\n"))
			if end < 0 {
				return nil
			}
			b = b[end+4-before:]
			c.head = c.head[:end+2]
			var err error
			if c.size, err = e.book.length(c.head); err != nil {
				return err
			}
			c.body = c.size
		}
		if c.body == 0 {
			if err := e.answer(c); err != nil {
				return err
			}
			c.head = c.head[:0]
		}
	}
	return nil
}

// answer sends the whole answer, or begins a stream.
func (e *engines) answer(c *engineConn) error {
	whole, stream := e.book.answer(c.role, c.head, c.size)
	if stream {
		return e.beginStream(c)
	}
	return c.write(whole)
}

func (e *engines) beginStream(c *engineConn) error {
	c.left = e.book.pace.events
	if err := c.write(streamHead); err != nil {
		return err
	}
	if e.book.pace.interval == 0 {
		e.rushing = append(e.rushing, c)
	} else if e.sendEvent(c) { // a proxy may hold the head back until the first token
		e.wheel.add(c, e.book.pace.interval, stamp())
	}
	return nil
}

// sendEvent sends the next event of a stream, and after the last one its end. It reports whether
// more are to come.
func (e *engines) sendEvent(c *engineConn) (more bool) {
	if c.closed {
		return false
	}
	putStamp(e.event[e.stamped:], stamp())
	c.left--
	err := c.write(e.event)
	if err == nil && c.left == 0 && !e.book.pace.hold {
		err = c.write(streamTail)
	}
	if err != nil {
		e.drop(c)
		return false
	}
	return c.left > 0
}

// rush sends, stream by stream, all that the proxy takes, with one write for each event.
func (e *engines) rush() {
	for _, c := range e.rushing {
		for !c.blocked() && e.sendEvent(c) {
		}
	}
	clear(e.rushing)
	e.rushing = e.rushing[:0]
}

// field finds a header's value. name is in lower case.
func field(head []byte, name string) ([]byte, bool) {
	for line := range bytes.SplitSeq(head, []byte("\r\n")) {
		if len(line) > len(name) && line[len(name)] == ':' && bytes.EqualFold(line[:len(name)], []byte(name)) {
			return bytes.TrimSpace(line[len(name)+1:]), true
		}
	}
	return nil, false
}
