package router

import (
	"sync"
	"sync/atomic"
)

// prefixCache is what is believed of a backend's prefix cache: an engine that keeps the
// blocks it used last. Time in it goes by blocks: an engine whose cache holds n blocks
// has lost whatever it had last used more than n new blocks ago.
type prefixCache struct {
	backend  *Backend
	seat     atomic.Uint32 // in the table; 0: none
	blocks   atomic.Uint64 // new blocks put on it, its time
	since    atomic.Uint64 // of blocks: what was before is gone, the engine has restarted
	capacity atomic.Uint32 // in blocks of the table

	queries, hits atomic.Int64 // tokens of the prompts sent there, and of these what was expected in the cache
}

// maxCapacity is what stamps can tell apart: 134 million tokens.
const maxCapacity = stampMask / 2

// has reports whether the backend still has the first so many blocks of a prompt that it
// was last asked for at stamp, and how many it has got since. An engine frees the blocks
// of a prompt from its end, so that the end is lost first.
func (c *prefixCache) has(stamp uint32, blocks int) (age uint32, ok bool) {
	now := c.blocks.Load()
	age = (uint32(now) - stamp) & stampMask
	return age, uint64(age) <= now-c.since.Load() && uint64(age)+uint64(blocks) <= uint64(c.capacity.Load())
}

// forget: the engine has started anew and has nothing.
func (c *prefixCache) forget() { c.since.Store(c.blocks.Add(1)) }

// insert notes that the backend gets the prompt, of which it had what the match says.
func (t *prefixTable) insert(prefix []uint64, had prefixMatch, tick uint32) {
	c := had.cache
	seat := c.seat.Load()
	if seat == 0 {
		return
	}
	marks, from := markCount(len(prefix)), 0
	if marks == 0 {
		return
	}
	if had.blocks > 0 && had.age < c.capacity.Load()/restamp {
		from = markCount(had.blocks)
	}
	now := c.blocks.Add(uint64(markEnd(marks-1) - had.blocks))
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

// restamp is the part of its capacity in which what a backend had need not be noted
// again: the next turn of a chat writes its own blocks only.
const restamp = 32

// seatCount bounds the backends of a pool that the table tells apart; further ones are
// taken to have nothing.
const (
	seatCount = 1 << (32 - stampBits)
	seatBytes = 20 << 10 // of memory, with the table's own fields
)

// seating gives backends their numbers in the table, which are used again when a backend
// has left the pool.
type seating struct {
	caches [seatCount]atomic.Pointer[prefixCache]

	mu    sync.Mutex
	ended [seatCount]uint64 // the time of the seat's last owner, when it left
	last  uint32            // that was given: each is left free for as long as possible
}

// at is who has the seat, nil: nobody.
func (s *seating) at(seat uint32) *prefixCache { return s.caches[seat].Load() }

// give gives c a seat, if one is free. What was noted of its last owner does not count
// for c, whose time begins later, and later than any insertion for the other that may
// still be under way.
func (s *seating) give(c *prefixCache) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range seatCount {
		s.last = (s.last + 1) % seatCount
		if s.last == 0 || s.at(s.last) != nil {
			continue
		}
		c.blocks.Store(s.ended[s.last] + seatGap)
		c.forget()
		s.caches[s.last].Store(c)
		c.seat.Store(s.last)
		return
	}
}

// seatGap is the blocks of the longest prompts that may come at once.
const seatGap = 1 << 16

// leave ends c's seat, if it has one.
func (s *seating) leave(c *prefixCache) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if seat := c.seat.Swap(0); seat != 0 {
		s.ended[seat] = c.blocks.Load()
		s.caches[seat].Store(nil)
	}
}
