package router

// roundRobin walks the pool. Whoever does not take its turn passes it on to the one
// that would have come next, so that no neighbour gets all of them.
type roundRobin struct{}

func (roundRobin) pick(backends []*Backend, q query) *Backend {
	n := uint64(len(backends))
	var passed *Backend // fit, but takes a part of its turns only
	for range n {
		b := backends[q.turn()%n]
		share := q.share(b)
		if share == 0 {
			continue
		}
		if b.takesTurn(share, q.peeks) {
			return b
		}
		if passed == nil {
			passed = b
		}
	}
	if passed != nil {
		q.turn() // a whole round has come to nothing: the next one begins elsewhere
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
