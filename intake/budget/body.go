package budget

// firstPiece is the size of a body's first buffer, unless less is announced.
const firstPiece = 16 << 10

// Bodies is the budget of request bodies, with the buffers that they lie in. It is safe for concurrent
// use.
type Bodies struct {
	*Budget
	pool pool
}

// NewBodies makes a budget of limit bytes, of which one client may hold the share, 0 to 1. However
// much is kept for others, there is always room for one body of the largest size, in the buffers that
// it comes in.
func NewBodies(limit, largest int64, share float64) *Bodies {
	b := &Bodies{Budget: New(0, 0)}
	b.Resize(limit, largest, share)
	return b
}

// Resize changes the terms of NewBodies. What is held beyond them stays until it is given back.
func (b *Bodies) Resize(limit, largest int64, share float64) {
	b.pool.resize(limit / idleParts)
	one := largest + pieceSize
	if limit >= largest {
		limit = max(limit, one)
	}
	b.bound(limit, max(limit-limit/reserveParts, one), max(int64(share*float64(limit)), one))
}

// DropIdle leaves all idle buffers to the garbage collector.
func (b *Bodies) DropIdle() {
	b.pool.mu.Lock()
	defer b.pool.mu.Unlock()
	b.pool.clear()
}

// Body is one request body with its charge on the budget. Up to 256 KiB it is in one buffer, which
// doubles as bytes really arrive. A longer body arrives in pieces, so that what is held follows
// what has come. The pieces become one buffer when the body is complete. If an idle buffer has room for
// all that is announced, the body lies there from its first 16 KiB on. The zero value is an empty
// body. Free ends it. One goroutine owns it.
type Body struct {
	b      []byte   // the body, or the last piece of a body that arrives in pieces
	pieces [][]byte // the full pieces before it
	before int64    // bytes in them
	charge Charge   // for the capacity of all these buffers
	early  int64    // bytes of the buffer that was taken for what is announced, until all of it has come
	whole  bool     // read to its end, so what follows on the connection is a new request
}

// Bytes returns the body after it is whole. The bytes are valid until Free.
func (b *Body) Bytes() []byte { return b.b }

// Whole reports that End was called, so the body was read to its end.
func (b *Body) Whole() bool { return b.whole }

// Size returns how many bytes have come.
func (b *Body) Size() int64 { return b.before + int64(len(b.b)) }

// Full reports that there is no room for another byte.
func (b *Body) Full() bool { return len(b.b) == cap(b.b) }

// Room returns where the next bytes go. Came says how many came.
func (b *Body) Room() []byte { return b.b[len(b.b):cap(b.b)] }

// Came adds the first n bytes of Room to the body.
func (b *Body) Came(n int) { b.b = b.b[:len(b.b)+n] }

// Grow makes room for at least one more byte. It charges the new capacity before it takes it. want is
// the announced length, or −1.
func (b *Body) Grow(on *Bodies, of Client, want int64) Refusal {
	full := int64(cap(b.b))
	size := 2 * full
	switch {
	case full == 0 && want >= 0:
		size = bufferSize(min(want, firstPiece))
	case full == 0:
		size = firstPiece
	case b.lieWhole(on, of, want):
		return Granted
	case b.before > 0 || full >= pieceSize:
		return b.addPiece(on, of, want)
	}
	if r := b.charge.Raise(on.Budget, of, size); r != Granted {
		return r
	}
	next := append(on.pool.get(size), b.b...)
	on.pool.put(b.b)
	b.b = next
	return Granted
}

// lieWhole moves a long body into an idle buffer that has room for all of it, if there is one and the
// budget has room. So it need not come in pieces and be copied twice. All that is charged before its
// bytes have come is never more than what may be idle, however many clients announce and do not send.
func (b *Body) lieWhole(on *Bodies, of Client, want int64) bool {
	if b.before > 0 || want <= pieceSize {
		return false
	}
	whole := on.pool.takeEarly(want, want+wholeStep)
	if whole == nil {
		return false
	}
	b.early = int64(cap(whole))
	if b.charge.Raise(on.Budget, of, b.early) != Granted {
		on.pool.put(whole)
		b.came(on)
		return false
	}
	whole = append(whole, b.b...)
	on.pool.put(b.b)
	b.b = whole
	return true
}

// came notes that nothing is held any more for bytes that are only announced.
func (b *Body) came(on *Bodies) {
	on.pool.endEarly(b.early)
	b.early = 0
}

// addPiece keeps the full piece and begins another.
func (b *Body) addPiece(on *Bodies, of Client, want int64) Refusal {
	size := int64(pieceSize)
	if want >= 0 {
		size = bufferSize(want - b.Size())
	}
	if r := b.charge.Raise(on.Budget, of, b.charge.n+size); r != Granted {
		return r
	}
	b.before += int64(len(b.b))
	b.pieces = append(b.pieces, b.b)
	b.b = on.pool.get(size)
	return Granted
}

// End marks the body as whole and makes one buffer of its pieces. For that moment the body is held
// twice and charged once, because a budget with room for a body need not have room for two. Only one
// body at a time is held twice.
func (b *Body) End(on *Bodies) {
	b.whole = true
	b.came(on)
	if b.before == 0 {
		return
	}
	on.pool.joining.Lock()
	b.pieces = append(b.pieces, b.b)
	size := b.before + int64(len(b.b))
	whole := on.pool.idleWhole(size, b.charge.n)
	if whole == nil {
		whole = make([]byte, 0, min((size+wholeStep-1)/wholeStep*wholeStep, b.charge.n))
	}
	for _, p := range b.pieces {
		whole = append(whole, p...)
	}
	b.b = whole
	b.dropPieces(on)
	on.pool.joining.Unlock()
	b.charge.Lower(int64(cap(b.b)))
}

func (b *Body) dropPieces(on *Bodies) {
	for _, p := range b.pieces {
		on.pool.put(p)
	}
	clear(b.pieces)
	b.pieces, b.before = b.pieces[:0], 0
}

// Free gives buffers and charge back. Nothing may point into the body any more.
func (b *Body) Free(on *Bodies) {
	b.came(on)
	b.dropPieces(on)
	on.pool.put(b.b)
	b.charge.Lower(0)
	*b = Body{pieces: b.pieces}
}
