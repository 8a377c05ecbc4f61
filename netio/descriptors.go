package netio

import (
	"cmp"
	"math"
	"net"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// clientDescriptors returns the number that a client's descriptor stays below. The last tenth is for
// backends. A new descriptor is the lowest that is free, so its number tells how many are in use.
func clientDescriptors() int {
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil || lim.Cur > math.MaxInt32 {
		return math.MaxInt32
	}
	return int(lim.Cur - lim.Cur/10)
}

// turnAway answers a client that has no place, without reading its request.
func (l *Listener) turnAway(conn *net.TCPConn) {
	_ = conn.SetWriteDeadline(time.Now().Add(time.Second)) // a fresh socket takes the answer at once
	if l.terms.TLS == nil {                                // a handshake would take what is lacking
		_, _ = conn.Write(l.terms.NoRoom)
	}
	_ = conn.Close()
}

const (
	// leastIdle is how long a connection has to be idle before it is closed for another one. The request of a new one may
	// be on its way.
	leastIdle = time.Second
	// oldestKept is how many of the longest idle connections one look at all of them finds.
	oldestKept = 64
	// lookPause is the time between two looks that find none.
	lookPause = 100 * time.Millisecond
	// evicted is in the place of a connection's idle time after it has been closed for another one.
	evicted = -1
)

// idleConn is a connection that has been idle since a time on the listener's clock.
type idleConn struct {
	c     *Conn
	since int64
}

// makeRoom closes the connection that has been idle for longest, and reports whether there was one. Only the goroutine
// that accepts calls it.
func (l *Listener) makeRoom() bool {
	for {
		if len(l.oldest) == 0 && !l.findIdle() {
			return false
		}
		one := l.oldest[0]
		if l.oldest = l.oldest[1:]; one.c.evict(one.since) {
			l.terms.TurnedAway("idle")
			return true
		}
	}
}

// findIdle looks for the longest idle connections, and reports whether there are any.
func (l *Listener) findIdle() bool {
	now := l.now()
	if now < l.lookFrom {
		return false
	}
	var found []idleConn
	l.mu.Lock()
	for c := range l.conns {
		if since := c.idle.Load(); since > 0 && now-since >= int64(leastIdle) {
			found = append(found, idleConn{c, since})
		}
	}
	l.mu.Unlock()
	slices.SortFunc(found, func(a, b idleConn) int { return cmp.Compare(a.since, b.since) })
	if l.oldest = slices.Clone(found[:min(len(found), oldestKept)]); len(found) == 0 {
		l.lookFrom = now + int64(lookPause)
	}
	return len(found) > 0
}

// now is the time since the listener was made, in nanoseconds and above 0.
func (l *Listener) now() int64 { return int64(time.Since(l.born)) + 1 }

// evict ends the wait for the next request, unless that has come. HTTP then closes the connection.
func (c *Conn) evict(since int64) bool {
	if c.idle.Load() != since || readable(c.fd) || !c.idle.CompareAndSwap(since, evicted) {
		return false
	}
	_ = c.SetReadDeadline(time.Now().Add(-time.Second))
	return true
}

// readable reports without waiting whether bytes have come, or the end of the connection.
func readable(fd int) bool {
	fds := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds[:], 0)
	return err == nil && n == 1
}
