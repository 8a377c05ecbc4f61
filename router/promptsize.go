package router

import (
	"math"
	"sync/atomic"
)

// promptKeep is the weight of a request in that of the next.
const promptKeep = 1 - 1.0/32

// promptSize is the mean of the tokens for which the last leases of a pool were taken.
type promptSize struct{ bits atomic.Uint64 } // of a float64; 0: there was none

// add counts one. Of two at once one may be lost.
func (p *promptSize) add(tokens int64) {
	x := float64(tokens)
	if bits := p.bits.Load(); bits != 0 {
		x += (math.Float64frombits(bits) - x) * promptKeep
	}
	p.bits.Store(math.Float64bits(x))
}

// mean is at least 1: a request is never nothing.
func (p *promptSize) mean() float64 { return max(1, math.Float64frombits(p.bits.Load())) }
