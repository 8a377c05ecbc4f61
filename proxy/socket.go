package proxy

import (
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

// rawLimit is what a raw system call, of which the scheduler does not hear, reads or
// writes at most: the socket never blocks, but copying much would hold up the other
// goroutines.
const rawLimit = 64 << 10

// maxSegments bounds the pieces of one raw vectored write.
const maxSegments = 16

// socket is a TCP connection that makes its reads and its small writes by raw system calls.
// One goroutine may read and one may write at a time, as fasthttp and the relay do.
// Deadlines and Close work as on the connection itself.
type socket struct {
	*net.TCPConn
	fd  int // valid until Close
	raw syscall.RawConn

	peer peer

	reading, writing transfer
	turn             *turn // while there is one
	readBy, writeBy  deadline
	// Bound once, so that no call allocates.
	readStep, writeStep, turnStep func(fd uintptr) bool
}

// transfer is a read or write under way.
type transfer struct {
	buf  []byte
	n    int
	err  syscall.Errno
	pool *sync.Pool // where a read takes buf from when there is something; nil: it has one
	lent *[]byte    // what buf is, then
}

// turn is a request being written, after which its answer is waited for. It is lent.
type turn struct {
	head   []byte      // of the request
	pieces net.Buffers // head and body

	vec  [maxSegments]unix.Iovec
	segs int
	size int
	left net.Buffers // what WriteTo consumes
	n    int         // written
	at   time.Time   // all of it
	err  syscall.Errno
	kept bool // nothing may have come before it: see errStale
	done bool // the write was tried
	loud bool // something had come
}

// errStale is a kept connection on which something has come that nobody asked for: an
// end, or bytes that would be taken for the next answer. Nothing was written to it.
var errStale = errors.New("kept connection is not quiet")

// open binds the socket to an open connection.
func (s *socket) open(tcp *net.TCPConn) error {
	raw, err := tcp.SyscallConn()
	if err != nil {
		return err
	}
	if err := raw.Control(func(fd uintptr) { s.fd = int(fd) }); err != nil {
		return err
	}
	s.TCPConn, s.raw = tcp, raw
	s.readStep, s.writeStep, s.turnStep = s.readOnce, s.writeOnce, s.turnOnce
	return nil
}

// Read reads what is there, or waits for something.
func (s *socket) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	s.reading = transfer{buf: p}
	return s.read()
}

// readLent is Read into a buffer that is taken from pool, of *[]byte, when there is
// something to read. The buffer is the caller's then.
func (s *socket) readLent(pool *sync.Pool) (buf *[]byte, n int, err error) {
	s.reading = transfer{pool: pool}
	if n, err = s.read(); err != nil {
		s.reading.giveBack()
		return nil, 0, err
	}
	buf, s.reading.lent = s.reading.lent, nil
	return buf, n, nil
}

func (s *socket) read() (int, error) {
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
func (s *socket) waitRead(step func(fd uintptr) bool) error {
	for {
		err := s.raw.Read(step)
		if err == nil || !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		if moved, failed := s.readBy.settle(s.TCPConn.SetReadDeadline); !moved || failed != nil {
			return err
		}
	}
}

func (s *socket) waitWrite(step func(fd uintptr) bool) error {
	for {
		err := s.raw.Write(step)
		if err == nil || !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		if moved, failed := s.writeBy.settle(s.TCPConn.SetWriteDeadline); !moved || failed != nil {
			return err
		}
	}
}

// direct has the connection itself write, again where the deadline was moved meanwhile.
func (s *socket) direct(write func() error) error {
	if _, err := s.writeBy.settle(s.TCPConn.SetWriteDeadline); err != nil {
		return err
	}
	for {
		err := write()
		if err == nil || !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		if moved, failed := s.writeBy.settle(s.TCPConn.SetWriteDeadline); !moved || failed != nil {
			return err
		}
	}
}

// SetReadDeadline moves the deadline of reads, those that wait included.
func (s *socket) SetReadDeadline(at time.Time) error {
	return s.readBy.set(at, s.TCPConn.SetReadDeadline)
}

// SetWriteDeadline moves the deadline of writes, those that wait included.
func (s *socket) SetWriteDeadline(at time.Time) error {
	return s.writeBy.set(at, s.TCPConn.SetWriteDeadline)
}

// SetDeadline moves both.
func (s *socket) SetDeadline(at time.Time) error {
	return errors.Join(s.SetReadDeadline(at), s.SetWriteDeadline(at))
}

// borrow takes a buffer out of the pool, if there is one.
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

func (s *socket) readOnce(fd uintptr) (done bool) {
	t := &s.reading
	t.borrow()
	for {
		n, _, e := syscall.RawSyscall(unix.SYS_READ, fd, uintptr(unsafe.Pointer(unsafe.SliceData(t.buf))), uintptr(min(len(t.buf), rawLimit)))
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
func (s *socket) Write(p []byte) (int, error) {
	if len(p) == 0 || len(p) > rawLimit {
		n := 0
		err := s.direct(func() error {
			m, err := s.TCPConn.Write(p[n:])
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

func (s *socket) writeOnce(fd uintptr) (done bool) {
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
			return false
		default:
			t.err = e
			return true
		}
	}
}

// ask writes a request and waits until its answer can be read, without the read that
// finds nothing yet. sent is when the request was written, zero if it was not; then err
// is the write's, else the wait's.
//
// The waiting begins before the request is written, so that no answer is overlooked. One
// that does not go out in one piece is not waited for: the next read does. A kept
// connection that is not quiet is errStale.
func (s *socket) ask(t *turn, kept bool) (sent time.Time, err error) {
	s.turn = t
	defer func() {
		clear(t.vec[:t.segs]) // they hold the client's body
		clear(t.pieces)
		t.left, s.turn = nil, nil
	}()
	req := t.pieces
	small := t.load(req)
	if t.kept = kept; !small && kept && !s.quiet() {
		return time.Time{}, errStale
	}
	if small {
		err = s.waitRead(s.turnStep)
		switch {
		case t.err != 0:
			return time.Time{}, os.NewSyscallError("writev", t.err)
		case t.loud && kept:
			return time.Time{}, errStale
		}
		if err != nil || t.n == t.size {
			return t.at, err
		}
	}
	if err = s.writeRest(t.rest(req)); err != nil {
		return time.Time{}, err
	}
	return time.Now(), nil
}

// rest is what is still to be written.
func (t *turn) rest(req net.Buffers) *net.Buffers {
	n := t.n
	for n > 0 && n >= len(req[0]) {
		n -= len(req[0])
		req = req[1:]
	}
	if n > 0 {
		req[0] = req[0][n:]
	}
	t.left = req
	return &t.left
}

// load reports whether the request is small enough.
func (t *turn) load(req net.Buffers) bool {
	t.segs, t.size, t.n, t.at, t.err, t.done, t.loud = 0, 0, 0, time.Time{}, 0, false, false
	for _, b := range req {
		if len(b) == 0 {
			continue
		}
		if t.size += len(b); t.size > rawLimit || t.segs == maxSegments {
			return false
		}
		t.vec[t.segs].Base = unsafe.SliceData(b)
		t.vec[t.segs].SetLen(len(b))
		t.segs++
	}
	return t.segs > 0
}

func (s *socket) turnOnce(fd uintptr) (done bool) {
	t := s.turn
	if t.done {
		return true // there is something to read
	}
	t.done = true
	if t.loud = !s.quiet(); t.loud && t.kept {
		return true
	}
	n, e := uintptr(0), unix.EINTR
	for e == unix.EINTR {
		n, _, e = syscall.RawSyscall(unix.SYS_WRITEV, fd, uintptr(unsafe.Pointer(&t.vec)), uintptr(t.segs))
	}
	if e == unix.EAGAIN {
		return true
	}
	if e != 0 {
		t.err = e
		return true
	}
	if t.n = int(n); t.n < t.size {
		return true
	}
	t.at = time.Now()
	return t.loud // what came before the waiting began wakes nobody
}

// quiet reports that nothing has arrived: neither a FIN nor bytes.
func (s *socket) quiet() bool {
	_, e := s.peek()
	return errors.Is(e, unix.EAGAIN)
}

// hungUp reports that a FIN or a reset has arrived, and nothing before it.
func (s *socket) hungUp() bool {
	n, e := s.peek()
	return n == 0 && !errors.Is(e, unix.EAGAIN)
}

// peek looks at the next byte without waiting for one.
func (s *socket) peek() (n int, e syscall.Errno) {
	var b [1]byte
	got, _, e := syscall.RawSyscall6(unix.SYS_RECVFROM, uintptr(s.fd), uintptr(unsafe.Pointer(&b)), 1, unix.MSG_PEEK|unix.MSG_DONTWAIT, 0, 0)
	if e != 0 {
		return 0, e
	}
	return int(got), 0
}
