package netio

import (
	"io"
	"os"
	"sync/atomic"
)

// following is a connection whose bytes are taken as they come, in one wait from the first to the
// last. While that wait goes on, Go's poller reports everything that comes, whichever goroutine runs
// meanwhile. So a read that does not fill its buffer has emptied the socket, and the next one may wait
// for an event. This spares a read that would find nothing, which is one of three system calls for
// each event. An end that came with the last bytes raises no further event. The watcher finds it.
type following struct {
	in   *Inbox
	on   atomic.Bool
	take func() (more bool)
}

// Follow calls take each time bytes have come into the inbox, which is empty before. It returns nil
// when take wants no more. take uses up the inbox and must not close the connection. On a socket
// without a watcher, Follow reads until it finds nothing.
func (s *Socket) Follow(in *Inbox, take func() (more bool)) error {
	if s.secure != nil {
		return s.followSecure(in, take)
	}
	f := &s.following
	f.in, f.take = in, take
	f.on.Store(true)
	defer func() {
		f.on.Store(false)
		f.in, f.take = nil, nil
	}()
	s.reading = transfer{pool: in.pool}
	err := s.waitRead(s.followOnce)
	t := &s.reading
	switch {
	case err != nil:
		return err
	case t.err != 0:
		return os.NewSyscallError("read", t.err)
	case t.n == 0:
		return io.EOF
	}
	return nil
}

// followSecure is Follow over TLS. Each read tries first, so no end is missed.
func (s *Socket) followSecure(in *Inbox, take func() (more bool)) error {
	for {
		if err := s.More(in); err != nil || !take() {
			return err
		}
	}
}

// followOnce reads and calls take until the socket is empty.
func (s *Socket) followOnce(fd uintptr) (done bool) {
	t := &s.reading
	for {
		if !s.readOnce(fd) {
			return false
		}
		if t.err != 0 || t.n == 0 {
			t.giveBack()
			return true
		}
		full := t.n == min(len(t.buf), RawLimit)
		in := s.following.in
		in.buf, in.Unread = t.lent, t.buf[:t.n]
		t.lent, t.buf = nil, nil
		if !s.following.take() {
			return true
		}
		// The order matters. The watcher first notes that the peer has left and then looks for a follower.
		if !full && s.peer.w != nil && !s.peer.left.Load() {
			return false
		}
	}
}

// lookAgain is called by the watcher when the peer has left.
func (s *Socket) lookAgain() {
	if s.following.on.Load() {
		s.readBy.again(s.tcp.SetReadDeadline)
	}
}
