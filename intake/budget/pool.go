package budget

import (
	"math/bits"
	"slices"
	"sync"
)

const (
	leastBuffer = 4 << 10   // the smallest buffer of a request body
	pieceSize   = 256 << 10 // the largest buffer of a class, and the pieces of a longer body while it arrives
	wholeStep   = 64 << 10  // the buffers of longer bodies are a multiple of it, so that one serves bodies of about its size
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
	early int64    // bytes of buffers that were taken for what is only announced; at most limit
	whole [][]byte // idle buffers of bodies that came in pieces, the one that was used last at the end

	joining sync.Mutex // held while a body is held twice, see Body.End
}

// resize changes how much idle buffers may hold. If they hold more, all of them go.
func (p *pool) resize(limit int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.limit = limit; p.idle > limit {
		p.clear()
	}
}

// clear leaves all idle buffers to the garbage collector. p.mu is held.
func (p *pool) clear() { p.idle, p.free, p.whole = 0, [bufferSizes][][]byte{}, nil }

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

// idleWhole returns an empty buffer of a long body, of at least size bytes and at most `most`, or nil if
// none is idle.
func (p *pool) idleWhole(size, most int64) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.findWhole(size, most)
}

// takeEarly is idleWhole for a body of which most is only announced. endEarly takes the capacity back.
func (p *pool) takeEarly(size, most int64) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.early+most > p.limit {
		return nil
	}
	b := p.findWhole(size, most)
	p.early += int64(cap(b))
	return b
}

func (p *pool) endEarly(n int64) {
	if n == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.early -= n
}

// findWhole is idleWhole. p.mu is held.
func (p *pool) findWhole(size, most int64) []byte {
	for i := len(p.whole) - 1; i >= 0; i-- {
		if b := p.whole[i]; int64(cap(b)) >= size && int64(cap(b)) <= most {
			p.whole = slices.Delete(p.whole, i, i+1)
			p.idle -= int64(cap(b))
			return b
		}
	}
	return nil
}

// put takes a buffer back that nothing points into any more. One too many is left to the garbage
// collector.
func (p *pool) put(b []byte) {
	size := int64(cap(b))
	if size == 0 || size <= pieceSize && size != bufferSize(size) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.makeRoom(size) {
		return
	}
	p.idle += size
	if size > pieceSize {
		p.whole = append(p.whole, b[:0])
		return
	}
	free := &p.free[sizeClass(cap(b))]
	*free = append(*free, b[:0])
}

// makeRoom drops whole buffers until size more bytes may be idle, first the one that was used longest
// ago: the next bodies most likely have the sizes of the last ones. p.mu is held.
func (p *pool) makeRoom(size int64) bool {
	dropped := int64(0)
	for _, b := range p.whole {
		dropped += int64(cap(b))
	}
	if p.idle-dropped+size > p.limit {
		return false // nor without any of them
	}
	old := 0
	for ; old < len(p.whole) && p.idle+size > p.limit; old++ {
		p.idle -= int64(cap(p.whole[old]))
	}
	p.whole = slices.Delete(p.whole, 0, old)
	return true
}
