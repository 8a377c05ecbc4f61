package router

// roundRobin walks the pool. A backend that does not take its turn passes it on to the one that
// would have come next, so no neighbour gets all of its turns.
//
// Two pools that are walked alike go in step, so that a P always has the same Ds, unless their
// sizes have no common divisor. So decode moves on by one each time both would start again
// together.
type roundRobin struct{}

// cycleOf is the number of turns after which a decode pool of n and a prefill pool of m would start
// again together. It is 0 if there is no prefill pool, or none with which it would go in step.
func cycleOf(n, m int) uint64 {
	a, b := n, m
	for b > 0 {
		a, b = b, a%b
	}
	if m == 0 || a <= 1 {
		return 0
	}
	return uint64(n / a * m)
}

// place is the backend that has the t-th turn.
func place(t, cycle, n uint64) uint64 {
	if cycle > 0 {
		t += t / cycle
	}
	return t % n
}

func (roundRobin) pick(backends []*Backend, q query) *Backend {
	n := uint64(len(backends))
	var passed *Backend // fit, but takes only a part of its turns
	for range n {
		b := backends[place(q.turn(), q.cycle, n)]
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
		q.turn() // the whole round found none, so the next one begins with another backend
		return passed
	}
	// Other requests took turns in between, which may have hidden a fit backend.
	for _, b := range backends {
		if q.fit(b) {
			return b
		}
	}
	return nil
}
