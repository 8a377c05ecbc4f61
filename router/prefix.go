package router

import (
	"cmp"
	"slices"

	"xpyd/router/prefix"
)

// defaultKVTokens is the assumed size of a KV cache if the engine does not say.
const defaultKVTokens = 256_000

// remember gives p the table that its configuration needs, which is that of old if the size is the
// same.
func (p *pool) remember(rt Routing, old *pool) {
	memory := rt.PrefixMemory / 2
	if _, asks := p.policy.(prefixed); memory <= 0 || !asks && !rt.EstimateCaches {
		return
	}
	p.block = rt.PrefixBlock
	if p.prefix = old.prefix; p.prefix == nil || p.prefix.Memory() != memory || p.block != old.block {
		p.prefix = prefix.NewTable(memory)
	}
}

// seat gives each backend of p a seat in its table, and takes the seats of those that left back.
// Called under router.mu when p is in force, or about to be.
func (p *pool) seat(old *pool) {
	for _, b := range old.all() {
		if old.prefix != nil && (p.prefix != old.prefix || !slices.Contains(p.all(), b)) {
			old.prefix.Unseat(&b.cache)
		}
	}
	if p.prefix == nil {
		return
	}
	for _, b := range p.all() {
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
	b.cache.Resize(float64(tokens) * b.router.tokenBytes.Load() / blockBytes(b.router))
}

// blockBytes is Routing.PrefixBlock, or the default before the router has a configuration.
func blockBytes(r *Router) float64 {
	if s := r.Snapshot(); s != nil {
		return float64(PrefixBlock(s))
	}
	return defaultPrefixBlock
}

// PrefixBlock is Routing.PrefixBlock.
func PrefixBlock(s *Snapshot) int { return int(cmp.Or(s.routing.PrefixBlock, defaultPrefixBlock)) }

// Remembers reports whether the role's pool uses the prefix of a Want. If not, the caller need not hash
// the prompt.
func (s *Snapshot) Remembers(role Role) bool {
	p := s.pool(role)
	_, hashes := p.policy.(consistentHash)
	return hashes || p.prefix != nil
}

// lookup is what is known about one prompt, and room for its costs.
type lookup struct {
	prefix.Matches
	atHolders [prefix.MaxMatches]float64 // the cost at each match, in the order of the matches
	atAll     []float64                  // see room
}

// room is a slice with a number for each of n backends. It is not cleared.
func (l *lookup) room(n int) []float64 {
	if cap(l.atAll) < n {
		l.atAll = make([]float64, n)
	}
	return l.atAll[:n]
}

// lookUp finds which backends have how much of the prompt, or returns nil if nothing is remembered.
// The caller returns it to r.lookups.
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

// cached converts blocks of the prompt into tokens. The result is a part of the prompt's estimated
// size, so text and token ids count alike.
func (w *Want) cached(blocks int) int {
	return int(float64(blocks) * blockTokens(w.Tokens, len(w.Prefix)))
}

// blockTokens is the tokens of one block. On average a prompt has half a block more than its whole
// blocks.
func blockTokens(tokens, blocks int) float64 { return float64(tokens) / (float64(blocks) + 0.5) }

// sent notes that b gets the prompt. It returns how many tokens of it were expected in b's cache.
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

// Cached estimates how many tokens of the request's prompt b has in its prefix cache. It is 0 if the
// router remembers nothing (see Routing.EstimateCaches). It reads only the role, the model, the prefix
// and the tokens of w.
func (s *Snapshot) Cached(w Want, b *Backend) int {
	m := s.router.lookUp(s.poolFor(w.Role, &w), &w)
	if m == nil {
		return 0
	}
	defer s.router.lookups.Put(m)
	return w.cached(m.By(&b.cache).Blocks)
}

// CacheEstimate estimates the use of an engine's prefix cache from the prompts that this process has
// sent there.
type CacheEstimate struct {
	Queries  int64 // estimated tokens of these prompts
	Hits     int64 // those of them that the router expected in the cache
	Capacity int64 // tokens that the cache holds, from the engine's metrics or assumed
}

// CacheEstimate can be compared with PrefixQueries and PrefixHits of Engine.
func (b *Backend) CacheEstimate() CacheEstimate {
	queries, hits := b.cache.Counts()
	tokens := float64(b.cache.Capacity()) * blockBytes(b.router) / b.router.tokenBytes.Load()
	return CacheEstimate{queries, hits, int64(tokens)}
}

// PrefixTable returns how many bytes of a role's table are in use, and its size. Both are 0 if
// there is no table.
func (s *Snapshot) PrefixTable(role Role) (used, memory int64) {
	t := s.pool(role).prefix
	if t == nil {
		return 0, 0
	}
	return t.Used(), t.Memory()
}
