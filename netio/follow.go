package netio

import (
	"io"
	"os"
	"sync/atomic"
)

// following is a connection whose bytes are taken as they come, in one wait from the
// first to the last. Go's poller tells of what comes while that wait goes on, whoever
// runs meanwhile, so a read that does not fill its buffer has emptied the socket and the
// next one may wait for news: a read that would find nothing is spared, one of three
// system calls an event. An end that came with the last bytes is no news; the watcher
// finds it.
type following struct {
	in   *Inbox
	on   atomic.Bool
	take func() (more bool)
}

// Follow calls take each time bytes have come into the inbox, which is empty before, and
// returns nil when it wants no more. take uses up the inbox, and must not close the
// connection. Whoever watches no peer reads until there is nothing, as ever.
func (s *Socket) Follow(in *Inbox, take func() (more bool)) error {
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

// followOnce reads and has taken until the socket is empty.
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
		// The order matters: the watcher notes that the peer has left, then asks who follows.
		if !full && s.peer.w != nil && !s.peer.left.Load() {
			return false
		}
	}
}

// lookAgain is told that the peer has left, by the watcher.
func (s *Socket) lookAgain() {
	if s.following.on.Load() {
		s.readBy.again(s.TCPConn.SetReadDeadline)
	}
}
