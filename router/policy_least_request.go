package router

// leastRequest takes the backend with the fewest leases for the share it can take; a
// rotating start spreads ties.
type leastRequest struct{}

func (leastRequest) pick(backends []*Backend, q query) *Backend {
	start := (q.turns.Add(1) - 1) % uint64(len(backends))
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
