package sim

import (
	"math"
	"slices"
)

// reservation is the share of the engine that one request has: sequences, blocks and the turn to
// compute. Until ready is closed the ledger's lock guards its fields. Then they belong to the
// request, except those marked as the lock's.
type reservation struct {
	seats    []*seat
	seqs     int
	computes bool // its prompts are computed here
	loading  int  // sequences that wait for KV from another engine; the lock's
	computed bool // no longer computing; the lock's
	granted  bool
	ahead    int           // tokens of its prompts that no step has yet; the lock's
	ready    chan struct{} // closed when the request may run
}

// seat is the place of one sequence.
type seat struct {
	kv    kv
	want  int  // blocks to the sequence's end
	reads bool // may use cached blocks
	hits  int  // how many of blocks came from the cache, the first ones
	// fetched is how many of the blocks after them came from a store.
	fetched int
	held    []uint64 // what held blocks contain
	blocks  []int
}

// uncached returns how many tokens of the prompts are not in the cache.
func (r *reservation) uncached(blockSize int) int {
	n := 0
	for _, s := range r.seats {
		n += s.uncached(blockSize)
	}
	return n
}

func (s *seat) uncached(blockSize int) int { return s.kv.tokens - (s.hits+s.fetched)*blockSize }

// reserve queues for r's share. Requests run in the order in which they came.
func (l *ledger) reserve(r *reservation) {
	r.seqs, r.ready = min(len(r.seats), l.o.MaxSeqs), make(chan struct{})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = append(l.waiting, r)
	l.schedule()
}

// schedule lets the head of the queue run while it fits. l.mu is held.
func (l *ledger) schedule() {
	for len(l.waiting) > 0 && l.fits(l.waiting[0]) {
		r := l.waiting[0]
		l.waiting = l.waiting[1:]
		l.running += r.seqs
		if r.computes && l.oneByOne {
			l.computing = r
		}
		for _, s := range r.seats {
			l.grant(s, r.computes)
		}
		if r.computes && l.o.takesSteps() {
			r.ahead = r.uncached(l.o.BlockSize)
			l.ahead += r.ahead
		}
		r.granted = true
		close(r.ready)
	}
}

// fits reports whether r could run now. A request that is larger than the engine runs alone, with
// all blocks that there are.
func (l *ledger) fits(r *reservation) bool {
	if r.computes && (l.computing != nil || l.o.takesSteps() && l.ahead >= l.o.MaxBatchedTokens) || l.running+r.seqs > l.o.MaxSeqs {
		return false
	}
	need := 0
	for _, s := range r.seats {
		hits := l.lookup(s)
		need += s.want - len(hits) + l.cache.unheld(hits)
	}
	return min(need, l.cache.total()) <= l.cache.free
}

func (l *ledger) lookup(s *seat) []int {
	if l.o.NoPrefixCaching || !s.reads || s.want == 0 {
		return nil
	}
	return l.cache.lookup(s.kv.keys)
}

// grant gives s its blocks. From now on other requests find those that this engine computes,
// because vLLM files a block when it schedules its computation.
func (l *ledger) grant(s *seat, computes bool) {
	s.blocks = l.lookup(s)
	s.hits = len(s.blocks)
	for _, id := range s.blocks {
		l.cache.hold(id)
		s.held = append(s.held, l.cache.content[id])
	}
	for len(s.blocks) < s.want && l.cache.free > 0 {
		s.blocks = append(s.blocks, l.cache.take())
	}
	if computes {
		l.fill(s, s.kv.contents[s.hits:])
	}
	l.tellRemoved()
}

// fill writes the KV after the cached prefix of s. It files the full blocks of the prompt by its
// tokens, whatever was written.
func (l *ledger) fill(s *seat, contents []uint64) {
	contents = contents[:min(len(contents), max(len(s.blocks)-s.hits, 0))]
	for i, content := range contents {
		id := s.blocks[s.hits+i]
		l.cache.content[id] = content
		if !l.o.NoPrefixCaching && s.hits+i < s.kv.tokens/l.o.BlockSize {
			l.cache.file(id, s.kv.key(s.kv.contents[s.hits+i]))
		}
	}
	if l.news != nil && !l.o.NoPrefixCaching {
		l.tellRemoved()
		l.news.Stored(s.kv.keysOf(s.kv.contents[:min(s.hits+len(contents), s.kv.tokens/l.o.BlockSize)]), s.kv.ids, l.o.BlockSize, s.hits)
	}
}

// tellRemoved publishes what the cache has forgotten.
func (l *ledger) tellRemoved() {
	l.news.Removed(l.cache.gone)
	l.cache.gone = l.cache.gone[:0]
}

// uncache takes n blocks that are not in use out of the prefix cache, or all of the cache's.
func (l *ledger) uncache(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n < math.MaxInt {
		l.cache.evict(n)
		l.tellRemoved()
		return
	}
	clear(l.cache.byKey)
	clear(l.cache.key)
	l.news.Cleared()
}

// pulled notes that the KV of r's i-th seat came from another engine.
func (l *ledger) pulled(r *reservation, i int, contents []uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fill(r.seats[i], contents)
}

// beginLoad notes that r waits for the KV of another engine, and endLoad that it no longer does.
// Such a request counts as waiting.
func (l *ledger) beginLoad(r *reservation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.loading = r.seqs
	l.loading += r.loading
}

func (l *ledger) endLoad(r *reservation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.loading -= r.loading
	r.loading = 0
}

// endCompute ends r's turn, because its prompts are computed.
func (l *ledger) endCompute(r *reservation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.computed = true
	l.endTurn(r)
	l.schedule()
}

// stepped notes that so many tokens of r's prompts are part of a step. What then fits in the next one runs.
func (l *ledger) stepped(r *reservation, tokens int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	tokens = min(tokens, r.ahead)
	r.ahead, l.ahead = r.ahead-tokens, l.ahead-tokens
	l.schedule()
}

func (l *ledger) endTurn(r *reservation) {
	l.ahead -= r.ahead
	r.ahead = 0
	if l.computing == r {
		l.computing = nil
	}
}

// answered files the full blocks that an answer filled. contents are those of the i-th seat's first
// blocks, ids the tokens of the prompt and its answer.
func (l *ledger) answered(r *reservation, i int, contents []uint64, ids []int) {
	if l.o.NoPrefixCaching {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s := r.seats[i]
	for b := s.kv.tokens / l.o.BlockSize; b < min(len(contents), len(s.blocks)); b++ {
		l.cache.content[s.blocks[b]] = contents[b]
		l.cache.file(s.blocks[b], s.kv.key(contents[b]))
	}
	if l.news != nil {
		l.tellRemoved()
		l.news.Stored(s.kv.keysOf(contents[:min(len(contents), len(s.blocks))]), ids, l.o.BlockSize, s.kv.tokens/l.o.BlockSize)
	}
}

// finish returns all of r that is not pinned, or its place in the queue.
func (l *ledger) finish(r *reservation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !r.granted {
		l.waiting = slices.DeleteFunc(l.waiting, func(w *reservation) bool { return w == r })
		l.schedule()
		return
	}
	l.endTurn(r)
	l.running, l.loading = l.running-r.seqs, l.loading-r.loading
	for _, s := range r.seats {
		if r.computes && !r.computed {
			l.disown(s)
		}
		l.cache.release(s.blocks)
		s.blocks = nil
	}
	r.seqs, r.loading = 0, 0
	l.schedule()
}

// lose ends r, and its blocks stay in use.
func (l *ledger) lose(r *reservation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running, l.loading = l.running-r.seqs, l.loading-r.loading
	r.seqs, r.loading = 0, 0
	l.schedule()
}

// disown takes back what grant filed too early, because the blocks were never computed.
func (l *ledger) disown(s *seat) {
	for _, id := range s.blocks[min(s.hits, len(s.blocks)):] {
		l.cache.forget(id)
	}
	l.tellRemoved()
}

// takesSteps reports whether an engine computes prompts and answers in steps that they share.
func (o Options) takesSteps() bool { return o.Profile != nil && o.MaxBatchedTokens > 0 }

// takesTurns reports whether an engine computes one prompt after the other.
func (o Options) takesTurns() bool {
	return !o.takesSteps() && o.MaxBatchedTokens > 0 && !math.IsInf(o.PrefillTokensPerSecond, 1)
}
