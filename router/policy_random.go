package router

import "math/bits"

// randomly takes any fit backend.
type randomly struct{ source func() uint64 }

func (p randomly) pick(backends []*Backend, q query) *Backend { return draw(backends, &q, p.source) }

// maxDraws bounds the tries before a draw looks at all backends.
const maxDraws = 8

// draw returns a fit backend at random, each with a chance in proportion to its share, or nil if
// none is fit. random returns 64 random bits.
func draw(backends []*Backend, q *query, random func() uint64) *Backend {
	n := uint64(len(backends))
	for range maxDraws {
		i, _ := bits.Mul64(random(), n)
		b := backends[i]
		if share := q.share(b); share == 1 || share > 0 && fraction(random()) < share {
			return b
		}
	}
	var chosen *Backend
	total := 0.0
	for _, b := range backends {
		share := q.share(b)
		total += share
		if share > 0 && fraction(random())*total < share {
			chosen = b
		}
	}
	return chosen
}

// fraction makes a number from 0 to below 1 from random bits.
func fraction(random uint64) float64 { return float64(random>>11) / (1 << 53) }
