package router

import (
	"math"
	"slices"
	"sync/atomic"
)

const (
	// defaultKVTokens is the size of an engine's KV cache where its metrics do not tell.
	defaultKVTokens = 256_000
	// defaultTokenBytes is how much of a request's body makes a token: English text.
	defaultTokenBytes = 4
	// tableBlockBytes is how much of a prompt one hash of Want.Prefix stands for.
	tableBlockBytes = 256
	// tickNanos is the unit in which the tables tell how long something was not used.
	tickNanos = 1 << 30
)

// tokenBytes is the mean of bytes per token, measured; the bits of a float64, 0: not yet.
type tokenBytes struct{ bits atomic.Uint64 }

func (m *tokenBytes) load() float64 {
	if bits := m.bits.Load(); bits != 0 {
		return math.Float64frombits(bits)
	}
	return defaultTokenBytes
}

// observe counts a prompt for a 64th. Of two at once one may be lost.
func (m *tokenBytes) observe(bytes, tokens int) {
	if bytes <= 0 || tokens <= 0 {
		return
	}
	x := min(max(float64(bytes)/float64(tokens), 1), 64) // an image has many more bytes for its tokens
	m.bits.Store(math.Float64bits(m.load() + (x-m.load())/64))
}

// ObservePrompt feeds what an engine counted of a prompt (usage.prompt_tokens) and its
// size as in kvparams.Request.PromptBytes into the estimates of token counts.
func (r *Router) ObservePrompt(bytes, tokens int) { r.tokenBytes.observe(bytes, tokens) }

// TokenBytes is the mean size of a prompt's token in the body of its request, in bytes.
func (r *Router) TokenBytes() float64 { return r.tokenBytes.load() }

// remember gives p the table that its configuration asks for: old's, if that has the same
// size.
func (p *pool) remember(rt Routing, old *pool) {
	memory := rt.PrefixMemory / 2
	if _, asks := p.policy.(prefixed); memory <= 0 || !asks && !rt.EstimateCaches {
		return
	}
	if p.prefix = old.prefix; p.prefix == nil || p.prefix.memory != memory {
		p.prefix = newPrefixTable(memory)
	}
}

// seat gives the backends that have none their seats in the pool's table, and takes those
// of left back. Called under router.mu once p is in force, or about to be.
func (p *pool) seat(old *pool) {
	for _, b := range old.backends {
		if old.prefix != nil && (p.prefix != old.prefix || !slices.Contains(p.backends, b)) {
			old.prefix.seats.leave(&b.cache)
		}
	}
	if p.prefix == nil {
		return
	}
	for _, b := range p.backends {
		if b.cache.seat.Load() == 0 {
			b.resize()
			p.prefix.seats.give(&b.cache)
		}
	}
}

// resize brings the capacity of the cache up to date.
func (b *Backend) resize() {
	tokens := int64(defaultKVTokens)
	if e := b.engine.Load(); e != nil && e.KVTokens() > 0 {
		tokens = e.KVTokens()
	}
	blocks := float64(tokens) * b.router.tokenBytes.load() / tableBlockBytes
	if n := uint32(min(max(blocks, 1), maxCapacity)); n != b.cache.capacity.Load() {
		b.cache.capacity.Store(n)
	}
}

// Remembers reports whether the prefix of a Want is of use in the role's pool: where it is
// not, its hashes need not be made.
func (s *Snapshot) Remembers(role Role) bool {
	p := s.pool(role)
	_, hashes := p.policy.(consistentHash)
	return hashes || p.prefix != nil
}

// lookUp finds who has how much of the prompt; nil if nothing is remembered. The caller
// gives it back to matches.
func (r *Router) lookUp(p *pool, w *Want) *prefixMatches {
	if p.prefix == nil || len(w.Prefix) == 0 {
		return nil
	}
	m, ok := r.matches.Get().(*prefixMatches)
	if !ok {
		m = new(prefixMatches)
	}
	p.prefix.match(w.Prefix, m)
	return m
}

// cached is how many tokens of the prompt blocks of its blocks make: its estimated size in
// proportion, so that it does not matter whether the prompt is text or token ids.
func (w *Want) cached(blocks int) int {
	return int(float64(blocks) * blockTokens(w.Tokens, len(w.Prefix)))
}

// blockTokens is the tokens of a block, of a prompt that has so many of both and on the
// average half a block more.
func blockTokens(tokens, blocks int) float64 { return float64(tokens) / (float64(blocks) + 0.5) }

// sent notes that b gets the prompt, and returns how many tokens of it were to be expected
// in b's cache.
func (s *Snapshot) sent(p *pool, w *Want, b *Backend, m *prefixMatches, now int64) (cached int) {
	if m == nil {
		return 0
	}
	had := m.by(&b.cache)
	cached = w.cached(had.blocks)
	b.cache.queries.Add(int64(w.Tokens))
	b.cache.hits.Add(int64(cached))
	b.resize()
	p.prefix.insert(w.Prefix, had, uint32(now/tickNanos))
	return cached
}

// Cached estimates how many tokens of the request's prompt b has in its prefix cache: 0
// where nothing is remembered (see Routing.EstimateCaches). Of w only the role, the model,
// the prefix and the tokens count.
func (s *Snapshot) Cached(w Want, b *Backend) int {
	m := s.router.lookUp(s.poolFor(w.Role, &w), &w)
	if m == nil {
		return 0
	}
	defer s.router.matches.Put(m)
	return w.cached(m.by(&b.cache).blocks)
}

// CacheEstimate is what is believed of an engine's prefix cache, from the prompts that
// this process has sent there.
type CacheEstimate struct {
	Queries  int64 // tokens of these prompts, estimated
	Hits     int64 // those of them expected in the cache
	Capacity int64 // tokens that the cache holds, by the engine's metrics or assumed
}

// CacheEstimate is to be compared with PrefixQueries and PrefixHits of Engine.
func (b *Backend) CacheEstimate() CacheEstimate {
	tokens := float64(b.cache.capacity.Load()) * tableBlockBytes / b.router.tokenBytes.load()
	return CacheEstimate{b.cache.queries.Load(), b.cache.hits.Load(), int64(tokens)}
}

// PrefixTable tells how much of the table of a role is in use, in bytes; 0 and 0: there
// is none.
func (s *Snapshot) PrefixTable(role Role) (used, memory int64) {
	t := s.pool(role).prefix
	if t == nil {
		return 0, 0
	}
	return t.used.Load() * lineBytes, t.memory
}
