package netio

import (
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Outbox is a request that Ask writes, and for whose answer it then waits. Scratch lends it.
type Outbox struct {
	Head   []byte      // the head of the request
	Pieces net.Buffers // head and body

	records *sync.Pool // of *records, for TLS

	vec  [maxSegments]unix.Iovec
	segs int
	size int
	left net.Buffers // what writeRest consumes
	n    int         // written
	at   time.Time   // when all of it was written
	err  syscall.Errno
	kept bool // nothing may have come before the request, see ErrStale
	done bool // the write was tried
	loud bool // something had come before the wait began
}

// ErrStale means that something arrived on a kept connection without a request: its end, or bytes that
// would pass for the next answer. Ask has written nothing to it.
var ErrStale = errors.New("kept connection is not quiet")

// ErrUnsent comes with the error of an Ask whose time was over before it had written a byte.
var ErrUnsent = errors.New("nothing was written")

// Ask writes a request and waits until the caller can read its answer. This saves a read that would
// find nothing. sent is when the request was written. If sent is zero, the write failed with err.
// Otherwise, err is the error of the wait. When Ask returns, t belongs to the caller again and refers
// to none of the request's pieces.
//
// The wait begins before the write, so that it misses no answer. If the request does not go out in one
// piece, Ask does not wait, because the next read does. On a kept connection that is not quiet, it
// returns ErrStale.
func (s *Socket) Ask(t *Outbox, kept bool) (sent time.Time, err error) {
	if s.secure != nil {
		return s.secure.ask(t, kept)
	}
	s.sending = t
	defer func() {
		clear(t.vec[:t.segs]) // it points into the client's body
		clear(t.Pieces)
		t.left, s.sending = nil, nil
	}()
	req := t.Pieces
	small := t.load(req)
	if t.kept = kept; !small && kept && !s.Quiet() {
		return time.Time{}, ErrStale
	}
	if small {
		err = s.waitRead(s.sendStep)
		switch {
		case t.err != 0:
			return time.Time{}, os.NewSyscallError("writev", t.err)
		case t.loud && kept:
			return time.Time{}, ErrStale
		case err != nil && !t.done:
			return time.Time{}, errors.Join(ErrUnsent, err)
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

// rest returns what is still to be written.
func (t *Outbox) rest(req net.Buffers) *net.Buffers {
	t.left = req
	drop(&t.left, t.n)
	return &t.left
}

// load reports whether the request is small enough.
func (t *Outbox) load(req net.Buffers) bool {
	t.segs, t.size, t.n, t.at, t.err, t.done, t.loud = 0, 0, 0, time.Time{}, 0, false, false
	for _, b := range req {
		if len(b) == 0 {
			continue
		}
		if t.size += len(b); t.size > sendLimit || t.segs == maxSegments {
			return false
		}
		t.vec[t.segs].Base = unsafe.SliceData(b)
		t.vec[t.segs].SetLen(len(b))
		t.segs++
	}
	return t.segs > 0
}

func (s *Socket) sendOnce(fd uintptr) (done bool) {
	t := s.sending
	if t.done {
		return true // there is something to read
	}
	t.done = true
	if t.loud = !s.Quiet(); t.loud && t.kept {
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
	return t.loud // what came before the wait began wakes no one
}
