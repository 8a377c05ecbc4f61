package sim

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// How a pinned entry's blocks became free.
const (
	freedByRead   = "read"   // a decode engine pulled them
	freedByAbort  = "abort"  // a decode engine's client left before it pulled them
	freedByReject = "reject" // a decode engine rejected the request that carried the handle
	freedByLease  = "lease"  // nobody came
)

// pastEntries bounds how many freed entries a ledger remembers.
const pastEntries = 4096

// Ledger is what an engine knows of the KV blocks it holds for others.
type Ledger struct {
	Pinned  int            `json:"pinned"`   // blocks pinned now
	Entries []Entry        `json:"entries"`  // oldest first; the freed ones are bounded to the last 4096
	FreedBy map[string]int `json:"freed_by"` // entries freed since the start, by read, abort, reject, lease

	// StaleReads counts reads of blocks that were not pinned: a handle used
	// twice or too late, by whichever decode engine.
	StaleReads int `json:"stale_reads"`
}

// Entry is one finished prefill whose blocks wait, or waited, for a reader.
type Entry struct {
	RequestID  string    `json:"request_id"` // the engine's internal id: remote_request_id of the handle
	Blocks     []int     `json:"blocks"`
	PinnedAt   time.Time `json:"pinned_at"`
	LeaseUntil time.Time `json:"lease_until"`
	FreedAt    time.Time `json:"freed_at"` // zero while pinned
	FreedBy    string    `json:"freed_by"` // "" while pinned, then read, abort, reject or lease
}

// ledger is an engine's paged KV cache: which blocks are free, computing or
// pinned, what they hold, and who waits for them.
type ledger struct {
	mu      sync.Mutex
	lease   time.Duration
	total   int
	free    []int    // a queue, so that ids wander over the whole cache as in vLLM
	content []uint64 // by block id; block 0 is the null block and never used
	maxSeqs int
	running int
	waiting []*reservation // first come, first served
	pins    map[string]*Entry
	pinned  []bool // by block id
	past    []Entry
	freedBy map[string]int
	stale   int
}

func newLedger(o Options) *ledger {
	l := &ledger{
		lease: o.Lease, total: o.NumBlocks, maxSeqs: o.MaxSeqs,
		content: make([]uint64, o.NumBlocks+1), pinned: make([]bool, o.NumBlocks+1),
		pins: map[string]*Entry{}, freedBy: map[string]int{},
	}
	for id := 1; id <= o.NumBlocks; id++ {
		l.free = append(l.free, id)
	}
	return l
}

// reservation is one request's share of the engine: sequences and blocks. Its
// fields belong to the ledger's lock until ready is closed, then to the request.
type reservation struct {
	seqs, want int
	blocks     []int
	ready      chan struct{} // closed when the request may run
	granted    bool
}

// reserve queues for seqs sequences and want blocks.
func (l *ledger) reserve(seqs, want int) *reservation {
	r := &reservation{seqs: min(seqs, l.maxSeqs), want: min(want, l.total), ready: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = append(l.waiting, r)
	l.schedule()
	return r
}

// schedule lets the head of the queue run while it fits; l.mu is held.
func (l *ledger) schedule() {
	for len(l.waiting) > 0 {
		r := l.waiting[0]
		if l.running+r.seqs > l.maxSeqs || len(l.free) < r.want {
			return
		}
		l.waiting = l.waiting[1:]
		l.running += r.seqs
		r.blocks, l.free = slices.Clone(l.free[:r.want]), l.free[r.want:]
		r.granted = true
		close(r.ready)
	}
}

// finish gives back all of r that is not pinned, or its place in the queue.
func (l *ledger) finish(r *reservation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !r.granted {
		l.waiting = slices.DeleteFunc(l.waiting, func(w *reservation) bool { return w == r })
	} else {
		l.running -= r.seqs
		l.reclaim(r.blocks)
		r.seqs, r.blocks = 0, nil
	}
	l.schedule()
}

// pin moves blocks of r, which hold base's KV, into the care of an entry that
// lives until a reader comes or the lease ends.
func (l *ledger) pin(r *reservation, count int, requestID string, base uint64) []int {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	blocks := r.blocks[:count:count]
	r.blocks = r.blocks[count:]
	for i, id := range blocks {
		l.content[id], l.pinned[id] = mix(base, uint64(i)), true
	}
	l.pins[requestID] = &Entry{RequestID: requestID, Blocks: blocks, PinnedAt: now, LeaseUntil: now.Add(l.lease)}
	return blocks
}

// unpin ends a pin. It reports false for a request it does not hold, which the
// real engine merely logs.
func (l *ledger) unpin(requestID, by string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, ok := l.pins[requestID]
	if !ok {
		return false
	}
	l.drop(e, by)
	l.schedule()
	return true
}

// drop frees e's blocks and files it; l.mu is held.
func (l *ledger) drop(e *Entry, by string) {
	delete(l.pins, e.RequestID)
	e.FreedAt, e.FreedBy = time.Now(), by
	l.freedBy[by]++
	l.reclaim(e.Blocks)
	if len(l.past) == pastEntries {
		l.past = l.past[1:]
	}
	l.past = append(l.past, *e)
}

// reclaim frees blocks. Their content is spoilt at once: the worst case of a
// reuse, so that a second reader always shows. l.mu is held.
func (l *ledger) reclaim(blocks []int) {
	for _, id := range blocks {
		l.content[id], l.pinned[id] = mix(l.content[id], 0xdead), false
	}
	l.free = append(l.free, blocks...)
}

// read gives what the blocks hold now, whoever they belong to: an engine does
// not validate its readers. It reports false for an id outside the cache.
func (l *ledger) read(blocks []int) ([]uint64, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	contents := make([]uint64, len(blocks))
	stale := false
	for i, id := range blocks {
		if id < 0 || id > l.total {
			return nil, false
		}
		contents[i] = l.content[id]
		stale = stale || !l.pinned[id]
	}
	if stale {
		l.stale++
	}
	return contents, true
}

// extend renews a lease to now + 2/3 of its length, as a heartbeat does.
func (l *ledger) extend(requestID string) {
	until := time.Now().Add(l.lease * 2 / 3)
	l.mu.Lock()
	defer l.mu.Unlock()
	if e, ok := l.pins[requestID]; ok && until.After(e.LeaseUntil) {
		e.LeaseUntil = until
	}
}

// expire frees every pin whose lease has ended and returns how many.
func (l *ledger) expire(now time.Time) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	count := 0
	for _, e := range l.pins {
		if !e.LeaseUntil.After(now) {
			l.drop(e, freedByLease)
			count++
		}
	}
	l.schedule()
	return count
}

// forget drops the history; what is pinned stays.
func (l *ledger) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.past, l.freedBy, l.stale = nil, map[string]int{}, 0
}

// load is the engine's state for its gauges.
type load struct{ running, waiting, used, total int }

func (l *ledger) load() load {
	l.mu.Lock()
	defer l.mu.Unlock()
	return load{running: l.running, waiting: len(l.waiting), used: l.total - len(l.free), total: l.total}
}

func (l *ledger) snapshot() Ledger {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := Ledger{FreedBy: maps.Clone(l.freedBy), Entries: append([]Entry{}, l.past...), StaleReads: l.stale}
	for _, e := range l.pins {
		s.Pinned += len(e.Blocks)
		s.Entries = append(s.Entries, *e)
	}
	slices.SortStableFunc(s.Entries, func(a, b Entry) int { return a.PinnedAt.Compare(b.PinnedAt) })
	return s
}
