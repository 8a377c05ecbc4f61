package router

import (
	"slices"

	"xpyd/router/prefix"
)

// defaultKVTokens is the size of an engine's KV cache where its metrics do not tell.
const defaultKVTokens = 256_000

// remember gives p the table that its configuration asks for: old's, if that has the same
// size.
func (p *pool) remember(rt Routing, old *pool) {
	memory := rt.PrefixMemory / 2
	if _, asks := p.policy.(prefixed); memory <= 0 || !asks && !rt.EstimateCaches {
		return
	}
	if p.prefix = old.prefix; p.prefix == nil || p.prefix.Memory() != memory {
		p.prefix = prefix.NewTable(memory)
	}
}

// seat gives the backends that have none their seats in the pool's table, and takes those
// of left back. Called under router.mu once p is in force, or about to be.
func (p *pool) seat(old *pool) {
	for _, b := range old.backends {
		if old.prefix != nil && (p.prefix != old.prefix || !slices.Contains(p.backends, b)) {
			old.prefix.Unseat(&b.cache)
		}
	}
	if p.prefix == nil {
		return
	}
	for _, b := range p.backends {
		if !b.cache.Seated() {
			b.resize()
			p.prefix.Seat(&b.cache)
		}
	}
}

// resize brings the capacity of the cache up to date.
func (b *Backend) resize() {
	tokens := int64(defaultKVTokens)
	if e := b.engine.Load(); e != nil && e.KVTokens() > 0 {
		tokens = e.KVTokens()
	}
	b.cache.Resize(float64(tokens) * b.router.tokenBytes.Load() / prefix.BlockBytes)
}

// Remembers reports whether the prefix of a Want is of use in the role's pool: where it is
// not, its hashes need not be made.
func (s *Snapshot) Remembers(role Role) bool {
	p := s.pool(role)
	_, hashes := p.policy.(consistentHash)
	return hashes || p.prefix != nil
}

// lookup is what is known of one prompt, with room for what it would cost.
type lookup struct {
	prefix.Matches
	atHolders [prefix.MaxMatches]float64 // at each of the matches, in their order
	atAll     []float64                  // see room
}

// room is for a number for each of n backends, with anything in it.
func (l *lookup) room(n int) []float64 {
	if cap(l.atAll) < n {
		l.atAll = make([]float64, n)
	}
	return l.atAll[:n]
}

// lookUp finds who has how much of the prompt; nil if nothing is remembered. The caller
// gives it back to lookups.
func (r *Router) lookUp(p *pool, w *Want) *lookup {
	if p.prefix == nil || len(w.Prefix) == 0 {
		return nil
	}
	m, ok := r.lookups.Get().(*lookup)
	if !ok {
		m = new(lookup)
	}
	p.prefix.Match(w.Prefix, &m.Matches)
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
func (s *Snapshot) sent(p *pool, w *Want, b *Backend, m *lookup, now int64) (cached int) {
	if m == nil {
		return 0
	}
	had := m.By(&b.cache)
	cached = w.cached(had.Blocks)
	b.cache.Count(w.Tokens, cached)
	b.resize()
	p.prefix.Insert(w.Prefix, had, now)
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
	defer s.router.lookups.Put(m)
	return w.cached(m.By(&b.cache).Blocks)
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
	queries, hits := b.cache.Counts()
	tokens := float64(b.cache.Capacity()) * prefix.BlockBytes / b.router.tokenBytes.Load()
	return CacheEstimate{queries, hits, int64(tokens)}
}

// PrefixTable tells how much of the table of a role is in use, in bytes; 0 and 0: there
// is none.
func (s *Snapshot) PrefixTable(role Role) (used, memory int64) {
	t := s.pool(role).prefix
	if t == nil {
		return 0, 0
	}
	return t.Used(), t.Memory()
}
