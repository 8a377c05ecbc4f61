package budget

import (
	"net/netip"
	"sync"
)

// Client identifies who holds something: a key, or an address where no keys are set. The zero value is
// no client.
type Client struct {
	IP  netip.Addr
	Key int // a number above 0 for each key
}

// Counts counts the completions that each client has under way. It is safe for concurrent use.
type Counts struct {
	limit int // 0 means no limit, and nothing is counted

	mu sync.Mutex
	n  map[Client]int
}

// NewCounts allows each client limit completions at a time. 0 allows any number.
func NewCounts(limit int) *Counts { return &Counts{limit: limit, n: map[Client]int{}} }

// Limited reports that there is a limit.
func (c *Counts) Limited() bool { return c.limit > 0 }

// Begin counts one more completion. It returns false if the client is at its limit.
func (c *Counts) Begin(id Client) bool {
	if c.limit == 0 {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n[id] >= c.limit {
		return false
	}
	c.n[id]++
	return true
}

// End ends what Begin began. For the zero client it does nothing.
func (c *Counts) End(id Client) {
	if c.limit == 0 || id == (Client{}) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n[id]--; c.n[id] == 0 {
		delete(c.n, id)
	}
}
