package budget

import "sync"

// FirstBuffer is the size of a fresh buffer, in bytes. It is enough for what one wake-up of a stream
// usually carries.
const FirstBuffer = 4 << 10

// MaxPooled is the largest buffer that is kept, in bytes. So the buffer of one large answer does not live
// on.
const MaxPooled = 64 << 10

// MaxPooledLong is the largest buffer of a long answer that is kept, in bytes: that of a prefill to a prompt of 4 MiB
// has 400 KiB.
const MaxPooledLong = 512 << 10

// Buffers is a pool of the buffers of streams and answers. They are not charged.
type Buffers struct {
	Pool sync.Pool
	long sync.Pool // of more than MaxPooled, so that no short answer holds one; the collector takes what nobody asks for
}

// Lend hands out an empty buffer. The borrower returns it by TakeBack.
func (b *Buffers) Lend() *[]byte {
	p, ok := b.Pool.Get().(*[]byte)
	if !ok {
		p = new([]byte)
		*p = make([]byte, 0, FirstBuffer)
	}
	return p
}

// LendFor is Lend for an answer of n bytes, negative if that is not known. The borrower returns it by TakeBackLong.
func (b *Buffers) LendFor(n int64) *[]byte {
	if n > MaxPooled {
		if p, ok := b.long.Get().(*[]byte); ok {
			return p
		}
	}
	return b.Lend()
}

// TakeBack takes a lent buffer back. buf is what it has grown to. lent is nil if none was lent.
func (b *Buffers) TakeBack(lent *[]byte, buf []byte) {
	if lent != nil && cap(buf) <= MaxPooled {
		*lent = buf[:0]
		b.Pool.Put(lent)
	}
}

// TakeBackLong is TakeBack that keeps long buffers too.
func (b *Buffers) TakeBackLong(lent *[]byte, buf []byte) {
	if lent == nil || cap(buf) <= MaxPooled {
		b.TakeBack(lent, buf)
	} else if cap(buf) <= MaxPooledLong {
		*lent = buf[:0]
		b.long.Put(lent)
	}
}
