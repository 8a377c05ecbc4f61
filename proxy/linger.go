package proxy

import (
	"sync"
	"time"

	"github.com/valyala/fasthttp"
)

// A connection that is closed while its client still sends is reset by the kernel, and a client
// that reads only when it has sent all never sees why. So what was answered before its body had
// been read is half-closed and read on for a while, as nginx does.
const (
	lingerSilence = 5 * time.Second // without a byte
	lingerFor     = 30 * time.Second
	lingerBytes   = 256 << 20
	maxLingering  = 256 // connections at a time; others are closed at once
	lingerBuffer  = 16 << 10
)

// lingering are the connections that have had their last answer and are read to their end. Each
// keeps its goroutine and its place under the caps on connections, and has a buffer only while
// there is something to read.
type lingering struct {
	silence, total time.Duration
	limit          int
	scratch        sync.Pool // of *[]byte

	mu    sync.Mutex
	conns map[*clientConn]struct{}
	ended bool
}

func newLingering() *lingering {
	l := &lingering{silence: lingerSilence, total: lingerFor, limit: maxLingering, conns: map[*clientConn]struct{}{}}
	l.scratch.New = func() any {
		b := make([]byte, lingerBuffer)
		return &b
	}
	return l
}

// leaveUnread has the request's connection, which the caller closes after the answer, linger if
// more of the request may be on its way.
func leaveUnread(ctx *fasthttp.RequestCtx) {
	const chunked = -1 // what ContentLength answers for a chunked body
	n := ctx.Request.Header.ContentLength()
	if conn, ok := ctx.Conn().(*clientConn); ok && (n > 0 || n == chunked) {
		conn.unread.Store(true)
	}
}

// drain reads what the client still sends and drops it, until that ends, there is nothing for a
// while, or it has had its share. c is closed after it.
func (l *lingering) drain(c *clientConn) {
	if !l.enter(c) {
		return
	}
	defer l.leave(c)
	if c.CloseWrite() != nil {
		return
	}
	end := time.Now().Add(l.total)
	for n := 0; n < lingerBytes; {
		at := time.Now().Add(l.silence)
		if end.Before(at) {
			at = end
		}
		_ = c.SetReadDeadline(at)
		buf, got, err := c.readLent(&l.scratch)
		if err != nil {
			return
		}
		l.scratch.Put(buf)
		n += got
	}
}

func (l *lingering) enter(c *clientConn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended || len(l.conns) >= l.limit {
		return false
	}
	l.conns[c] = struct{}{}
	return true
}

func (l *lingering) leave(c *clientConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
}

// end closes them all; no other comes after.
func (l *lingering) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	for c := range l.conns {
		_ = c.TCPConn.Close()
	}
}
