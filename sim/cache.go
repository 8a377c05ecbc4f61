package sim

import "slices"

// kvCache is an engine's paged KV cache: what each block holds, who holds the block, and under
// which key it is found. A block without a holder stays cached until a new block is needed and it
// is the least recently used of the free ones. The lock of the ledger guards it.
type kvCache struct {
	refs    []int32 // by block id: running requests and pins that hold it
	pins    []int32 // the pins among them
	content []uint64
	key     []uint64 // 0 if no lookup finds it
	byKey   map[uint64]int
	free    int // blocks without a holder

	listed bool     // gone is kept
	gone   []uint64 // keys that are no longer found, until they are published

	// The free blocks stand in the order in which they are taken. They form a ring through block 0,
	// which is the null block, as in vLLM, and is never used.
	next, prev []int32
}

func newKVCache(blocks int) *kvCache {
	n := blocks + 1
	c := &kvCache{
		refs: make([]int32, n), pins: make([]int32, n), content: make([]uint64, n), key: make([]uint64, n),
		byKey: map[uint64]int{}, next: make([]int32, n), prev: make([]int32, n),
	}
	for id := 1; id < n; id++ {
		c.append(id)
	}
	return c
}

func (c *kvCache) total() int { return len(c.refs) - 1 }

// lookup returns the blocks of the longest cached prefix of keys.
func (c *kvCache) lookup(keys []uint64) []int {
	var found []int
	for _, key := range keys {
		id, ok := c.byKey[key]
		if !ok {
			break
		}
		found = append(found, id)
	}
	return found
}

// unheld counts the blocks of ids that holding them takes from the free ones.
func (c *kvCache) unheld(ids []int) int {
	n := 0
	for _, id := range ids {
		if c.refs[id] == 0 {
			n++
		}
	}
	return n
}

// take hands out the least recently used free block, which is no longer cached.
func (c *kvCache) take() int {
	id := int(c.next[0])
	if id == 0 {
		panic("BUG: no free KV block")
	}
	c.forget(id)
	c.content[id] = 0
	c.hold(id)
	return id
}

func (c *kvCache) hold(id int) {
	if c.refs[id] == 0 {
		c.next[c.prev[id]], c.prev[c.next[id]] = c.next[id], c.prev[id]
		c.free--
	}
	c.refs[id]++
}

// release ends one hold of each of ids, the last first: the end of a prompt is evicted before its
// beginning, which more prompts share.
func (c *kvCache) release(ids []int) {
	for _, id := range slices.Backward(ids) {
		c.refs[id]--
		switch {
		case c.refs[id] < 0:
			panic("BUG: KV block released twice")
		case c.refs[id] == 0:
			c.append(id)
		}
	}
}

// append puts id at the end of the free blocks.
func (c *kvCache) append(id int) {
	last := c.prev[0]
	c.next[last], c.prev[id], c.next[id], c.prev[0] = int32(id), last, 0, int32(id)
	c.free++
}

// file stores id under key. An older block of the same key is no longer found.
func (c *kvCache) file(id int, key uint64) {
	if older, ok := c.byKey[key]; ok {
		c.forget(older)
	}
	c.byKey[key], c.key[id] = id, key
}

// evict takes the n free blocks out of the keys that were not used for longest.
func (c *kvCache) evict(n int) {
	for id := int(c.next[0]); id != 0 && n > 0; id = int(c.next[id]) {
		if c.key[id] != 0 {
			c.forget(id)
			n--
		}
	}
}

// forget removes id from the keys.
func (c *kvCache) forget(id int) {
	if c.key[id] != 0 {
		delete(c.byKey, c.key[id])
		if c.listed {
			c.gone = append(c.gone, c.key[id])
		}
		c.key[id] = 0
	}
}
