package router

// roundRobin walks the pool. Whoever does not take its turn passes it on to the one
// that would have come next, so that no neighbour gets all of them.
//
// Two pools that are walked alike would go in lockstep, a P always with the same Ds, unless
// their sizes have no common divisor. So decode begins one further on each time that both
// would begin anew together.
type roundRobin struct{}

// cycleOf is after how many turns a decode pool of n and a prefill pool of m would begin anew
// together; 0: there is no other pool, or none that it would go in lockstep with.
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

// place is whose turn the t-th is.
func place(t, cycle, n uint64) uint64 {
	if cycle > 0 {
		t += t / cycle
	}
	return t % n
}

func (roundRobin) pick(backends []*Backend, q query) *Backend {
	n := uint64(len(backends))
	var passed *Backend // fit, but takes a part of its turns only
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
