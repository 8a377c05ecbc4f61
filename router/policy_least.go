package router

import "math"

// least takes the backend with the least load for its share. The load includes the external load
// and this request. A rotation decides among equals.
type least struct {
	tokens bool // load is estimated prompt tokens; else leases
}

// maxOffers bounds the turns that one request looks at.
const maxOffers = 16

func (p least) pick(backends []*Backend, q query) *Backend {
	s := search{tokens: p.tokens, own: 1, bound: math.MaxInt64, least: math.Inf(1)}
	if p.tokens {
		s.own = max(1, q.tokens)
	}
	start := s.begin(backends, &q)
	s.scan(backends[start:], &q)
	s.scan(backends[:start], &q)
	return s.best
}

// search is one look at a pool for the least load. It does not hold the query, because what a
// returned struct points to moves to the heap.
type search struct {
	tokens bool
	own    int64 // the load of the request

	best  *Backend
	least float64 // its load with the request, for its share
	bound int64   // a backend with a full share and at least this load is no better
}

// begin takes the backend whose turn it is, and returns where to look further. That backend counts
// as if it took a full share of this request. Otherwise a backend with a smaller share would never
// get a request while all are idle.
func (s *search) begin(backends []*Backend, q *query) (start uint64) {
	n := uint64(len(backends))
	for range maxOffers {
		start = q.turn() % n
		b := backends[start]
		if share := q.share(b); share > 0 && b.takesTurn(share, q.peeks) {
			s.take(b, b.load(q.now, s.tokens)/share+float64(s.own))
			break
		}
	}
	return start
}

func (s *search) take(b *Backend, least float64) {
	s.best, s.least, s.bound = b, least, int64(math.Ceil(least))-s.own
}

// scan looks for a lower load, until it finds an idle backend. It costs one memory load for each
// backend about which nothing is unusual.
func (s *search) scan(backends []*Backend, q *query) {
	for _, b := range backends {
		if s.bound <= 0 {
			return
		}
		n := b.inflight.word.Load()
		if n >= q.plain {
			s.consider(b, q)
			continue
		}
		if s.tokens {
			n = b.tokens.Load()
		}
		if n < s.bound {
			s.take(b, float64(n+s.own))
		}
	}
}

// consider is scan for a backend whose count alone does not decide.
func (s *search) consider(b *Backend, q *query) {
	share, external := q.closely(b)
	if share == 0 {
		return
	}
	if s.tokens && external != 0 {
		external = b.externalTokens(q.now)
	}
	least := (float64(b.own(s.tokens)+besides(b, s.tokens)+s.own) + external) / share
	if least < s.least {
		s.take(b, least)
	}
}
