package price

import (
	"math"
	"sync/atomic"
)

// promptKeep is the weight that a lease keeps with each later one.
const promptKeep = 1 - 1.0/32

// PromptSize is the mean number of tokens of the last leases of a pool.
type PromptSize struct{ bits atomic.Uint64 } // bits of a float64; 0 before the first lease

// Add counts one lease. One of two concurrent calls may be lost.
func (p *PromptSize) Add(tokens int64) {
	x := float64(tokens)
	if bits := p.bits.Load(); bits != 0 {
		x += (math.Float64frombits(bits) - x) * promptKeep
	}
	p.bits.Store(math.Float64bits(x))
}

// Mean is at least 1, because every request causes some load.
func (p *PromptSize) Mean() float64 { return max(1, math.Float64frombits(p.bits.Load())) }

// defaultTokenBytes is the bytes of a token in a request's body, for English text.
const defaultTokenBytes = 4

// TokenBytes is the measured mean number of bytes per token.
type TokenBytes struct {
	bits atomic.Uint64 // bits of a float64; 0 if not measured
	seen atomic.Uint64 // whole prompts, with defaultTokenBytes as the first, up to tokenBytesMemory; 0 is 1
}

// Load returns the mean, or defaultTokenBytes before the first measurement.
func (m *TokenBytes) Load() float64 {
	if bits := m.bits.Load(); bits != 0 {
		return math.Float64frombits(bits)
	}
	return defaultTokenBytes
}

const (
	// wholePrompt is the tokens from which a prompt counts in full. Most tokens of a short chat are the template's, which
	// has no bytes in the body, and what is estimated by the mean are long prompts.
	wholePrompt = 1024
	// tokenBytesMemory is how many whole prompts count at most. defaultTokenBytes counts as one, so a few are enough to
	// correct it.
	tokenBytesMemory = 64
)

// Observe counts a prompt of text. A whole one weighs as much as each of those before it, and a short one little, however
// many there are. One of two concurrent calls may be lost.
func (m *TokenBytes) Observe(bytes, tokens int) {
	x := float64(bytes) / float64(tokens)
	if bytes <= 0 || tokens <= 0 || x > 16 { // an image that passed for text has many more bytes for its tokens
		return
	}
	x = max(x, 1)
	weight := float64(tokens) / wholePrompt / tokenBytesMemory
	if tokens >= wholePrompt {
		seen := min(max(m.seen.Load(), 1)+1, tokenBytesMemory)
		m.seen.Store(seen)
		weight = 1 / float64(seen)
	}
	m.bits.Store(math.Float64bits(m.Load() + (x-m.Load())*weight))
}

// defaultMediaTokens is about an image of 1,024 by 1,024 pixels for Qwen2.5-VL.
const defaultMediaTokens = 1300

// mediaKeep is the weight that an observation keeps with each later one.
const mediaKeep = 1 - 1.0/16

// MediaTokens is the measured mean number of tokens of an image, sound or video.
type MediaTokens struct{ bits atomic.Uint64 } // bits of a float64; 0 if not measured

// Load returns the mean, or defaultMediaTokens before the first measurement.
func (m *MediaTokens) Load() float64 {
	if bits := m.bits.Load(); bits != 0 {
		return math.Float64frombits(bits)
	}
	return defaultMediaTokens
}

// Observe counts a prompt whose images, sounds and videos had that many tokens each. One of two concurrent calls may be
// lost.
func (m *MediaTokens) Observe(each float64) {
	each = max(each, 1) // the text may have been estimated too long
	m.bits.Store(math.Float64bits(each + (m.Load()-each)*mediaKeep))
}
