package netio

import (
	"errors"
	"sync"
)

const (
	// InboxSize is the size of an inbox in bytes. An inbox holds a response head, or what one wake-up
	// of a stream reads.
	InboxSize = 8 << 10
	// maxHead is how far an inbox grows for a head.
	maxHead = 32 << 10
)

// ErrLongHead is the error of a read after an inbox has as much of a head as it may hold.
var ErrLongHead = errors.New("response head is larger than 32 KiB")

// Inbox holds the bytes that a backend has sent and the exchange has not used. A waiting connection, as
// most are most of the time, has no buffer. Scratch makes an Inbox.
type Inbox struct {
	Unread []byte // belongs to the inbox and is valid until Use, Empty or the next read

	pool *sync.Pool // of *[]byte, InboxSize each
	buf  *[]byte    // the buffer of Unread, of the pool or larger; nil while there is nothing
}

// Scratch has the buffers that connections to backends need only while they read or write. All backends
// share it, so that a large pool keeps no more buffers than a small one. It is safe for concurrent use.
type Scratch struct {
	inboxes  sync.Pool // of *[]byte, InboxSize each
	outboxes sync.Pool // of *Outbox
	records  sync.Pool // of *records
}

// NewScratch returns a Scratch that holds nothing.
func NewScratch() *Scratch {
	s := &Scratch{
		inboxes: sync.Pool{New: func() any {
			b := make([]byte, InboxSize)
			return &b
		}},
		records: sync.Pool{New: newRecords},
	}
	s.outboxes.New = func() any { return &Outbox{records: &s.records} }
	return s
}

// Inbox returns an empty inbox.
func (s *Scratch) Inbox() Inbox { return Inbox{pool: &s.inboxes} }

// Lend returns an outbox for one request. TakeBack takes it back.
func (s *Scratch) Lend() *Outbox { return s.outboxes.Get().(*Outbox) }

// TakeBack takes what Lend returned.
func (s *Scratch) TakeBack(t *Outbox) { s.outboxes.Put(t) }

// More waits for bytes, and adds those of one read to the unread ones, which move to the front.
func (s *Socket) More(in *Inbox) error {
	if in.buf == nil {
		buf, n, err := s.readInto(in.pool)
		if err == nil {
			in.buf, in.Unread = buf, (*buf)[:n]
		}
		return err
	}
	if n := len(in.Unread); n == maxHead {
		return ErrLongHead
	} else if n == len(*in.buf) {
		longer := make([]byte, min(2*n, maxHead))
		copy(longer, in.Unread)
		in.Empty()
		in.buf, in.Unread = &longer, longer[:n]
	}
	n := copy(*in.buf, in.Unread)
	m, err := s.Read((*in.buf)[n:])
	in.Unread = (*in.buf)[:n+m]
	return err
}

// readInto is Read into a buffer of pool, which then belongs to the caller. Over TLS the wait holds that
// buffer, since nobody but crypto/tls knows whether it has something left.
func (s *Socket) readInto(pool *sync.Pool) (buf *[]byte, n int, err error) {
	if s.secure == nil {
		return s.readLent(pool)
	}
	buf = pool.Get().(*[]byte)
	if n, err = s.secure.read(*buf); err != nil {
		pool.Put(buf)
		return nil, 0, err
	}
	return buf, n, nil
}

// Use drops the first n bytes.
func (in *Inbox) Use(n int) {
	if in.Unread = in.Unread[n:]; len(in.Unread) == 0 {
		in.Empty()
	}
}

// Empty gives the buffer back, whatever it contains.
func (in *Inbox) Empty() {
	if in.buf != nil && len(*in.buf) == InboxSize {
		in.pool.Put(in.buf)
	}
	in.buf, in.Unread = nil, nil
}
