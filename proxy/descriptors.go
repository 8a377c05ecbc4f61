package proxy

import (
	"context"
	"errors"
	"net"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"xpyd/netio"
)

// descriptorPause is the rest before a dial that failed for want of a descriptor is tried
// again.
const descriptorPause = 5 * time.Millisecond

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
		return netio.OutOfResources(err)
	}
	for _, e := range several.Unwrap() {
		if !isOurs(e) {
			return false
		}
	}
	return true
}

// noDescriptorAnswer is what a client gets for whom there is no descriptor, without a word of
// its request.
func noDescriptorAnswer() []byte {
	e := outOfDescriptors()
	body := e.appendBody(nil)
	return []byte("HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: " +
		strconv.Itoa(e.RetryAfter) + "\r\nConnection: close\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + string(body))
}

// connect dials the backend. Where there is no descriptor it closes the connections that
// wait in the pools, and tries again within the dialer's timeout.
func (u *upstream) connect(ctx context.Context) (net.Conn, error) {
	for deadline := time.Now().Add(u.dialer.Timeout); ; {
		conn, err := u.connectOnce(ctx)
		if !netio.OutOfResources(err) || !time.Now().Before(deadline) || ctx.Err() != nil {
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
