package router

import "math/bits"

// maxDraws bounds the tries before a draw looks at all backends.
const maxDraws = 8

// draw names a fit backend at random, each with a chance in proportion to its factor.
// random gives 64 random bits. nil: none is fit.
func draw(backends []*Backend, q *query, random func() uint64) *Backend {
	n := uint64(len(backends))
	for range maxDraws {
		i, _ := bits.Mul64(random(), n)
		b := backends[i]
		if !q.fit(b) {
			continue
		}
		if f := b.factor(q); f == 1 || fraction(random()) < f {
			return b
		}
	}
	var chosen *Backend
	total := 0.0
	for _, b := range backends {
		if !q.fit(b) {
			continue
		}
		f := b.factor(q)
		total += f
		if fraction(random())*total < f {
			chosen = b
		}
	}
	return chosen
}

// fraction makes a number from 0 to below 1 of random bits.
func fraction(random uint64) float64 { return float64(random>>11) / (1 << 53) }
