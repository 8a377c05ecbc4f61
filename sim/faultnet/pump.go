package faultnet

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"time"
)

// pump passes the bytes of one direction.
type pump struct {
	l        *link
	src, dst *net.TCPConn
	ops      []Op
	down     bool
	ended    chan struct{}   // closed when this direction has ended
	other    <-chan struct{} // the same for the other direction

	placed []Op  // ops to come, by offset
	passed int64 // bytes
	slice  Op
	rate   Op
	delay  Op
}

func (p *pump) run() {
	defer close(p.ended)
	p.placed = placed(p.ops)
	p.slice, p.rate, p.delay = find(p.ops, Slice), find(p.ops, Rate), find(p.ops, Delay)
	buf := make([]byte, 32<<10)
	for p.mayMove() {
		n, err := p.src.Read(buf)
		if n > 0 && p.mayMove() && !p.pass(buf[:n]) {
			return
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			_ = p.dst.CloseWrite() // fails if it has ended already
			return
		default:
			p.l.reset()
			return
		}
	}
}

// mayMove waits while the relay is frozen or the link is a black hole. It returns false if the link
// is over.
func (p *pump) mayMove() bool { return p.l.r.gate.wait(p.l.over) && p.l.gate.wait(p.l.over) }

// pass writes b as the script says. It returns false if this direction has ended.
func (p *pump) pass(b []byte) bool {
	if p.passed == 0 {
		p.begin()
	}
	if p.delay.D > 0 && !pause(p.l.over, p.delay.D) {
		return false
	}
	for len(b) > 0 && !p.l.closed.Load() {
		if !p.fire(b) {
			return false
		}
		if p.l.closed.Load() {
			break
		}
		n := p.piece(len(b))
		if !p.write(b[:n]) || !p.rest(n) {
			return false
		}
		b = b[n:]
	}
	return p.fire(nil)
}

func (p *pump) write(b []byte) bool {
	if !p.mayMove() {
		return false
	}
	p.passed += int64(len(b))
	hole := len(p.placed) > 0 && p.placed[0].Kind == Blackhole && p.placed[0].N == p.passed
	if hole { // shut and logged before the reader of these bytes can answer
		p.l.gate.shut()
		p.log(p.placed[0], 0)
	}
	if _, err := p.dst.Write(b); err != nil && !p.l.closed.Load() {
		p.l.reset()
		return false
	}
	return !hole || p.mayMove()
}

// begin logs the ops that have no place.
func (p *pump) begin() {
	for _, op := range []Op{p.delay, p.slice, p.rate} {
		if op.Kind != "" {
			p.log(op, 0)
		}
	}
}

// piece is how many of n bytes go out in the next write.
func (p *pump) piece(n int) int {
	if len(p.placed) > 0 {
		n = int(min(int64(n), max(p.placed[0].N-p.passed, 1)))
	}
	if p.slice.N > 0 {
		n = int(min(int64(n), p.slice.N))
	}
	if p.rate.N > 0 { // in 50 writes a second
		n = int(min(int64(n), max(p.rate.N/50, 1)))
	}
	return n
}

// rest pauses after n bytes, as slice and rate require.
func (p *pump) rest(n int) bool {
	d := p.slice.D
	if p.rate.N > 0 {
		d = max(d, time.Duration(n)*time.Second/time.Duration(p.rate.N))
	}
	return d == 0 || pause(p.l.over, d)
}

// fire plays the ops that are due before b. It returns false if this direction has ended.
func (p *pump) fire(b []byte) bool {
	for len(p.placed) > 0 && p.placed[0].N <= p.passed && !p.l.closed.Load() {
		op := p.placed[0]
		if len(b) == 0 && (op.Kind == Corrupt || p.passed == 0) {
			return true // its byte is still to come
		}
		p.placed = p.placed[1:]
		bit := p.bit(op)
		p.log(op, bit)
		switch op.Kind {
		case Corrupt:
			b[0] ^= bit
		case RST:
			p.l.reset()
			return false
		case FIN:
			p.l.closed.Store(true)
			_ = p.dst.CloseWrite() // either fails only on a side that has ended
			_ = p.src.CloseWrite()
		case Stall:
			return p.stall()
		case Blackhole:
			p.l.gate.shut()
			return p.mayMove()
		}
	}
	return true
}

// stall reads nothing until the other direction has ended. After that these bytes have no reader,
// and they are dropped, so that the end of src is seen.
func (p *pump) stall() bool {
	select {
	case <-p.l.over.Done():
		return false
	case <-p.other:
	}
	_, _ = io.Copy(io.Discard, p.src) // its error is its end
	_ = p.dst.CloseWrite()
	return false
}

// bit is the bit that a corrupt flips, the same for the same seed, connection and op.
func (p *pump) bit(op Op) byte {
	if op.Kind != Corrupt {
		return 0
	}
	return 1 << rand.New(rand.NewPCG(p.l.r.o.Seed, uint64(p.l.id)<<32^uint64(op.N))).IntN(8)
}

func (p *pump) log(op Op, flip byte) {
	p.l.r.log(Injection{Conn: p.l.id, At: p.passed, Down: p.down, Op: op.String(), Flip: flip})
}
