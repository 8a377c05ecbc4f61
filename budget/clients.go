package budget

import (
	"net/netip"
	"sync"
	"sync/atomic"
)

// Client identifies who holds something: a key, or an address where no keys are set. The zero value is
// no client.
type Client struct {
	IP  netip.Addr
	Key int // a number above 0 for each key
}

// Counts counts the completions that each client has under way. It counts them without a limit too, because a reload
// may set one. It is safe for concurrent use.
type Counts struct {
	limit atomic.Int64 // 0 means no limit

	mu sync.Mutex
	n  map[Client]int
}

// NewCounts allows each client limit completions at a time. 0 allows any number.
func NewCounts(limit int) *Counts {
	c := &Counts{n: map[Client]int{}}
	c.SetLimit(limit)
	return c
}

// SetLimit changes the limit. What is under way counts.
func (c *Counts) SetLimit(limit int) { c.limit.Store(int64(limit)) }

// Limited reports that there is a limit.
func (c *Counts) Limited() bool { return c.limit.Load() > 0 }

// Begin counts one more completion. It returns false if the client is at its limit. The zero client has none.
func (c *Counts) Begin(id Client) bool {
	if id == (Client{}) {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if limit := c.limit.Load(); limit > 0 && int64(c.n[id]) >= limit {
		return false
	}
	c.n[id]++
	return true
}

// End ends what Begin began. For the zero client it does nothing.
func (c *Counts) End(id Client) {
	if id == (Client{}) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n[id]--; c.n[id] <= 0 {
		delete(c.n, id)
	}
}
