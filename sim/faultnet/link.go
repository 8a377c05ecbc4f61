package faultnet

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// link is one connection through the relay: the client's and the one to the target.
type link struct {
	r      *Relay
	id     int
	script Script
	gate   gate // shut by a black hole, for good
	over   context.Context
	end    context.CancelFunc // the link is closed, or to be
	closed atomic.Bool        // both FINs are out by fin@N; what still comes is dropped

	mu     sync.Mutex
	client *net.TCPConn
	target *net.TCPConn // nil until dialled
	ended  bool         // both are closed
}

func newLink(r *Relay, id int, client *net.TCPConn, s Script) *link {
	l := &link{r: r, id: id, client: client, script: s}
	l.over, l.end = context.WithCancel(r.life)
	return l
}

// run relays until both directions have ended or the link was reset.
func (l *link) run(target string) {
	defer l.close(false)
	if op, ok := l.script.whole(); ok {
		l.r.log(Injection{Conn: l.id, Op: op.String()})
		if op.Kind == Refuse {
			l.reset()
		}
		<-l.over.Done()
		return
	}
	if !l.r.gate.wait(l.over) || !l.dial(target) {
		l.reset()
		return
	}
	up := &pump{l: l, src: l.client, dst: l.target, ops: l.script.Up, ended: make(chan struct{})}
	down := &pump{l: l, src: l.target, dst: l.client, ops: l.script.Down, ended: make(chan struct{}), down: true}
	up.other, down.other = down.ended, up.ended
	var both sync.WaitGroup
	both.Go(up.run)
	both.Go(down.run)
	both.Wait()
}

func (l *link) dial(target string) bool {
	var d net.Dialer
	nc, err := d.DialContext(l.over, "tcp", target)
	if err != nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.target = nc.(*net.TCPConn)
	if l.ended {
		_ = nc.Close() // the link was reset meanwhile
	}
	return !l.ended
}

// reset closes both sides with RST.
func (l *link) reset() { l.close(true) }

func (l *link) close(rst bool) {
	l.end()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return
	}
	l.ended = true
	for _, nc := range []*net.TCPConn{l.client, l.target} {
		if nc == nil {
			continue
		}
		if rst {
			_ = nc.SetLinger(0) // fails on a connection that has ended already
		}
		_ = nc.Close()
	}
}

// pump passes the bytes of one direction.
type pump struct {
	l        *link
	src, dst *net.TCPConn
	ops      []Op
	down     bool
	ended    chan struct{}   // closed when this direction has ended
	other    <-chan struct{} // likewise of the other direction

	placed []Op  // those to come, by offset
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
			_ = p.dst.CloseWrite() // fails when it has ended already
			return
		default:
			p.l.reset()
			return
		}
	}
}

// mayMove waits while the relay is frozen or the link a black hole; false means that
// the link is over.
func (p *pump) mayMove() bool { return p.l.r.gate.wait(p.l.over) && p.l.gate.wait(p.l.over) }

// pass writes b on as the script says; false means that this direction has ended.
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
		if !p.mayMove() {
			return false
		}
		if _, err := p.dst.Write(b[:n]); err != nil && !p.l.closed.Load() {
			p.l.reset()
			return false
		}
		p.passed += int64(n)
		b = b[n:]
		if !p.rest(n) {
			return false
		}
	}
	return p.fire(nil)
}

// begin logs the ops that have no place.
func (p *pump) begin() {
	for _, op := range []Op{p.delay, p.slice, p.rate} {
		if op.Kind != "" {
			p.log(op)
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
	if p.rate.N > 0 { // 50 writes a second
		n = int(min(int64(n), max(p.rate.N/50, 1)))
	}
	return n
}

// rest pauses after n bytes, as slice and rate say.
func (p *pump) rest(n int) bool {
	d := p.slice.D
	if p.rate.N > 0 {
		d = max(d, time.Duration(n)*time.Second/time.Duration(p.rate.N))
	}
	return d == 0 || pause(p.l.over, d)
}

// fire plays the ops that are due before b; false means that this direction has
// ended.
func (p *pump) fire(b []byte) bool {
	for len(p.placed) > 0 && p.placed[0].N <= p.passed && !p.l.closed.Load() {
		op := p.placed[0]
		if len(b) == 0 && (op.Kind == Corrupt || p.passed == 0) {
			return true // its byte is still to come
		}
		p.placed = p.placed[1:]
		p.log(op)
		switch op.Kind {
		case Corrupt:
			b[0] ^= p.bit(op)
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

// stall reads nothing until the other direction has ended. After that nobody waits
// for these bytes, and they are dropped, so that the end of src is seen.
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

// bit is the bit that op flips, the same for the same seed, connection and op.
func (p *pump) bit(op Op) byte {
	return 1 << rand.New(rand.NewPCG(p.l.r.o.Seed, uint64(p.l.id)<<32^uint64(op.N))).IntN(8)
}

func (p *pump) log(op Op) {
	p.l.r.log(Injection{Conn: p.l.id, At: p.passed, Down: p.down, Op: op.String()})
}

// gate holds back all who wait while it is shut.
type gate struct {
	mu   sync.Mutex
	held chan struct{} // nil while open; closed when it opens again
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.held == nil {
		g.held = make(chan struct{})
	}
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.held != nil {
		close(g.held)
		g.held = nil
	}
}

// wait returns true once the gate is open, false if ctx ended first.
func (g *gate) wait(ctx context.Context) bool {
	for {
		g.mu.Lock()
		held := g.held
		g.mu.Unlock()
		if held == nil {
			return ctx.Err() == nil
		}
		select {
		case <-held:
		case <-ctx.Done():
			return false
		}
	}
}

// pause waits for d; false means ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
