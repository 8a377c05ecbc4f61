package routing

import "container/list"

// blockCache is an engine's prefix cache as the oracle keeps it: KV blocks by hash. The least
// recently used goes first, and of one request the last block.
type blockCache struct {
	limit int
	order *list.List // of hashes, the next to go at the back
	at    map[uint64]*list.Element
}

func newBlockCache(limit int) *blockCache {
	return &blockCache{limit: limit, order: list.New(), at: map[uint64]*list.Element{}}
}

// hit returns how many of the prompt's tokens need not be computed. At least one always must be.
func (c *blockCache) hit(q *request) int {
	n := 0
	for n < len(q.blocks) && c.at[q.blocks[n]] != nil {
		n++
	}
	return min(n, (q.tokens-1)/blockTokens) * blockTokens
}

// put computes a prompt. Its blocks are then the most recently used.
func (c *blockCache) put(q *request) {
	for i := len(q.blocks) - 1; i >= 0; i-- {
		h := q.blocks[i]
		if e := c.at[h]; e != nil {
			c.order.MoveToFront(e)
			continue
		}
		c.at[h] = c.order.PushFront(h)
	}
	for c.order.Len() > c.limit {
		last := c.order.Back()
		h, ok := last.Value.(uint64)
		if !ok {
			panic("BUG: something other than a hash in the order of blocks")
		}
		delete(c.at, h)
		c.order.Remove(last)
	}
}
