package kvevents

import (
	"encoding/binary"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"

	"xpyd/router/prefix"
)

// cache is where the news of one engine go.
type cache interface {
	Stored(keys []uint64)
	Removed(keys []uint64)
	Grown(tokens int)
	Cleared()
	Counts() *prefix.News
}

// index is the blocks that one engine has, as its events say. It belongs to one goroutine.
type index struct {
	to     cache
	names  *names
	most   *atomic.Int64 // blocks that it may know
	blocks map[uint64]block
	size   int // tokens of a block
	grown  int // tokens that Grown has not been told of

	ends  [256]end // of the chains that were stored last, a ring
	next  int
	heard []heard // prompts whose chain is looked for, the oldest first

	keys, scratch []uint64
	raw           []byte
}

// block is known by the engine's hash.
type block struct {
	key    uint64 // the same for all engines: of its tokens and all before them
	parent uint64 // the engine's hash of the block before; 0: none
	depth  int32  // blocks up to its end
	media  uint8  // where the engine has it
}

const (
	blockBytes = 64 // of memory, in the map of an index

	mediumGPU  = 1
	mediumElse = 2
)

// end is the last block of a chain that was stored by one prompt, as far as it has come.
type end struct {
	hash  uint64 // the engine's; 0: none, or a prompt has it
	from  int32  // blocks before those that were stored
	depth int32
	at    time.Time
}

// heard is a prompt that the engine has computed.
type heard struct {
	prefix.Heard
	due time.Time // when its events have come
}

const (
	// settles is the time in which the events of a prompt come that an engine has answered, and those of others that are
	// as long.
	settles = 200 * time.Millisecond
	// belongs is how old a chain may be that is still taken for that of a prompt.
	belongs   = 20 * time.Second
	maxHeard  = 128
	grownStep = 1024 // tokens
)

func newIndex(to cache, names *names, most *atomic.Int64) *index {
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
	x.to.Counts().Blocks.Store(int64(len(x.blocks)))
}

// clear forgets all blocks, because the engine has none, or because it cannot be known which.
func (x *index) clear() {
	clear(x.blocks)
	x.ends, x.heard = [256]end{}, x.heard[:0]
	x.to.Counts().Blocks.Store(0)
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
		b.media |= medium(e)
		x.blocks[hash] = b
		x.keys = x.names.appendTo(x.keys, b.key)
		at, parent = b, hash
	}
	x.to.Stored(x.keys)
	if at.depth > from {
		x.noteEnd(end{hash: parent, from: from, depth: at.depth, at: now}, e.parent)
	}
}

func medium(e *event) uint8 {
	if e.gpu {
		return mediumGPU
	}
	return mediumElse
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

// noteEnd adds the end of a chain. A prompt that is computed in parts has one end, which moves on.
func (x *index) noteEnd(e end, parent uint64) {
	for i := range x.ends {
		if o := &x.ends[i]; parent != 0 && o.hash == parent && e.at.Sub(o.at) < belongs {
			o.hash, o.depth, o.at = e.hash, e.depth, e.at
			return
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
		if b.media &^= medium(e); b.media != 0 {
			x.blocks[hash] = b
			continue
		}
		delete(x.blocks, hash)
		x.keys = x.names.appendTo(x.keys, b.key)
	}
	x.to.Removed(x.keys)
}

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
		if e := x.chainOf(&x.heard[n].Heard, now); e != nil {
			x.learn(&x.heard[n].Heard, e.hash)
			e.hash = 0
			x.to.Counts().Learned.Add(1)
		}
	}
	x.heard = append(x.heard[:0], x.heard[n:]...)
	return len(x.heard)
}

// chainOf returns the only chain that may be that of a prompt. It has as many blocks as the prompt fills. Of several, it is
// the one that began where the engine's cache ended. Two that still do not differ may be of other clients, and nothing is
// learned from them.
func (x *index) chainOf(h *prefix.Heard, now time.Time) (found *end) {
	if x.size == 0 {
		return nil
	}
	depth, from := int32(h.Tokens/x.size), int32(h.Cached/x.size)
	for _, exact := range [...]bool{false, true} {
		n := 0
		for i := range x.ends {
			e := &x.ends[i]
			if e.hash != 0 && e.depth == depth && now.Sub(e.at) < belongs && (!exact || e.from == from) {
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
	x.scratch = x.scratch[:0]
	for hash := last; hash != 0 && len(x.scratch) <= h.Tokens; {
		b, ok := x.blocks[hash]
		if !ok {
			return // removed meanwhile
		}
		x.scratch = append(x.scratch, b.key)
		hash = b.parent
	}
	for n, key := range h.Keys {
		// A prompt has half a block more than its whole ones, on average.
		before := 2 * int(h.Ends[n]) * h.Tokens / ((2*h.Blocks + 1) * x.size)
		if at := len(x.scratch) - 1 - before; at >= 0 {
			x.names.add(x.scratch[at], key)
		}
	}
}
