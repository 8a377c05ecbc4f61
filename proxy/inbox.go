package proxy

import (
	"errors"
	"sync"
)

// inboxSize holds a whole response head and, in a stream, what one wake-up reads. A
// larger head is an error.
const inboxSize = 8 << 10

var errLongHead = errors.New("response head is larger than 8 KiB")

// inbox holds what a backend sent and nobody has used yet. A connection that waits, as
// most do most of the time, has no buffer.
type inbox struct {
	pool   *sync.Pool // of *[]byte, inboxSize each
	buf    *[]byte    // what unread lies in; nil while there is nothing
	unread []byte
}

// scratch is what connections to backends hold only while something comes or goes. All
// backends share it, so that a large pool keeps no more of it than a small one.
type scratch struct {
	inboxes sync.Pool // of *[]byte, inboxSize each
	turns   sync.Pool // of *turn
}

func newScratch() *scratch {
	return &scratch{
		inboxes: sync.Pool{New: func() any {
			b := make([]byte, inboxSize)
			return &b
		}},
		turns: sync.Pool{New: func() any { return new(turn) }},
	}
}

// more waits for bytes and adds what one read brings; those of before become the front.
func (c *upstreamConn) more() error {
	in := &c.in
	if in.buf == nil {
		buf, n, err := c.readLent(in.pool)
		if err == nil {
			in.buf, in.unread = buf, (*buf)[:n]
		}
		return err
	}
	n := copy(*in.buf, in.unread)
	if n == len(*in.buf) {
		return errLongHead
	}
	m, err := c.Read((*in.buf)[n:])
	in.unread = (*in.buf)[:n+m]
	return err
}

// use drops the first n bytes.
func (in *inbox) use(n int) {
	if in.unread = in.unread[n:]; len(in.unread) == 0 {
		in.empty()
	}
}

// empty gives the buffer back, whatever lies in it.
func (in *inbox) empty() {
	if in.buf != nil {
		in.pool.Put(in.buf)
	}
	in.buf, in.unread = nil, nil
}
