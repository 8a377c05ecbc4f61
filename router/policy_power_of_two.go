package router

// powerOfTwo draws two backends and takes the one with less load for its share. So routers that do
// not know each other do not all choose the same idle backend.
type powerOfTwo struct {
	source func() uint64
	tokens bool // load is estimated prompt tokens; else leases
}

func (p powerOfTwo) pick(backends []*Backend, q query) *Backend {
	a := draw(backends, &q, p.source)
	if a == nil {
		return nil
	}
	for range maxDraws { // until the draw is another backend, if there is one
		b := draw(backends, &q, p.source)
		if b != nil && b != a {
			// This request does not count. Of two idle backends the first is taken, which was drawn
			// by its share.
			if p.load(b, &q) < p.load(a, &q) {
				return b
			}
			break
		}
	}
	return a
}

func (p powerOfTwo) load(b *Backend, q *query) float64 {
	return b.load(q.now, p.tokens) / q.share(b)
}
