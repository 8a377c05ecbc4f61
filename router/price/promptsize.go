package price

import (
	"math"
	"sync/atomic"
)

// promptKeep is the weight of a request in that of the next.
const promptKeep = 1 - 1.0/32

// PromptSize is the mean of the tokens for which the last leases of a pool were taken.
type PromptSize struct{ bits atomic.Uint64 } // of a float64; 0: there was none

// Add counts one. Of two at once one may be lost.
func (p *PromptSize) Add(tokens int64) {
	x := float64(tokens)
	if bits := p.bits.Load(); bits != 0 {
		x += (math.Float64frombits(bits) - x) * promptKeep
	}
	p.bits.Store(math.Float64bits(x))
}

// Mean is at least 1: a request is never nothing.
func (p *PromptSize) Mean() float64 { return max(1, math.Float64frombits(p.bits.Load())) }

// defaultTokenBytes is how much of a request's body makes a token: English text.
const defaultTokenBytes = 4

// TokenBytes is the mean of bytes per token, measured.
type TokenBytes struct{ bits atomic.Uint64 } // of a float64; 0: not known

// Load is the mean, or a usual one while nothing is known.
func (m *TokenBytes) Load() float64 {
	if bits := m.bits.Load(); bits != 0 {
		return math.Float64frombits(bits)
	}
	return defaultTokenBytes
}

// Observe counts a prompt for a 64th. Of two at once one may be lost.
func (m *TokenBytes) Observe(bytes, tokens int) {
	if bytes <= 0 || tokens <= 0 {
		return
	}
	x := min(max(float64(bytes)/float64(tokens), 1), 64) // an image has many more bytes for its tokens
	m.bits.Store(math.Float64bits(m.Load() + (x-m.Load())/64))
}
