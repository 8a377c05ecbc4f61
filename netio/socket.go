// Package netio is the layer between the kernel and HTTP. It has the sockets of clients and backends,
// which make their own system calls, the listener, and the watcher for peers that leave. It also checks
// and removes the framing of HTTP/1.1, and reads nothing else in the bytes that pass. It knows neither
// requests nor answers, and retries nothing.
package netio

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// RawLimit is how many bytes a raw system call reads or writes at most. Go's scheduler does not know
// about such a call. The socket never blocks, but a large copy would hold up the other goroutines.
const RawLimit = 64 << 10

// sendLimit is RawLimit for what goes to a backend, in bytes. A large prompt is better written by few long
// calls: scanning it holds up the others for as long, and each call more costs a turn of TCP.
const sendLimit = 256 << 10

// maxSegments bounds the pieces of one raw vectored write.
const maxSegments = 16

// Socket is a TCP connection that uses raw system calls for its reads and its small writes. One
// goroutine may read and one may write at a time, as fasthttp and the relay do. Deadlines and Close
// work as on the connection itself. A Socket is ready after Attach.
//
// The connection is a member and not embedded, because its own methods (ReadFrom, net.Buffers) would
// write past TLS.
type Socket struct {
	tcp    *net.TCPConn
	fd     int // valid until Close
	raw    syscall.RawConn
	secure *secure // nil on a plain connection

	peer      peer
	following following
	lead      *lead // of the loop whose take may write to this socket now; nil at other times

	reading, writing transfer
	sending          *Outbox // nil while no request is being sent
	readBy, writeBy  deadline
	// These are bound once, so that no call allocates.
	readStep, writeStep, sendStep func(fd uintptr) bool
}

// transfer is a read or a write under way.
type transfer struct {
	buf  []byte
	n    int
	err  syscall.Errno
	pool *sync.Pool // where a read takes buf from when there is something to read; nil if it has a buffer
	lent *[]byte    // what buf is, then
}

// Attach binds the socket to a dialled connection. If there is a watcher, the socket joins it, and
// Follow needs no read that finds nothing. After an error, the connection is still open and belongs to
// the caller.
func (s *Socket) Attach(tcp *net.TCPConn, w *Watcher) error {
	err := s.open(tcp)
	if err == nil {
		err = unix.SetsockoptInt(s.fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(deadPeer.Milliseconds()))
	}
	if err == nil && w != nil {
		s.peer.onLeft = s.lookAgain
		err = w.join(&s.peer, s.fd)
	}
	return err
}

// Close ends the connection. Its owner calls it.
func (s *Socket) Close() error {
	s.peer.part()
	return s.close()
}

func (s *Socket) close() error {
	s.shut()
	s.secure.farewell((*tls.Conn).Close)
	return s.tcp.Close()
}

// CloseWrite ends the sending side. The socket can still read what the peer sends.
func (s *Socket) CloseWrite() error {
	s.secure.farewell((*tls.Conn).CloseWrite)
	return s.tcp.CloseWrite()
}

// SetLinger is that of net.TCPConn. With 0, for a reset, the connection also sends no close_notify.
func (s *Socket) SetLinger(sec int) error {
	if s.secure != nil {
		s.secure.cut.Store(sec == 0)
	}
	return s.tcp.SetLinger(sec)
}

// LocalAddr returns the address of this end.
func (s *Socket) LocalAddr() net.Addr { return s.tcp.LocalAddr() }

// RemoteAddr returns the address of the peer.
func (s *Socket) RemoteAddr() net.Addr { return s.tcp.RemoteAddr() }

// open binds the socket to an open connection.
func (s *Socket) open(tcp *net.TCPConn) error {
	raw, err := tcp.SyscallConn()
	if err != nil {
		return err
	}
	if err := raw.Control(func(fd uintptr) { s.fd = int(fd) }); err != nil {
		return err
	}
	s.tcp, s.raw = tcp, raw
	s.readStep, s.writeStep, s.sendStep = s.readOnce, s.writeOnce, s.sendOnce
	return nil
}

// Read reads the bytes that have arrived, or waits for some.
func (s *Socket) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if s.secure != nil {
		return s.secure.read(p)
	}
	return s.readRaw(p)
}

// readRaw is Read of the bytes as they came.
func (s *Socket) readRaw(p []byte) (int, error) {
	s.reading = transfer{buf: p}
	return s.read()
}

// readLent is readRaw into a buffer that it takes from pool, of *[]byte, when there is something to
// read. The buffer then belongs to the caller.
func (s *Socket) readLent(pool *sync.Pool) (buf *[]byte, n int, err error) {
	s.reading = transfer{pool: pool}
	if n, err = s.read(); err != nil {
		s.reading.giveBack()
		return nil, 0, err
	}
	buf, s.reading.lent = s.reading.lent, nil
	return buf, n, nil
}

func (s *Socket) read() (int, error) {
	t := &s.reading
	err := s.waitRead(s.readStep)
	t.buf = nil
	switch {
	case err != nil:
		return 0, err
	case t.err != 0:
		return 0, os.NewSyscallError("read", t.err)
	case t.n == 0:
		return 0, io.EOF
	}
	return t.n, nil
}

// waitRead runs step whenever there may be something to read, until it is done or the
// deadline has come.
func (s *Socket) waitRead(step func(fd uintptr) bool) error {
	for {
		err := s.raw.Read(step)
		if err == nil || !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		if moved, failed := s.readBy.catchUp(s.tcp.SetReadDeadline); !moved || failed != nil {
			return err
		}
	}
}

func (s *Socket) waitWrite(step func(fd uintptr) bool) error {
	for {
		err := s.raw.Write(step)
		if err == nil || !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		if moved, failed := s.writeBy.catchUp(s.tcp.SetWriteDeadline); !moved || failed != nil {
			return err
		}
	}
}

// direct makes the connection itself write, and makes it write again if the deadline was moved
// meanwhile.
func (s *Socket) direct(write func() error) error {
	s.waits() // it may, and nobody would hear of it
	if _, err := s.writeBy.catchUp(s.tcp.SetWriteDeadline); err != nil {
		return err
	}
	for {
		err := write()
		if err == nil || !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		if moved, failed := s.writeBy.catchUp(s.tcp.SetWriteDeadline); !moved || failed != nil {
			return err
		}
	}
}

// SetReadDeadline moves the deadline of reads, including those that wait.
func (s *Socket) SetReadDeadline(at time.Time) error {
	return s.readBy.set(at, s.armRead)
}

// SetWriteDeadline moves the deadline of writes, including those that wait.
func (s *Socket) SetWriteDeadline(at time.Time) error {
	return s.writeBy.set(at, s.tcp.SetWriteDeadline)
}

// SetDeadline moves both deadlines.
func (s *Socket) SetDeadline(at time.Time) error {
	return errors.Join(s.SetReadDeadline(at), s.SetWriteDeadline(at))
}

// borrow takes a buffer out of the pool, if there is a pool.
func (t *transfer) borrow() {
	if t.pool != nil {
		t.lent = t.pool.Get().(*[]byte)
		t.buf = *t.lent
	}
}

func (t *transfer) giveBack() {
	if t.lent != nil {
		t.pool.Put(t.lent)
		t.lent, t.buf = nil, nil
	}
}

func (s *Socket) readOnce(fd uintptr) (done bool) {
	t := &s.reading
	t.borrow()
	for {
		n, _, e := syscall.RawSyscall(unix.SYS_READ, fd, uintptr(unsafe.Pointer(unsafe.SliceData(t.buf))), uintptr(min(len(t.buf), RawLimit)))
		switch e {
		case 0:
			t.n = int(n)
			return true
		case unix.EINTR:
		case unix.EAGAIN:
			t.giveBack()
			return false
		default:
			t.err = e
			return true
		}
	}
}

// Write writes all of p.
func (s *Socket) Write(p []byte) (int, error) {
	if s.secure != nil {
		return s.secure.Write(p)
	}
	return s.writeRaw(p)
}

// writeRaw writes all of p unchanged.
func (s *Socket) writeRaw(p []byte) (int, error) {
	if len(p) == 0 || len(p) > RawLimit {
		n := 0
		err := s.direct(func() error {
			m, err := s.tcp.Write(p[n:])
			n += m
			return err
		})
		return n, err
	}
	t := &s.writing
	*t = transfer{buf: p}
	err := s.waitWrite(s.writeStep)
	t.buf = nil
	if err == nil && t.err != 0 {
		err = os.NewSyscallError("write", t.err)
	}
	return t.n, err
}

func (s *Socket) writeOnce(fd uintptr) (done bool) {
	t := &s.writing
	for {
		rest := t.buf[t.n:]
		n, _, e := syscall.RawSyscall(unix.SYS_WRITE, fd, uintptr(unsafe.Pointer(unsafe.SliceData(rest))), uintptr(len(rest)))
		switch e {
		case 0:
			if t.n += int(n); t.n == len(t.buf) {
				return true
			}
		case unix.EINTR:
		case unix.EAGAIN:
			s.waits()
			return false
		default:
			t.err = e
			return true
		}
	}
}

// waits is called by a write that has to wait.
func (s *Socket) waits() {
	if s.lead != nil {
		s.lead.stepAside()
	}
}

// Quiet reports that nothing has arrived, neither a FIN nor bytes.
func (s *Socket) Quiet() bool {
	if s.secure != nil {
		return s.secure.quiet()
	}
	var b [1]byte
	_, e := s.peek(b[:])
	return errors.Is(e, unix.EAGAIN)
}

// HungUp reports that a FIN or a reset has arrived, and nothing before it.
func (s *Socket) HungUp() bool {
	if s.secure != nil {
		return s.secure.hungUp()
	}
	var b [1]byte
	n, e := s.peek(b[:])
	return n == 0 && !errors.Is(e, unix.EAGAIN)
}

// peek looks at the next bytes, as many as b holds, and does not wait for them.
func (s *Socket) peek(b []byte) (n int, e syscall.Errno) {
	got, _, e := syscall.RawSyscall6(unix.SYS_RECVFROM, uintptr(s.fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), unix.MSG_PEEK|unix.MSG_DONTWAIT, 0, 0)
	if e != 0 {
		return 0, e
	}
	return int(got), 0
}
