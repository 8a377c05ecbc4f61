package proxy

import (
	"net"
	"testing"
)

// connOn is a connection to a backend over an open socket.
func connOn(t *testing.T, tcp *net.TCPConn) *upstreamConn {
	t.Helper()
	c := &upstreamConn{in: inbox{pool: newInboxPool()}}
	if err := c.open(tcp); err != nil {
		t.Fatal(err)
	}
	return c
}
