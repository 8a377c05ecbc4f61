package proxy

import "sync"

const (
	smallBody    = 64 << 10 // what a body may hold and still use the reserve of a budget
	reserveParts = 8        // one part in so many is kept for small bodies
)

// budget bounds the bytes that all requests together hold in memory, and how much of it
// one client may hold. Safe for concurrent use.
type budget struct {
	limit int64 // all together
	large int64 // as far as what holds more than smallBody may fill it; the rest is for the small
	share int64 // of one client

	mu   sync.Mutex
	used int64
	held map[clientID]int64 // by those who are somebody
}

// refusal is why a budget gave nothing.
type refusal uint8

const (
	granted   refusal = iota
	spent             // all together hold too much
	overShare         // this client holds its share
)

// newBudget makes one of limit bytes, of which one client may hold the share, 0 to 1.
func newBudget(limit int64, share float64) *budget {
	return &budget{limit: limit, large: limit, share: int64(share * float64(limit)), held: map[clientID]int64{}}
}

// bodyBudget is that of request bodies. Whatever is kept for others, one body of
// limits.body finds its place, in the buffers that it comes in.
func bodyBudget(l Limits) *budget {
	limit, one := l.BodyBudget, l.Body+bodyPiece
	if limit >= l.Body {
		limit = max(limit, one)
	}
	b := newBudget(limit, l.ClientShare)
	b.large = max(limit-limit/reserveParts, one)
	b.share = max(b.share, one)
	return b
}

// take charges n more bytes to a holder that then holds whole. Nobody, the zero client,
// has no share.
func (b *budget) take(of clientID, n, whole int64) refusal {
	room := b.limit
	if whole > smallBody {
		room = min(room, b.large)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.used+n > room:
		return spent
	case of == clientID{}:
	case b.held[of]+n > b.share:
		return overShare
	default:
		b.held[of] += n
	}
	b.used += n
	return granted
}

// give ends what take began.
func (b *budget) give(of clientID, n int64) {
	if n == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
	if of == (clientID{}) {
		return
	}
	if b.held[of] -= n; b.held[of] == 0 {
		delete(b.held, of)
	}
}

func (b *budget) inUse() float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return float64(b.used)
}

// charge is what one body or answer holds of a budget. The zero value holds nothing.
type charge struct {
	n  int64
	on *budget
	of clientID
}

// raise takes what is missing to n bytes.
func (c *charge) raise(on *budget, of clientID, n int64) refusal {
	if n <= c.n {
		return granted
	}
	if r := on.take(of, n-c.n, n); r != granted {
		return r
	}
	*c = charge{n: n, on: on, of: of}
	return granted
}

// lower gives back what is held beyond n bytes.
func (c *charge) lower(n int64) {
	if c.on != nil && n < c.n {
		c.on.give(c.of, c.n-n)
		c.n = n
	}
}
