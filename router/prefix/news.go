package prefix

import "sync/atomic"

// News is what a cache's owner learns of it from others than the prompts that are sent there: the engine's own events, and
// what its answers say.
type News struct {
	to atomic.Pointer[chan<- Heard] // nil: there are no events

	// Over and Under are tokens that were expected in the cache and not there, and those there and not expected, of Told
	// tokens of prompts.
	Over, Under, Told atomic.Int64

	Batches atomic.Int64 // of events
	Missed  atomic.Int64 // batches that no replay has brought
	Blocks  atomic.Int64 // blocks of the engine's that are known now
	Learned atomic.Int64 // prompts whose blocks were found among the events
}

// Heard is a prompt that an engine has computed.
type Heard struct {
	Keys   []uint64 // of its marks
	Ends   []int32  // blocks before each mark
	Blocks int      // as the prompts are hashed
	Tokens int      // as the engine has counted them
	Cached int      // of these, found in the engine's cache
}

// Listen makes to hear of the prompts that the engine computes, from now on. A prompt that finds no room in it is not
// heard of. Nil ends that. While somebody listens, the time of the cache is moved on by Grow and not by Insert.
func (c *Cache) Listen(to chan<- Heard) {
	if to == nil {
		c.News.to.Store(nil)
		return
	}
	c.News.to.Store(&to)
}

// Live reports whether somebody listens.
func (c *Cache) Live() bool { return c.News.to.Load() != nil }

// Grow notes that the engine has stored that many new blocks.
func (c *Cache) Grow(blocks int) { c.blocks.Add(uint64(max(0, blocks))) }

// Tell notes what an engine has said of a prompt, of which expected tokens were thought to be in its cache. cached is −1
// if it has not said it.
func (c *Cache) Tell(prefix []uint64, expected, tokens, cached int) {
	if tokens <= 0 || cached < 0 {
		return
	}
	c.News.Told.Add(int64(tokens))
	c.News.Over.Add(int64(max(0, expected-cached)))
	c.News.Under.Add(int64(max(0, cached-expected)))
	to := c.News.to.Load()
	marks := markCount(len(prefix))
	if to == nil || marks == 0 {
		return
	}
	h := Heard{Keys: make([]uint64, marks), Ends: make([]int32, marks), Blocks: len(prefix), Tokens: tokens, Cached: cached}
	for n := range marks {
		end := markEnd(n)
		h.Keys[n], h.Ends[n] = prefix[end-1], int32(end)
	}
	select {
	case *to <- h:
	default:
	}
}

// Hold notes that the backend has what the keys stand for. now is the time in nanoseconds.
func (t *Table) Hold(c *Cache, keys []uint64, now int64) {
	if seat := c.seat.Load(); seat != 0 {
		holder := seat<<stampBits | uint32(c.blocks.Load())&stampMask
		for _, key := range keys {
			t.put(key, holder, uint32(now/tickNanos)&tickMask)
		}
	}
}

// Drop notes that the backend no longer has what the keys stand for. It takes no holder out of a line, because another
// might be written there meanwhile. It gives the holder an age that no cache reaches.
func (t *Table) Drop(c *Cache, keys []uint64) {
	seat := c.seat.Load()
	if seat == 0 {
		return
	}
	gone := seat<<stampBits | (uint32(c.blocks.Load())-maxCapacity-1)&stampMask
	for _, key := range keys {
		l := t.find(key)
		if l == nil {
			continue
		}
		for i := range l.holders {
			word := l.holders[i].Load()
			if word == 0 {
				break
			}
			if word>>stampBits == seat {
				l.holders[i].CompareAndSwap(word, gone)
				break
			}
		}
	}
}
