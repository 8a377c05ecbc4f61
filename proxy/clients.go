package proxy

import (
	"net/netip"
	"sync"

	"github.com/valyala/fasthttp"

	"xpyd/netio"
)

// clientID is one client for limits.client_in_flight and limits.client_share: a key of
// ours, or an address where no keys are set. The zero value is nobody.
type clientID struct {
	ip  netip.Addr
	key int // slot of the keyring, plus 1
}

// clientCounts are the completions that each client has under way.
type clientCounts struct {
	limit int // 0: none, and nothing is counted

	mu sync.Mutex
	n  map[clientID]int
}

// identify costs nothing where neither limits.client_in_flight nor limits.client_share limits
// clients; by default the latter does.
func (s *Server) identify(conn *netio.Conn, h *fasthttp.RequestHeader) clientID {
	if s.clients.limit == 0 && s.cfg.Limits.ClientShare >= 1 {
		return clientID{}
	}
	if s.keys.required() {
		slot, _ := s.keys.slot(h.Peek("Authorization"))
		return clientID{key: slot + 1}
	}
	return clientID{ip: conn.IP()}
}

// enter counts one more completion; false if the client has its share already.
func (c *clientCounts) enter(id clientID) bool {
	if c.limit == 0 {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n[id] >= c.limit {
		return false
	}
	if c.n == nil {
		c.n = map[clientID]int{}
	}
	c.n[id]++
	return true
}

// leave ends what enter began.
func (c *clientCounts) leave(id clientID) {
	if c.limit == 0 || id == (clientID{}) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n[id]--; c.n[id] == 0 {
		delete(c.n, id)
	}
}
