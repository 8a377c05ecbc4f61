package sim

import (
	"maps"
	"slices"
	"sync"
	"time"

	"xpyd/sim/announce"
)

// These are the ways in which a pinned entry's blocks became free.
const (
	freedByRead   = "read"   // a decode engine pulled them
	freedByAbort  = "abort"  // a decode engine's client left before it pulled them
	freedByReject = "reject" // a decode engine rejected the request that carried the handle
	freedByLease  = "lease"  // no reader came
)

// pastEntries bounds how many freed entries a ledger remembers.
const pastEntries = 4096

// Ledger is what an engine knows of the KV blocks it holds for others.
type Ledger struct {
	Pinned  int            `json:"pinned"`   // blocks pinned now
	Entries []Entry        `json:"entries"`  // oldest first; the freed ones are bounded to the last 4096
	FreedBy map[string]int `json:"freed_by"` // entries freed since the start, by read, abort, reject, lease

	// StaleReads counts reads of blocks that were not pinned. A decode engine used a handle twice
	// or too late.
	StaleReads int `json:"stale_reads"`

	// Stored and Loaded count the prompts whose KV went to the store of ConnectorShared, or came from
	// there.
	Stored int `json:"stored,omitempty"`
	Loaded int `json:"loaded,omitempty"`

	// Encoded counts the items that an encode engine has encoded. EncodingsLoaded and EncodingsComputed
	// count those that another engine needed and found, or computed itself.
	Encoded           int `json:"encoded,omitempty"`
	EncodingsLoaded   int `json:"encodings_loaded,omitempty"`
	EncodingsComputed int `json:"encodings_computed,omitempty"`
}

// Entry is one finished prefill whose blocks wait, or waited, for a reader. With
// Options.Bidirectional it may also be a finished decode.
type Entry struct {
	RequestID  string    `json:"request_id"` // the engine's internal id: remote_request_id of the handle
	Blocks     []int     `json:"blocks"`
	PinnedAt   time.Time `json:"pinned_at"`
	LeaseUntil time.Time `json:"lease_until"`
	FreedAt    time.Time `json:"freed_at"` // zero while pinned
	FreedBy    string    `json:"freed_by"` // "" while pinned, then read, abort, reject or lease
}

// ledger is the engine's book of its KV cache: who runs, who waits, and what is pinned for whom.
type ledger struct {
	o        Options
	oneByOne bool // prompts are computed one after the other

	news *announce.Announcer // nil: nobody is told what is cached

	mu        sync.Mutex
	cache     *kvCache
	running   int            // sequences, including those that load
	loading   int            // sequences that wait for another engine's KV
	waiting   []*reservation // first come, first served
	computing *reservation   // the one that has the turn; nil if none has it
	ahead     int            // tokens of granted prompts that no step has yet, where the engine takes steps
	pins      map[string]*Entry
	past      []Entry
	gone      map[string]bool // by request id: the entries of the past
	freedBy   map[string]int
	stale     int
	stored    Ledger        // only the counts of the store and of encodings
	pinned    chan struct{} // closed at the next pin or refusal; nil while nobody waits
	refused   map[string]bool
}

// count changes the figures of the store and of encodings.
func (l *ledger) count(f func(*Ledger)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f(&l.stored)
}

func newLedger(o Options) *ledger {
	return &ledger{
		o: o, oneByOne: o.takesTurns(), cache: newKVCache(o.NumBlocks),
		pins: map[string]*Entry{}, gone: map[string]bool{}, freedBy: map[string]int{}, refused: map[string]bool{},
	}
}

// pin moves the first count blocks of r's i-th seat to an entry, which lives until a reader comes
// or the lease ends.
func (l *ledger) pin(r *reservation, i, count int, requestID string, lease time.Duration) []int {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	s := r.seats[i]
	count = min(count, len(s.blocks))
	blocks := s.blocks[:count:count]
	s.blocks = s.blocks[count:]
	for _, id := range blocks {
		l.cache.pins[id]++
	}
	l.pins[requestID] = &Entry{RequestID: requestID, Blocks: blocks, PinnedAt: now, LeaseUntil: now.Add(lease)}
	l.wake()
	return blocks
}

// unpin ends a pin. It returns false for a request without one, which the real engine only logs.
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

// drop frees the blocks of e and files it. l.mu is held.
func (l *ledger) drop(e *Entry, by string) {
	delete(l.pins, e.RequestID)
	e.FreedAt, e.FreedBy = time.Now(), by
	l.freedBy[by]++
	for _, id := range e.Blocks {
		l.cache.pins[id]--
	}
	l.cache.release(e.Blocks)
	if len(l.past) == pastEntries {
		delete(l.gone, l.past[0].RequestID)
		l.past = l.past[1:]
	}
	l.past, l.gone[e.RequestID] = append(l.past, *e), true
}

// read returns what the blocks hold now, whoever they belong to, because an engine does not check
// its readers. For a reader that comes too late they hold something else, which is the worst case
// of a reuse. That is also so for blocks that are still cached, or pinned for others, so that such
// a read always shows. It returns false for an id outside the cache.
func (l *ledger) read(requestID string, blocks []int) ([]uint64, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	contents := make([]uint64, len(blocks))
	stale := l.gone[requestID]
	for i, id := range blocks {
		if id < 0 || id > l.cache.total() {
			return nil, false
		}
		contents[i] = l.cache.content[id]
		if l.gone[requestID] || l.cache.pins[id] == 0 {
			contents[i], stale = mix(contents[i], 0xdead), true
		}
	}
	if stale {
		l.stale++
	}
	return contents, true
}

// extend renews a lease to now + 2/3 of its length, like a heartbeat.
func (l *ledger) extend(requestID string) {
	until := time.Now().Add(l.o.Lease * 2 / 3)
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

// forget drops the history. What is pinned stays.
func (l *ledger) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.past, l.gone, l.freedBy, l.stale = nil, map[string]bool{}, map[string]int{}, 0
}

// load is the engine's state for its gauges.
type load struct {
	running, waiting int // waiting for capacity
	loading          int // waiting for another engine's KV
	used, total      int // blocks; cached ones without a holder are not used
}

func (l *ledger) load() load {
	l.mu.Lock()
	defer l.mu.Unlock()
	return load{
		running: l.running - l.loading, waiting: len(l.waiting), loading: l.loading,
		used: l.cache.total() - l.cache.free, total: l.cache.total(),
	}
}

func (l *ledger) snapshot() Ledger {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := Ledger{
		FreedBy: maps.Clone(l.freedBy), Entries: append([]Entry{}, l.past...), StaleReads: l.stale,
		Stored: l.stored.Stored, Loaded: l.stored.Loaded,
		Encoded: l.stored.Encoded, EncodingsLoaded: l.stored.EncodingsLoaded, EncodingsComputed: l.stored.EncodingsComputed,
	}
	for _, e := range l.pins {
		s.Pinned += len(e.Blocks)
		s.Entries = append(s.Entries, *e)
	}
	slices.SortStableFunc(s.Entries, func(a, b Entry) int { return a.PinnedAt.Compare(b.PinnedAt) })
	return s
}

// publisher is what tells others what is cached, or nil.
func (l *ledger) publisher() *announce.Announcer {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.news
}
