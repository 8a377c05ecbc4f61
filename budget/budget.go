// Package budget bounds what clients may have the proxy hold: bytes of bodies and answers, all
// together and of each client, and completions. What is charged is what buffers hold, not what
// lies in them. A budget never waits: it gives or refuses, and says why.
package budget

import "sync"

const (
	smallBody    = 64 << 10 // what a body may hold and still use the reserve of a budget
	reserveParts = 8        // one part in so many is kept for small bodies
)

// Budget bounds the bytes that all requests together hold in memory, and how much of it
// one client may hold. Safe for concurrent use.
type Budget struct {
	limit int64 // all together
	large int64 // as far as what holds more than smallBody may fill it; the rest is for the small
	share int64 // of one client

	mu   sync.Mutex
	used int64
	held map[Client]int64 // by those who are somebody
}

// Refusal is why a budget gave nothing.
type Refusal uint8

// Refusals.
const (
	Granted   Refusal = iota // it is none
	Spent                    // all together hold too much
	OverShare                // this client holds its share
)

// New makes one of limit bytes, of which one client may hold the share, 0 to 1.
func New(limit int64, share float64) *Budget {
	return &Budget{limit: limit, large: limit, share: int64(share * float64(limit)), held: map[Client]int64{}}
}

// Take charges n more bytes to a holder that then holds whole. Nobody, the zero client,
// has no share. Give ends it.
func (b *Budget) Take(of Client, n, whole int64) Refusal {
	room := b.limit
	if whole > smallBody {
		room = min(room, b.large)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
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

// InUse is how many bytes are charged.
func (b *Budget) InUse() float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return float64(b.used)
}

// Charge is what one body or answer holds of a budget. The zero value holds nothing. It has one
// owner, who lowers it to 0 in the end.
type Charge struct {
	n  int64
	on *Budget
	of Client
}

// Raise takes what is missing to n bytes.
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
