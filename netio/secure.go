package netio

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// secure is TLS on a socket. crypto/tls reads and writes records with the socket's raw calls, under the
// socket's own deadlines.
//
// crypto/tls must not see a write that timed out, because it writes nothing after one. So a write that
// has to look for an answer meanwhile (see ask) has two steps: crypto/tls seals records into memory, and
// the socket writes them.
type secure struct {
	*tls.Conn
	s      *Socket
	client bool // this end made the connection

	heard    bool        // the peer has sent a byte
	reads    sync.Mutex  // held by whoever reads from a client; no second one reads from a backend
	glancing bool        // a read must not wait; set by the goroutine that reads
	sealed   *[]byte     // takes records in place of the socket; nil unless a request is being sent
	early    []byte      // what came before somebody wanted to read it
	ended    atomic.Bool // the peer has ended its sending side, as TLS sees it
	cut      atomic.Bool // what was sent is incomplete, so nothing may look like a clean end
	closing  atomic.Bool // only a farewell is still written, and it must not wait
}

// errTruncated means that a connection ended without close_notify, the farewell of TLS. Between two
// records crypto/tls takes that for a clean end, but an answer may end with its connection.
var errTruncated = fmt.Errorf("connection ended without close_notify of TLS: %w", io.ErrUnexpectedEOF)

// SecureClient starts TLS on the connection as the side that has dialled it. The handshake must end
// before the deadline.
func (s *Socket) SecureClient(cfg *tls.Config, deadline time.Time) error {
	s.secure = &secure{s: s, client: true}
	s.secure.Conn = tls.Client(&wire{s.secure}, cfg)
	_ = s.SetDeadline(deadline)
	err := s.secure.Handshake()
	_ = s.SetDeadline(time.Time{})
	return err
}

// secureServer starts TLS on an accepted connection. The first read does the handshake.
func (s *Socket) secureServer(cfg *tls.Config) {
	s.secure = &secure{s: s}
	s.secure.Conn = tls.Server(&wire{s.secure}, cfg)
}

// wire is the socket as crypto/tls sees it. Deadlines and Close are the socket's affair.
type wire struct{ x *secure }

func (w *wire) Read(p []byte) (int, error) {
	x := w.x
	n, err := 0, error(nil)
	if x.glancing {
		n, err = x.s.readNow(p)
	} else {
		n, err = x.s.readRaw(p)
	}
	x.heard = x.heard || n > 0
	if errors.Is(err, io.EOF) && x.client {
		err = errTruncated
	}
	return n, err
}

func (w *wire) Write(p []byte) (int, error) {
	x := w.x
	switch {
	case x.sealed != nil:
		*x.sealed = append(*x.sealed, p...)
		return len(p), nil
	case x.closing.Load():
		return x.s.writeNow(p)
	}
	n, err := x.s.writeRaw(p)
	if err != nil {
		x.cut.Store(true) // a record may have gone out in part
	}
	return n, err
}

func (w *wire) Close() error                     { return nil }
func (w *wire) LocalAddr() net.Addr              { return w.x.s.LocalAddr() }
func (w *wire) RemoteAddr() net.Addr             { return w.x.s.RemoteAddr() }
func (w *wire) SetDeadline(time.Time) error      { return nil }
func (w *wire) SetReadDeadline(time.Time) error  { return nil }
func (w *wire) SetWriteDeadline(time.Time) error { return nil }

// readNow reads what is there. If nothing is, the error is a timeout, after which crypto/tls reads on.
func (s *Socket) readNow(p []byte) (int, error) {
	n, _, e := syscall.RawSyscall6(unix.SYS_RECVFROM, uintptr(s.fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(min(len(p), RawLimit)), unix.MSG_DONTWAIT, 0, 0)
	switch {
	case e == unix.EAGAIN || e == unix.EINTR:
		return 0, os.ErrDeadlineExceeded
	case e != 0:
		return 0, os.NewSyscallError("recvfrom", e)
	case n == 0:
		return 0, io.EOF
	}
	return int(n), nil
}

// writeNow writes p if there is room for it, whatever the deadline of writes.
func (s *Socket) writeNow(p []byte) (n int, err error) {
	ctlErr := s.raw.Control(func(fd uintptr) {
		n, err = unix.SendmsgN(int(fd), p, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	})
	return max(n, 0), errors.Join(ctlErr, err)
}

// read returns plaintext, first what came early.
func (x *secure) read(p []byte) (int, error) {
	x.reads.Lock()
	defer x.reads.Unlock()
	if len(x.early) > 0 {
		n := copy(p, x.early)
		x.early = x.early[n:]
		return n, nil
	}
	n, err := x.Conn.Read(p)
	if errors.Is(err, io.EOF) {
		x.ended.Store(true)
	}
	if n > 0 {
		return n, nil // the next read returns the end again
	}
	return 0, err
}

// glance is a read that does not wait. came is false if there is nothing, neither bytes nor an end.
// Messages of TLS itself, such as session tickets, do not count.
func (x *secure) glance(p []byte) (n int, came bool, err error) {
	x.glancing = true
	n, err = x.Conn.Read(p)
	x.glancing = false
	return n, !errors.Is(err, os.ErrDeadlineExceeded), err
}

// quiet reports that nothing has arrived. If something has, quiet keeps it for the next read.
func (x *secure) quiet() bool {
	if len(x.early) > 0 {
		return false
	}
	var b [1]byte
	n, came, _ := x.glance(b[:])
	x.early = append(x.early, b[:n]...)
	return !came
}

// hungUp reports that an end has arrived, and nothing before it.
func (x *secure) hungUp() bool {
	return !x.quiet() && len(x.early) == 0
}

// farewell calls say to send close_notify, unless what was sent is incomplete. It does not wait.
func (x *secure) farewell(say func(*tls.Conn) error) {
	if x != nil && !x.cut.Load() {
		x.closing.Store(true)
		_ = say(x.Conn)
	}
}

// Cut marks the answer as incomplete. xpyd then sends no close_notify, so that no client takes the end
// of the connection for the end of the answer. On a plain connection, Cut does nothing.
func (s *Socket) Cut() {
	if s.secure != nil {
		s.secure.cut.Store(true)
	}
}

// maxRecord is how much plaintext a record of TLS holds, in bytes.
const maxRecord = 16 << 10

// records has the buffers of a request that is being sent.
type records struct {
	plain, sealed []byte
	later         []byte // what TLS itself sends meanwhile
}

func newRecords() any {
	return &records{plain: make([]byte, 0, maxRecord), sealed: make([]byte, 0, maxRecord+1<<10)}
}

// ask is Ask over TLS. It does not wait for the answer. Small requests go out in one write.
func (x *secure) ask(t *Outbox, kept bool) (time.Time, error) {
	defer clear(t.Pieces) // they are the client's body
	if kept && !x.quiet() {
		return time.Time{}, ErrStale
	}
	r := t.records.Get().(*records)
	defer t.records.Put(r)
	r.plain = r.plain[:0]
	for _, p := range t.Pieces {
		for len(p) > 0 {
			n := min(len(p), maxRecord-len(r.plain))
			r.plain, p = append(r.plain, p[:n]...), p[n:]
			if len(r.plain) == maxRecord {
				if err := x.send(r); err != nil {
					return time.Time{}, err
				}
			}
		}
	}
	if err := x.send(r); err != nil {
		return time.Time{}, err
	}
	return time.Now(), nil
}

// send seals what r holds and writes it.
func (x *secure) send(r *records) error {
	if len(r.plain) == 0 {
		return nil
	}
	defer func() { x.sealed = nil }()
	r.sealed, r.later = r.sealed[:0], r.later[:0]
	x.sealed = &r.sealed
	_, err := x.Conn.Write(r.plain)
	x.sealed = &r.later // a look for an answer may make TLS reply, and the reply must not land inside a record
	r.plain = r.plain[:0]
	if err == nil {
		err = x.s.writeRest(&net.Buffers{r.sealed})
	}
	if err == nil && len(r.later) > 0 {
		err = x.s.writeRest(&net.Buffers{r.later})
	}
	if err != nil {
		x.cut.Store(true)
	}
	return err
}

// answered is glimpse over TLS. What it reads is kept for the next read.
func (x *secure) answered() error {
	const status = len("HTTP/1.1 ")
	var b [1 << 10]byte
	n, came, err := x.glance(b[:])
	x.early = append(x.early, b[:n]...)
	switch {
	case len(x.early) > status && x.early[status] != '1':
		return errAnswered
	case !came || err == nil:
		return nil
	case errors.Is(err, io.EOF):
		return io.ErrUnexpectedEOF
	}
	return err
}

// departed reports that a client has ended its side with a farewell of TLS. In TLS 1.3 only who decrypts a record can
// tell it from two bytes of data, such as a CR LF behind a body. So departed reads the record, and keeps data for the
// next read. If somebody else reads, departed leaves it to them.
func (x *secure) departed() bool {
	if x.mayLeave() && x.reads.TryLock() {
		// Control keeps the descriptor from becoming that of another connection.
		_ = x.s.raw.Control(func(uintptr) {
			var b [alert]byte
			n, came, err := x.glance(b[:])
			x.early = append(x.early, b[:n]...)
			if came && err != nil {
				x.ended.Store(true)
			}
		})
		x.reads.Unlock()
	}
	return x.ended.Load()
}

// alert is the length of an alert of TLS in bytes.
const alert = 2

// mayLeave reports that exactly one record waits to be read, and that it can hold an alert, with which a TLS client
// leaves. In TLS 1.3 only the record's length tells.
func (x *secure) mayLeave() bool {
	const header, sealed = 5, alert + 1 + 16 // the alert, its type and the tag
	var b [64]byte
	n, _, err := unix.Recvfrom(x.s.fd, b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
	if err != nil || n < header || n == len(b) {
		return false
	}
	size := int(b[3])<<8 | int(b[4])
	const alerts, data = 21, 23
	return n == header+size && (b[0] == alerts || b[0] == data && size == sealed)
}
