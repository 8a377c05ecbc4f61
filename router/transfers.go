package router

import (
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// maxCounted bounds how many pairs are counted one by one. Two pools of hundreds of backends have tens
// of thousands of pairs.
const maxCounted = 1024

// Transfers is how often a pair handed over blocks, and how often that failed. The zero Pair stands for
// the pairs after the first maxCounted, and for those that left before their transfer ended.
type Transfers struct {
	Pair
	OK, Failed int64
	Banned     bool
	// Timed are those whose first token was seen, which took Took together.
	Timed int64
	Took  time.Duration
}

// transferCount counts one pair.
type transferCount struct{ ok, failed, timed, nanos atomic.Int64 }

func (c *transferCount) read() Transfers {
	return Transfers{OK: c.ok.Load(), Failed: c.failed.Load(), Timed: c.timed.Load(), Took: time.Duration(c.nanos.Load())}
}

// transfers counts by pair. The map is replaced and never changed, as long as a pair is in both pools.
type transfers struct {
	by   atomic.Pointer[map[Pair]*transferCount]
	rest transferCount
}

// find returns the counts of x, or nil if it has none.
func (t *transfers) find(x Pair) *transferCount {
	if by := t.by.Load(); by != nil {
		return (*by)[x]
	}
	return nil
}

// full reports whether no further pair is counted one by one.
func (t *transfers) full() bool {
	by := t.by.Load()
	return by != nil && len(*by) >= maxCounted
}

// add makes the counts of x. Router.mu is held.
func (t *transfers) add(x Pair) *transferCount {
	if c := t.find(x); c != nil {
		return c
	}
	if t.full() {
		return &t.rest
	}
	by := map[Pair]*transferCount{}
	if old := t.by.Load(); old != nil {
		by = maps.Clone(*old)
	}
	by[x] = &transferCount{}
	t.by.Store(&by)
	return by[x]
}

// forget drops the pairs of a backend that has left. Router.mu is held.
func (t *transfers) forget(b *Backend) {
	old := t.by.Load()
	if old == nil {
		return
	}
	by := maps.Clone(*old)
	maps.DeleteFunc(by, func(x Pair, _ *transferCount) bool { return x.has(b) })
	t.by.Store(&by)
}

// counted returns the counts of x. A pair that has left gets none of its own, as nothing would ever
// drop them.
func (m *Pairs) counted(x Pair) *transferCount {
	if c := m.transfers.find(x); c != nil {
		return c
	}
	if m.transfers.full() { // before the lock, because with many pairs nearly every request comes here
		return &m.transfers.rest
	}
	m.router.mu.Lock()
	defer m.router.mu.Unlock()
	if !m.router.Snapshot().has(x) {
		return &m.transfers.rest
	}
	return m.transfers.add(x)
}

// Transfers returns the counts of the pairs that had a transfer, ordered by their URLs.
func (m *Pairs) Transfers() []Transfers {
	var all []Transfers
	now := m.router.now()
	if by := m.transfers.by.Load(); by != nil {
		for x, c := range *by {
			b := m.banOf(x)
			t := c.read()
			t.Pair, t.Banned = x, b != nil && b.until.Load() > now
			all = append(all, t)
		}
	}
	slices.SortFunc(all, func(a, b Transfers) int {
		if c := strings.Compare(a.Prefill.URL, b.Prefill.URL); c != 0 {
			return c
		}
		return strings.Compare(a.Decode.URL, b.Decode.URL)
	})
	if rest := m.transfers.rest.read(); rest.OK+rest.Failed > 0 {
		all = append(all, rest)
	}
	return all
}

// Took notes how long a transfer that worked has taken, to its first token.
func (m *Pairs) Took(x Pair, d time.Duration) {
	c := m.counted(x)
	c.timed.Add(1)
	c.nanos.Add(int64(d))
}
