package prefix

import "sync/atomic"

// Cache estimates what an engine's prefix cache holds, which keeps the blocks that were used last. It
// counts time in blocks: an engine whose cache holds n blocks has lost every block that it last used
// more than n new blocks ago.
type Cache struct {
	Owner any // the owner of the cache, which this package only returns
	News  News

	seat     atomic.Uint32 // in the table; 0 if none
	blocks   atomic.Uint64 // new blocks that were sent to the engine: the time of the cache
	since    atomic.Uint64 // the value of blocks when the engine last started; older blocks are gone
	capacity atomic.Uint32 // in blocks

	queries, hits atomic.Int64 // tokens of the prompts sent, and those of them expected in the cache
}

// maxCapacity is the largest age that stamps can tell apart: 134 million tokens.
const maxCapacity = stampMask / 2

// has reports whether the engine still has the given number of first blocks of a prompt that it
// last used at stamp. age is how many blocks it has got since. An engine frees the blocks of a
// prompt from its end, so the end is lost first.
func (c *Cache) has(stamp uint32, blocks int) (age uint32, ok bool) {
	now := c.blocks.Load()
	age = (uint32(now) - stamp) & stampMask
	ok = uint64(age) <= now-c.since.Load() && uint64(age)+uint64(blocks) <= c.room()
	return age, ok
}

// room is how many blocks may have come since a block was used that is still there. An engine whose events are heard says
// itself what it has removed. Others use its blocks without an event, so they may be there for longer than it seems.
func (c *Cache) room() uint64 {
	n := uint64(c.capacity.Load())
	if c.Live() {
		n = min(2*n, maxCapacity)
	}
	return n
}

// Clear notes that the engine has restarted and its cache is empty.
func (c *Cache) Clear() { c.since.Store(c.blocks.Add(1)) }

// Seated reports whether the cache has a seat in a table.
func (c *Cache) Seated() bool { return c.seat.Load() != 0 }

// Resize sets the capacity.
func (c *Cache) Resize(blocks float64) {
	if n := uint32(min(max(blocks, 1), maxCapacity)); n != c.capacity.Load() {
		c.capacity.Store(n)
	}
}

// Capacity is the size of the cache in blocks.
func (c *Cache) Capacity() uint32 { return c.capacity.Load() }

// Count adds a prompt that xpyd sent to the engine, and the part of it that was expected in the cache.
func (c *Cache) Count(tokens, cached int) {
	c.queries.Add(int64(tokens))
	c.hits.Add(int64(cached))
}

// Counts returns the sums of what Count has added.
func (c *Cache) Counts() (tokens, cached int64) { return c.queries.Load(), c.hits.Load() }

// Insert notes that a backend gets the prompt. had is the match of the same prompt: what the
// backend had of it before. now is the time in nanoseconds.
func (t *Table) Insert(prefix []uint64, had Match, now int64) {
	t.insert(prefix, had, uint32(now/tickNanos))
}

func (t *Table) insert(prefix []uint64, had Match, tick uint32) {
	c := had.Cache
	seat := c.seat.Load()
	if seat == 0 {
		return
	}
	marks, from := markCount(len(prefix)), 0
	if marks == 0 {
		return
	}
	if had.Blocks > 0 && had.age < c.capacity.Load()/restamp {
		from = markCount(had.Blocks)
	}
	now := c.blocks.Load()
	if !c.Live() {
		now = c.blocks.Add(uint64(markEnd(marks-1) - had.Blocks))
	}
	holder := seat<<stampBits | uint32(now)&stampMask
	for ; from < marks; from += touched {
		upTo := min(marks, from+touched)
		t.touch(prefix, from, upTo)
		for n := from; n < upTo; n++ {
			t.put(prefix[markEnd(n)-1], holder, tick&tickMask)
		}
	}
}

// touched is how many marks are fetched from memory at once.
const touched = 32

// restamp is the part of the capacity within which blocks need no new stamp when they are used
// again. So the next request of a chat writes only its own blocks.
const restamp = 32
