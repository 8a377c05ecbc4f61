package kvevents

import (
	"slices"
	"sync"
	"sync/atomic"
)

// names knows which marks of prompts belong to which blocks. All engines share it, because the key of a block covers its
// tokens and all before them, whatever hashes an engine uses.
type names struct {
	shards [64]struct {
		mu sync.Mutex
		of map[uint64][]uint64 // by the key of a block
	}
	most atomic.Int64 // blocks in a shard
}

const (
	nameBytes = 96 // of memory for a block that has a mark or two
	maxMarks  = 16 // of a block
)

// resize sets how many bytes all may take.
func (n *names) resize(memory int64) { n.most.Store(memory / nameBytes / int64(len(n.shards))) }

// appendTo appends the marks of a block.
func (n *names) appendTo(dst []uint64, block uint64) []uint64 {
	s := &n.shards[block%uint64(len(n.shards))]
	s.mu.Lock()
	defer s.mu.Unlock()
	return append(dst, s.of[block]...)
}

// add notes that a mark belongs to a block. To make room it forgets any other block.
func (n *names) add(block, mark uint64) {
	s := &n.shards[block%uint64(len(n.shards))]
	s.mu.Lock()
	defer s.mu.Unlock()
	had := s.of[block]
	if slices.Contains(had, mark) || len(had) >= maxMarks {
		return
	}
	for other := range s.of {
		if had != nil || int64(len(s.of)) < n.most.Load() {
			break
		}
		delete(s.of, other)
	}
	if s.of == nil {
		s.of = map[uint64][]uint64{}
	}
	s.of[block] = append(had, mark)
}
