package router

import "sync/atomic"

// policy chooses one of the backends that are fit for the query; nil if none is.
type policy interface {
	pick(backends []*Backend, q query) *Backend
}

func newPolicy(name string) policy {
	if name == "round_robin" {
		return &roundRobin{}
	}
	return &leastRequest{}
}

// roundRobin walks the pool. Whoever does not take its turn passes it on to the one
// that would have come next, so that no neighbour gets all of them.
type roundRobin struct{ next atomic.Uint64 }

func (p *roundRobin) pick(backends []*Backend, q query) *Backend {
	n := uint64(len(backends))
	var passed *Backend // fit, but in its slow start
	for range n {
		b := backends[(p.next.Add(1)-1)%n]
		if !q.fit(b) {
			continue
		}
		if b.takesTurn(b.share(q.now, q.slowStart)) {
			return b
		}
		if passed == nil {
			passed = b
		}
	}
	if passed != nil {
		p.next.Add(1) // a whole round has come to nothing: the next one begins elsewhere
		return passed
	}
	// Turns taken in between by other requests may have hidden one.
	for _, b := range backends {
		if q.fit(b) {
			return b
		}
	}
	return nil
}

// leastRequest takes the backend with the fewest leases for the share it can take; a
// rotating start spreads ties.
type leastRequest struct{ next atomic.Uint64 }

func (p *leastRequest) pick(backends []*Backend, q query) *Backend {
	n := uint64(len(backends))
	start := (p.next.Add(1) - 1) % n
	var best *Backend
	least := 0.0
	if b := backends[start]; q.fit(b) {
		best, least = b, b.load(&q)
		// Where all are idle, one that ramps would have to wait for its full share: it has
		// some of the turns that the rotation offers it, as with round_robin.
		if share := b.share(q.now, q.slowStart); share < 1 && b.takesTurn(share) {
			least = float64(b.inflight.Load())/share + 1
		}
	}
	best, least = bestOf(backends[start+1:], &q, best, least)
	best, _ = bestOf(backends[:start], &q, best, least)
	return best
}

func bestOf(backends []*Backend, q *query, best *Backend, least float64) (*Backend, float64) {
	for _, b := range backends {
		if !q.fit(b) {
			continue
		}
		if load := b.load(q); best == nil || load < least {
			best, least = b, load
		}
	}
	return best, least
}

// load is the leases that b would have with one more, for the share that it can take.
func (b *Backend) load(q *query) float64 {
	return float64(b.inflight.Load()+1) / b.share(q.now, q.slowStart)
}
