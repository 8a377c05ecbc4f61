package proxy

import (
	"context"
	"errors"
	"io"
	"math"
	"net"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"
	"golang.org/x/sys/unix"
)

// descriptorPause is the rest before a dial that failed for want of a descriptor is tried
// again.
const descriptorPause = 5 * time.Millisecond

// clientDescriptors is the number that a client's descriptor stays below: the last tenth is
// for backends. A new descriptor is the lowest that is free, so its number tells how many
// are in use.
func clientDescriptors() int {
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil || lim.Cur > math.MaxInt32 {
		return math.MaxInt32
	}
	return int(lim.Cur - lim.Cur/10)
}

// outOfDescriptors is the refusal where the process, not a backend, is at its limit.
func outOfDescriptors() *apiError {
	return newError(fasthttp.StatusServiceUnavailable, codeOverloaded, "", "xpyd has no file descriptor left; try again").retryAfter(1)
}

// isOurs reports that a dial failed for want of something of this process or host: it says
// nothing about the backend. Of several addresses each must have failed so. Not
// EADDRNOTAVAIL, which is also how a host without IPv6 fails to reach an address of it.
func isOurs(err error) bool {
	var several interface{ Unwrap() []error }
	if !errors.As(err, &several) {
		return outOfResources(err)
	}
	for _, e := range several.Unwrap() {
		if !isOurs(e) {
			return false
		}
	}
	return true
}

// turnAway answers a client that has no place, without a word of its request.
func turnAway(conn *net.TCPConn) {
	e := outOfDescriptors()
	body := e.appendBody(nil)
	_ = conn.SetWriteDeadline(time.Now().Add(time.Second)) // a fresh socket takes it at once
	_, _ = io.WriteString(conn, "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: "+
		strconv.Itoa(e.RetryAfter)+"\r\nConnection: close\r\nContent-Length: "+strconv.Itoa(len(body))+"\r\n\r\n"+string(body))
	_ = conn.Close()
}

// connect dials the backend. Where there is no descriptor it closes the connections that
// wait in the pools, and tries again within the dialer's timeout.
func (u *upstream) connect(ctx context.Context) (net.Conn, error) {
	for deadline := time.Now().Add(u.dialer.Timeout); ; {
		conn, err := u.connectOnce(ctx)
		if !outOfResources(err) || !time.Now().Before(deadline) || ctx.Err() != nil {
			return conn, err
		}
		if u.spare != nil {
			u.spare()
		}
		time.Sleep(descriptorPause)
	}
}

// spareDescriptors closes the connections that no request uses.
func (s *Server) spareDescriptors() {
	for _, u := range s.upstreams.all() {
		u.expire(time.Now().Add(u.maxIdle + time.Hour))
	}
}
