package netio

import (
	"sync"
	"time"
)

// The kernel resets a connection that is closed while its client still sends. A client that reads only
// after it has sent everything then never sees why. So if a request was answered before its body had
// been read, its connection is half-closed and read for a while longer, as nginx does.
const (
	lingerSilence = 5 * time.Second // without a byte
	lingerFor     = 30 * time.Second
	lingerBytes   = 256 << 20
	maxLingering  = 256 // connections at a time; others are closed at once
	lingerBuffer  = 16 << 10
)

// Lingering holds the connections that have had their last answer and that xpyd still reads to their
// end. Each keeps its goroutine and its place under the caps on connections. It has a buffer only while
// there is something to read.
type Lingering struct {
	silence, total time.Duration
	limit          int
	scratch        sync.Pool // of *[]byte

	mu    sync.Mutex
	conns map[*Conn]struct{}
	ended bool
}

// NewLingering makes a Lingering for all connections of a process.
func NewLingering() *Lingering {
	l := &Lingering{silence: lingerSilence, total: lingerFor, limit: maxLingering, conns: map[*Conn]struct{}{}}
	l.scratch.New = func() any {
		b := make([]byte, lingerBuffer)
		return &b
	}
	return l
}

// Bound sets how long a silent connection and any connection may linger, and how many may linger at a
// time. Call it before any connection lingers.
func (l *Lingering) Bound(silence, total time.Duration, limit int) {
	l.silence, l.total, l.limit = silence, total, limit
}

// Len returns how many connections linger.
func (l *Lingering) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.conns)
}

// drain reads what the client still sends and drops it. It stops when that ends, when nothing comes
// for a while, or when the client has had its share. c is closed after that.
func (l *Lingering) drain(c *Conn) {
	if !l.takePlace(c) {
		return
	}
	defer l.freePlace(c)
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

func (l *Lingering) takePlace(c *Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended || len(l.conns) >= l.limit {
		return false
	}
	l.conns[c] = struct{}{}
	return true
}

func (l *Lingering) freePlace(c *Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
}

// End closes all lingering connections. No connection lingers after that.
func (l *Lingering) End() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	for c := range l.conns {
		_ = c.tcp.Close()
	}
}
