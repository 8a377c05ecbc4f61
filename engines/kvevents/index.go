package kvevents

import (
	"encoding/binary"
	"math"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"

	"xpyd/router/prefix"
)

// index is the blocks that one engine has, as its events say. It belongs to one goroutine.
type index struct {
	to     caches
	names  *names
	most   *atomic.Int64 // blocks that it may know
	blocks map[uint64]block
	size   int // tokens of a block
	grown  int // tokens that Grown has not been told of

	ends  [256]end // of the chains that were stored last, a ring
	next  int
	heard []heard // prompts whose chain is looked for, the oldest first

	keys, chain []uint64 // room
	raw         []byte
}

// block is known by the engine's hash.
type block struct {
	key    uint64 // the same for all engines: of its tokens and all before them
	parent uint64 // the engine's hash of the block before; 0: none
	depth  int32  // blocks up to its end
	// copies is how often the engine has it in the memory of the GPU: prompts that are computed at the same time have a
	// copy each, and vLLM tells of each of them that it is stored, and that it is removed.
	copies    uint8
	elsewhere bool // the engine has it in another memory
}

// blockBytes is the memory of a block in the map of an index.
const blockBytes = 64

// end is the last block of a chain that was stored by a prompt, or by a part of it.
type end struct {
	hash  uint64 // the engine's; 0: none, or a prompt has it
	from  int32  // blocks before those that were stored
	first int32  // the same of the first part, if the prompt is computed in parts
	depth int32
	at    time.Time
}

// heard is a prompt that the engine has computed.
type heard struct {
	prefix.Heard
	due time.Time // when its events have come, settles after its answer
}

const (
	// settles is the time in which the events of a prompt come that an engine has answered, and those of others that are
	// as long.
	settles = 200 * time.Millisecond
	// belongs is how long before the answer the end of its prompt's chain may come. Both come from the last step of the
	// prompt.
	belongs = 500 * time.Millisecond
	// grows is how long a chain may stand still between two parts of its prompt.
	grows     = 20 * time.Second
	maxHeard  = 128
	grownStep = 1024 // tokens
)

func newIndex(to caches, names *names, most *atomic.Int64) *index {
	return &index{to: to, names: names, most: most, blocks: map[uint64]block{}}
}

// take takes in an event.
func (x *index) take(e *event, now time.Time) {
	switch {
	case e.change == cleared:
		x.clear()
		x.to.Cleared()
	case e.group != 0: // layers of another kind have blocks of their own, for the same tokens
	case e.change == stored:
		x.stored(e, now)
	case e.change == removed:
		x.removed(e)
	}
	x.tellSize()
}

// tellSize tells how many blocks the index has.
func (x *index) tellSize() {
	x.to.count(func(n *prefix.News) { n.Blocks.Store(int64(len(x.blocks))) })
}

// clear forgets all blocks, because the engine has none, or because it cannot be known which.
func (x *index) clear() {
	clear(x.blocks)
	x.ends, x.heard = [256]end{}, x.heard[:0]
	x.tellSize()
}

func (x *index) stored(e *event, now time.Time) {
	if e.size < 1 || len(e.tokens) != e.size*len(e.hashes) || len(e.hashes) == 0 {
		return
	}
	x.size = e.size
	if x.grown += len(e.tokens); x.grown >= grownStep {
		x.to.Grown(x.grown)
		x.grown = 0
	}
	at, known := block{}, true
	if e.parent != 0 {
		at, known = x.blocks[e.parent]
	}
	if !known {
		return // it was stored before this process listened, or is among the missed
	}
	from, parent := at.depth, e.parent
	x.keys = x.keys[:0]
	for i, hash := range e.hashes {
		b, again := x.blocks[hash]
		if !again && int64(len(x.blocks)) >= x.most.Load() {
			break
		}
		b.key = x.keyOf(at.key, e, i)
		b.parent, b.depth = parent, at.depth+1
		switch {
		case !e.gpu:
			b.elsewhere = true
		case b.copies < math.MaxUint8:
			b.copies++
		}
		x.blocks[hash] = b
		if again && from == at.depth {
			from++ // it was there before, and a prompt finds it
		}
		x.keys = x.names.appendTo(x.keys, b.key)
		at, parent = b, hash
	}
	x.to.Stored(x.keys)
	if at.depth > from {
		x.noteEnd(end{hash: parent, from: from, depth: at.depth, at: now}, e.parent)
	}
}

// keyOf is the key of the i-th block of e, which follows the one of key parent.
func (x *index) keyOf(parent uint64, e *event, i int) uint64 {
	x.raw = binary.LittleEndian.AppendUint64(x.raw[:0], parent)
	x.raw = binary.LittleEndian.AppendUint64(x.raw, e.lora)
	extra := uint64(0)
	if i < len(e.extra) {
		extra = e.extra[i]
	}
	x.raw = binary.LittleEndian.AppendUint64(x.raw, extra)
	for _, id := range e.tokens[i*e.size : (i+1)*e.size] {
		x.raw = binary.LittleEndian.AppendUint32(x.raw, id)
	}
	return max(1, xxhash.Sum64(x.raw))
}

// noteEnd adds the end of a chain. What follows another one may be a further part of its prompt, or the next turn of its
// chat.
func (x *index) noteEnd(e end, parent uint64) {
	e.first = e.from
	for i := range x.ends {
		if o := &x.ends[i]; parent != 0 && o.hash == parent && e.at.Sub(o.at) < grows {
			e.first = o.first
			break
		}
	}
	x.ends[x.next] = e
	x.next = (x.next + 1) % len(x.ends)
}

func (x *index) removed(e *event) {
	x.keys = x.keys[:0]
	for _, hash := range e.hashes {
		b, ok := x.blocks[hash]
		if !ok {
			continue
		}
		if e.gpu {
			b.copies = max(b.copies, 1) - 1
		} else {
			b.elsewhere = false
		}
		if b.copies > 0 || b.elsewhere {
			x.blocks[hash] = b
			continue
		}
		delete(x.blocks, hash)
		x.keys = x.names.appendTo(x.keys, b.key)
	}
	x.to.Removed(x.keys)
}

// forget forgets the prompts whose chain is looked for.
func (x *index) forget() { x.heard = x.heard[:0] }

// hear takes in a prompt that the engine has computed.
func (x *index) hear(h prefix.Heard, now time.Time) {
	if len(x.heard) == maxHeard {
		x.heard = append(x.heard[:0], x.heard[1:]...)
	}
	x.heard = append(x.heard, heard{h, now.Add(settles)})
}

// settle finds the chains of the prompts whose events have come, and returns how many prompts it still waits for.
func (x *index) settle(now time.Time) int {
	n := 0
	for ; n < len(x.heard) && !now.Before(x.heard[n].due); n++ {
		if e := x.chainOf(&x.heard[n]); e != nil {
			x.learn(&x.heard[n].Heard, e.hash)
			e.hash = 0
			x.to.count(func(n *prefix.News) { n.Learned.Add(1) })
		}
	}
	x.heard = append(x.heard[:0], x.heard[n:]...)
	return len(x.heard)
}

// chainOf returns the only chain that may be that of a prompt. It has as many blocks as the prompt fills, and came when the
// answer did. Of several, it is the one that began where the engine's cache ended. Two that still do not differ may be of
// other clients, and nothing is learned from them.
func (x *index) chainOf(h *heard) (found *end) {
	if x.size == 0 {
		return nil
	}
	depth, from, since := int32(h.Tokens/x.size), int32(h.Cached/x.size), h.due.Add(-settles-belongs)
	for _, exact := range [...]bool{false, true} {
		n := 0
		for i := range x.ends {
			e := &x.ends[i]
			if e.hash != 0 && e.depth == depth && !e.at.Before(since) && (!exact || e.from == from || e.first == from) {
				found = e
				n++
			}
		}
		if n == 1 {
			return found
		}
	}
	return nil
}

// learn gives the blocks of a chain the marks of its prompt. A mark belongs to the block in which its last token should
// be, if all bytes of the prompt have as many tokens.
func (x *index) learn(h *prefix.Heard, last uint64) {
	x.chain = x.chain[:0]
	for hash := last; hash != 0 && len(x.chain) <= h.Tokens; {
		b, ok := x.blocks[hash]
		if !ok {
			return // removed meanwhile
		}
		x.chain = append(x.chain, b.key)
		hash = b.parent
	}
	for n, key := range h.Keys {
		// A prompt has half a block more than its whole ones, on average.
		before := 2 * int(h.Ends[n]) * h.Tokens / ((2*h.Blocks + 1) * x.size)
		if at := len(x.chain) - 1 - before; at >= 0 {
			x.names.add(x.chain[at], key)
		}
	}
}
