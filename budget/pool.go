package budget

import (
	"math/bits"
	"sync"
)

const (
	leastBuffer = 4 << 10   // the smallest buffer of a request body
	pieceSize   = 256 << 10 // the largest buffer, and the pieces of a longer body while it arrives
)

// bufferSizes are the classes of buffers: leastBuffer, its doubles, and pieceSize.
const bufferSizes = 7

// idleParts says how much idle buffers may hold on top of the budget: one part in idleParts of it.
const idleParts = 16

// pool keeps idle buffers of request bodies, sorted by size, so that none is larger than what is
// charged for it. A sync.Pool would keep whatever the last rush of requests held, and no budget would
// see it. It is safe for concurrent use.
type pool struct {
	mu    sync.Mutex
	limit int64 // of the idle bytes
	idle  int64
	free  [bufferSizes][][]byte

	joining sync.Mutex // held while a body is held twice, see Body.End
}

// resize changes how much idle buffers may hold. If they hold more, all of them go.
func (p *pool) resize(limit int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.limit = limit; p.idle > limit {
		p.idle, p.free = 0, [bufferSizes][][]byte{}
	}
}

// bufferSize returns the size of the first buffer for n bytes. It is at most pieceSize.
func bufferSize(n int64) int64 {
	return 1 << bits.Len64(uint64(min(max(n, leastBuffer), pieceSize)-1))
}

func sizeClass(size int) int { return bits.Len(uint(size-1)) - bits.Len(uint(leastBuffer-1)) }

// get returns an empty buffer of the size, which bufferSize gave.
func (p *pool) get(size int64) []byte {
	p.mu.Lock()
	free := &p.free[sizeClass(int(size))]
	if n := len(*free); n > 0 {
		b := (*free)[n-1]
		(*free)[n-1] = nil
		*free = (*free)[:n-1]
		p.idle -= size
		p.mu.Unlock()
		return b
	}
	p.mu.Unlock()
	return make([]byte, 0, size)
}

// put takes a buffer back that nothing points into any more. It leaves a buffer that no get returned,
// or one too many, to the garbage collector.
func (p *pool) put(b []byte) {
	size := int64(cap(b))
	if size == 0 || size > pieceSize || size != bufferSize(size) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.idle+size > p.limit {
		return
	}
	p.idle += size
	free := &p.free[sizeClass(cap(b))]
	*free = append(*free, b[:0])
}
