package netio

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// errAnswered is about a request that was not written to its end because its answer has begun.
var errAnswered = errors.New("answered before the request was written")

// glanceEvery is how often a write that waits looks for an answer.
const glanceEvery = 50 * time.Millisecond

// writeRest writes the part of a request that did not go out in one piece. A backend that refuses a
// large body may answer and read no more. Without a look for its answer, the write would wait until the
// deadline.
func (s *Socket) writeRest(rest *net.Buffers) error {
	if _, err := s.writeBy.catchUp(s.tcp.SetWriteDeadline); err != nil {
		return err
	}
	for {
		s.writeBy.glance(time.Now().Add(glanceEvery), s.tcp.SetWriteDeadline)
		err := s.pour(rest)
		if err == nil || !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		if err := s.glimpse(); err != nil {
			return err
		}
		if moved, failed := s.writeBy.catchUp(s.tcp.SetWriteDeadline); !moved || failed != nil {
			return err
		}
	}
}

// pour writes rest by raw calls of at most sendLimit bytes, and drops from rest what was written. After an
// announced call (net.Buffers), which is a long one here, Go's monitor thread would keep polling.
func (s *Socket) pour(rest *net.Buffers) error {
	var vec [maxSegments]unix.Iovec
	var failed syscall.Errno
	step := func(fd uintptr) bool {
		segs := load(&vec, *rest)
		n, _, e := syscall.RawSyscall(unix.SYS_WRITEV, fd, uintptr(unsafe.Pointer(&vec)), uintptr(segs))
		switch e {
		case 0:
			drop(rest, int(n))
		case unix.EAGAIN:
			return false
		case unix.EINTR:
		default:
			failed = e
		}
		return true
	}
	for len(*rest) > 0 {
		if err := s.raw.Write(step); err != nil {
			return err
		}
		if failed != 0 {
			return os.NewSyscallError("writev", failed)
		}
	}
	return nil
}

// load points vec to the first sendLimit bytes of pieces, and returns how many entries it uses. What is a little more
// goes with them: a call for a few bytes costs a segment and wakes the backend once more.
func load(vec *[maxSegments]unix.Iovec, pieces net.Buffers) (segs int) {
	room, all := sendLimit, 0
	for _, p := range pieces {
		all += len(p)
	}
	if all <= sendLimit+sendLimit/4 {
		room = all
	}
	for _, p := range pieces[:min(len(pieces), maxSegments)] {
		if p = p[:min(len(p), room)]; room == 0 {
			break
		}
		vec[segs].Base = unsafe.SliceData(p)
		vec[segs].SetLen(len(p))
		room -= len(p)
		segs++
	}
	return segs
}

// drop removes the first n bytes of pieces, and empty pieces after them.
func drop(pieces *net.Buffers, n int) {
	for len(*pieces) > 0 && n >= len((*pieces)[0]) {
		n -= len((*pieces)[0])
		*pieces = (*pieces)[1:]
	}
	if n > 0 {
		(*pieces)[0] = (*pieces)[0][n:]
	}
}

// glimpse returns errAnswered if a final answer has begun, and the error if the far side has closed.
// After an interim answer the backend may still read.
func (s *Socket) glimpse() error {
	if s.secure != nil {
		return s.secure.answered()
	}
	const status = len("HTTP/1.1 ")
	var b [status + 1]byte
	n, e := s.peek(b[:])
	switch {
	case errors.Is(e, unix.EAGAIN), errors.Is(e, unix.EINTR):
		return nil
	case e != 0:
		return os.NewSyscallError("recvfrom", e)
	case n == 0:
		return io.ErrUnexpectedEOF
	case n == len(b) && b[status] != '1':
		return errAnswered
	}
	return nil
}
