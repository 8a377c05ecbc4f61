package budget

import (
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
)

// Client identifies who holds something: a key, or an address (of IPv6, a /64) where no keys are set. The zero value is
// no client.
type Client struct {
	IP  netip.Addr
	Key int // a number above 0 for each key
}

// Counts counts the completions that each client has under way. It counts them without a limit too, because a reload
// may set one. It is safe for concurrent use.
//
// It also counts the orphans of a client: what engines still do for requests that it has left. They finish a prefill or
// give back its blocks, and a client that sends and leaves could have any number. So while a client has more than a few for
// those that it waits for, its next ones wait.
type Counts struct {
	limit atomic.Int64 // 0 means no limit

	mu sync.Mutex
	n  map[Client]count
}

// count is what one client has under way.
type count struct {
	running int // all of its completions
	orphans int
	waiting []chan struct{} // of its completions, each closed when it may go on
}

// fewOrphans is how many a client may have in any case.
const fewOrphans = 2

// room is how many more orphans the client may have: one for four completions that it waits for.
func (c *count) room() int {
	return max(fewOrphans, (c.running-c.orphans-len(c.waiting))/4) - c.orphans
}

// NewCounts allows each client limit completions at a time. 0 allows any number.
func NewCounts(limit int) *Counts {
	c := &Counts{n: map[Client]count{}}
	c.SetLimit(limit)
	return c
}

// SetLimit changes the limit. What is under way counts.
func (c *Counts) SetLimit(limit int) { c.limit.Store(int64(limit)) }

// Begin counts one more completion. It returns false if the client is at its limit. The zero client has none.
func (c *Counts) Begin(id Client) bool {
	if id == (Client{}) {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.n[id]
	if limit := c.limit.Load(); limit > 0 && int64(n.running) >= limit {
		return false
	}
	n.running++
	c.n[id] = n
	return true
}

// End ends what Begin began.
func (c *Counts) End(id Client) { c.change(id, func(n *count) { n.running-- }) }

// Orphan counts one more orphan.
func (c *Counts) Orphan(id Client) { c.change(id, func(n *count) { n.orphans++ }) }

// Settled ends what Orphan began.
func (c *Counts) Settled(id Client) { c.change(id, func(n *count) { n.orphans-- }) }

// Served notes that a completion of the client has its answer, so it becomes no orphan. Another one may go on for it.
func (c *Counts) Served(id Client) { c.change(id, func(*count) {}) }

// Wait returns nil if the client's next completion may go on at once. Otherwise it returns a channel that is closed when it
// may. If it does not wait for that, it calls Quit.
func (c *Counts) Wait(id Client) (turn chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.n[id]
	if n.room() > 0 {
		return nil
	}
	turn = make(chan struct{})
	n.waiting = append(n.waiting, turn)
	c.n[id] = n
	return turn
}

// Quit forgets one that waits. If it may go on by now, that is no loss for others, whose turn comes when it ends.
func (c *Counts) Quit(id Client, turn chan struct{}) {
	c.change(id, func(n *count) {
		n.waiting = slices.DeleteFunc(n.waiting, func(w chan struct{}) bool { return w == turn })
	})
}

// change changes the counts of a client, and lets go on who may. For the zero client it does nothing.
func (c *Counts) change(id Client, how func(*count)) {
	if id == (Client{}) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.n[id]
	how(&n)
	for k := min(n.room(), len(n.waiting)); k > 0; k-- {
		close(n.waiting[0])
		n.waiting = n.waiting[1:]
	}
	if n.running <= 0 && n.orphans <= 0 {
		delete(c.n, id)
		return
	}
	c.n[id] = n
}
