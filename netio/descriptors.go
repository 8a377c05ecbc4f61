package netio

import (
	"math"
	"net"
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
