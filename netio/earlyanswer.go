package netio

import (
	"errors"
	"io"
	"net"
	"os"
	"time"

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
		_, err := rest.WriteTo(s.tcp)
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
