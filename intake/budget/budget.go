// Package budget bounds what the proxy holds for clients: bytes of bodies and answers, for all
// clients together and for each client, and completions. It charges for the capacity of buffers,
// not for their content. A budget never waits. It gives, or it refuses and says why.
package budget

import "sync"

const (
	smallBody    = 64 << 10 // what a body may hold at most to use the reserve of a budget
	reserveParts = 8        // one part in reserveParts is kept for small bodies
)

// Budget bounds the bytes that all requests together hold in memory, and how many of them one client
// may hold. It is safe for concurrent use.
type Budget struct {
	mu    sync.Mutex
	limit int64 // all together
	large int64 // how far bodies above smallBody may fill it; the rest is for small ones
	share int64 // of one client
	used  int64
	held  map[Client]int64 // by client, without the zero client
}

// Refusal says why a budget gave nothing.
type Refusal uint8

// Refusals.
const (
	Granted   Refusal = iota // no refusal
	Spent                    // all clients together hold too much
	OverShare                // this client holds its share
)

// New makes a budget of limit bytes, of which one client may hold the share, 0 to 1.
func New(limit int64, share float64) *Budget {
	b := &Budget{held: map[Client]int64{}}
	b.Resize(limit, share)
	return b
}

// Resize changes the limit and the share. What is held beyond them stays until it is given back.
func (b *Budget) Resize(limit int64, share float64) {
	b.bound(limit, limit, int64(share*float64(limit)))
}

func (b *Budget) bound(limit, large, share int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.limit, b.large, b.share = limit, large, share
}

// Take charges n more bytes for a body or answer that then holds whole. The zero client has no share
// that bounds it. Give ends the charge.
func (b *Budget) Take(of Client, n, whole int64) Refusal {
	b.mu.Lock()
	defer b.mu.Unlock()
	room := b.limit
	if whole > smallBody {
		room = min(room, b.large)
	}
	switch {
	case b.used+n > room:
		return Spent
	case of == Client{}:
	case b.held[of]+n > b.share:
		return OverShare
	default:
		b.held[of] += n
	}
	b.used += n
	return Granted
}

// Give ends what Take began.
func (b *Budget) Give(of Client, n int64) {
	if n == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
	if of == (Client{}) {
		return
	}
	if b.held[of] -= n; b.held[of] == 0 {
		delete(b.held, of)
	}
}

// InUse returns how many bytes are charged.
func (b *Budget) InUse() float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return float64(b.used)
}

// Charge is what one body or answer holds of a budget. The zero value holds nothing. It has one owner,
// which lowers it to 0 in the end.
type Charge struct {
	n  int64
	on *Budget
	of Client
}

// Raise takes from the budget what is missing up to n bytes.
func (c *Charge) Raise(on *Budget, of Client, n int64) Refusal {
	if n <= c.n {
		return Granted
	}
	if r := on.Take(of, n-c.n, n); r != Granted {
		return r
	}
	*c = Charge{n: n, on: on, of: of}
	return Granted
}

// Lower gives back what is held beyond n bytes.
func (c *Charge) Lower(n int64) {
	if c.on != nil && n < c.n {
		c.on.Give(c.of, c.n-n)
		c.n = n
	}
}
