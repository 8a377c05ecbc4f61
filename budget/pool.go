package budget

import (
	"math/bits"
	"sync"
)

const (
	leastBuffer = 4 << 10   // the smallest buffer of a request body
	pieceSize   = 256 << 10 // the largest; what a longer body is made of while it arrives
)

// bufferSizes are the classes of buffers: leastBuffer, its doubles, and pieceSize.
const bufferSizes = 7

// idleParts: idle buffers may hold one part in so many of the budget, on top of it.
const idleParts = 16

// pool keeps idle buffers of request bodies, each with those of its size, so that
// none is larger than what is charged for it. A sync.Pool would keep whatever the last
// crowd held, which no budget sees. Safe for concurrent use.
type pool struct {
	limit int64 // of the idle bytes

	mu   sync.Mutex
	idle int64
	free [bufferSizes][][]byte

	joining sync.Mutex // held by who holds a body twice, see Body.End
}

// bufferSize is the size of the buffer that n bytes are put in, of the first ones if they are
// more than a piece.
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

// put takes a buffer back that nothing aliases any more. One that no get returned, or one
// too many, is left to the garbage collector.
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
