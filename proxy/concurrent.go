package proxy

import (
	"sync/atomic"
	"time"

	"xpyd/engines/handoff"
	"xpyd/intake/heads"
	"xpyd/kvparams"
	"xpyd/proxy/fault"
	"xpyd/proxy/leg"
	"xpyd/router"
)

// beside is a prefill leg that runs beside D's leg on a goroutine of its own. The two are attempts like any others. All
// that passes between them is the end of P's, on a channel, and which of them settled first that the other is cut.
type beside struct {
	ended chan *leg.Failure // takes what the leg came to; nil while no such leg runs
	due   atomic.Bool       // the leg is about to begin, or runs; a client that leaves looks at it
	over  atomic.Bool       // the leg has ended, and what it has left in the completion may be read
	first atomic.Uint32     // a first: it is set once for each pair of legs
	users atomic.Int32      // the legs that still need the request's bytes; the last one gives them back

	told atomic.Int64 // cached tokens by P's answer and one more; 0 while it has told none
	// counted is the tokens of the prompt by P's answer; read after the leg has ended.
	counted int
	holds   bool // P has answered, and holds the blocks until decode has them; read after the leg has ended
}

// Who was first of two legs that began together.
const (
	_             uint32 = iota
	prefillFailed        // before decode had ended, so decode is cut
	decodeEnded          // so what happens to P no longer matters to it
)

// begin is called before the leg begins.
func (s *beside) begin() {
	s.ended = make(chan *leg.Failure, 1)
	s.over.Store(false)
	s.first.Store(0)
	s.users.Store(2)
	s.told.Store(0)
	s.holds = false
}

// running reports that the leg may still write to the completion.
func (s *beside) running() bool { return s.ended != nil && !s.over.Load() }

// usesAsked reports that the leg still needs the request's bytes, which decode's does no more. It gives them back itself then.
func (s *beside) usesAsked() bool { return s.ended != nil && s.users.Add(-1) > 0 }

// pair is a completion whose legs begin together.
type pair struct{ *completion }

// run runs legs that begin together, for a connector that wants that. again: P has failed, and another pair of legs
// follows in the same round.
func (c pair) run() (failed *leg.Failure, again bool) {
	if f := c.acquire(); f != nil {
		return f, false
	} else if c.path == pathDecodeOnly {
		return c.d.decode(), false
	}
	if c.round.again {
		c.s.metrics.PrefillRetried()
	}
	b := c.p.Lease.Backend
	failed, ofPrefill := c.legs(b)
	switch {
	case !ofPrefill:
		return failed, false
	case c.p.another(b, failed):
		return nil, true
	}
	return c.decodeInstead(failed), false
}

// legs runs both legs. The first one to fail cuts the other, which would wait for blocks that never
// come or that are never read, and ofPrefill says which it was. A token from D shows that D has the blocks.
// P then ends by itself, and is cut at the latest when the answer ends.
func (c pair) legs(b *router.Backend) (failed *leg.Failure, ofPrefill bool) {
	s, before := &c.p.beside, c.broken.Load()
	if c.grace().Finishes { // D may wait long for P's blocks, so P is checked until then, also if it leaves its pool
		b.HandleIssued()
		defer b.HandleEnded()
	}
	c.p.build()
	s.begin()
	go c.prefill(s.ended)
	failed = c.d.decode()
	ofPrefill = !s.first.CompareAndSwap(0, decodeEnded)
	if failed == nil && !ofPrefill {
		return nil, false
	}
	if !ofPrefill {
		c.p.cutForDecode()
	}
	ended := c.end()
	if failed == nil { // P has failed just as D answered, so its cut was for nothing
		c.d.X.Uncut(leg.CutOther)
		return nil, false
	}
	c.giveUp(b, failed)
	if !ofPrefill && c.broken.Load() > before {
		c.spareCut(b)
	}
	// Each leg may have cut the other. Neither cut may outlive the two.
	c.p.X.Uncut(leg.CutOther)
	c.d.X.Uncut(leg.CutOther)
	if ofPrefill && c.interrupted() == nil {
		return ended, true
	}
	c.moved = c.moved || ended != nil && ended.Moved
	return failed, false
}

// spareCut keeps the request from asking P again, if there is another one. P's leg was cut as D broke off, and what
// killed D may be killing P unseen. A D that was cut is asked last in any case.
func (c pair) spareCut(b *router.Backend) {
	if tried := append(c.p.tried, b); c.snap.Pick(c.p.want(tried)) != nil {
		c.p.tried = tried
	}
}

// decodeInstead has D serve the request alone after P has failed. D may still be ending the leg that was cut, so
// the next one has another id.
func (c pair) decodeInstead(f *leg.Failure) *leg.Failure {
	if ended := c.p.mayDecodeAlone(f); ended != nil {
		return ended
	}
	c.path, c.reason = pathDecodeOnly, f.Degrade // so a D is reserved that serves requests alone
	if err := c.d.reserve(nil); err != nil {
		return leg.Ends(err)
	}
	if f = c.p.without(f); f != nil {
		return f
	}
	c.legID = c.id + "-" + heads.RandomHex(8)
	return c.d.decode()
}

// swapTurns is how often a D that went while P was waited for is swapped before any leg begins. After that
// decode swaps it, and P computes meanwhile.
const swapTurns = 2

// acquire takes a P for the reserved D, or settles that D serves the request alone. D may go down or be
// ejected while P is waited for. If no other D is free, P goes back before one is waited for: it would compute
// for nobody, and those who hold that D may be waiting for it.
func (c pair) acquire() *leg.Failure {
	for turn := 0; ; turn++ {
		if err := c.p.acquireKnown(); err != nil {
			return c.p.without(c.p.denied(err))
		}
		c.p.beside.due.Store(true) // a client that leaves from here on has D wait for P
		ended := c.interrupted()
		if ended == nil && c.overdue() {
			ended = fault.ErrDeadline()
		}
		if ended == nil && (c.d.fit() || turn == swapTurns || c.d.swapAtOnce()) {
			return nil
		}
		c.p.beside.due.Store(false)
		c.p.Free()
		if ended == nil {
			ended = c.d.reserve(c.d.Lease.Backend)
		}
		if ended != nil {
			return c.elsewhere(leg.Ends(ended))
		}
	}
}

// swapAtOnce gives up D for another one that is free now. Without one, D is given up all the same.
func (d *decodeLeg) swapAtOnce() bool {
	d.leave()
	want := d.want(d.Lease.Backend)
	want.Peer = d.c.p.Lease.Backend
	if d.Take(d.c.snap, want) != nil {
		return false
	}
	d.ejected = d.Lease.Backend.Ejected()
	return true
}

// cutForDecode cuts P's leg, because D's has failed. Where D waits for P to send the blocks, P may run to
// its end if the client left, and otherwise has the grace of an abandoned prefill: blocks that it has
// just pinned can be given back only if it answers.
func (p *prefillLeg) cutForDecode() {
	c := p.c
	at := time.Now()
	if c.grace().Finishes {
		if c.gone() && c.d.X.Sent() {
			return
		}
		if !c.overdue() { // otherwise P runs on without xpyd, see lateAnswer
			at = at.Add(c.s.bound().Timeouts.PrefillAbortGrace)
		}
	}
	p.X.Cut(leg.CutOther, at)
}

// acquireKnown takes a P, and what the connector has to know of it. A P that has not been asked for
// that is of no use.
func (p *prefillLeg) acquireKnown() error {
	c := p.c
	for {
		want := p.want(p.tried)
		want.Alone, want.Peer = true, c.d.Lease.Backend // no pair is banned, but both legs need one model and two engines
		if err := p.Acquire(c.snap, want, inQueue{c}); err != nil {
			return err
		}
		peer, known := c.s.engines.Peer(p.Lease.Backend)
		if p.leg.Peer, c.d.leg.Peer = peer, peer; known {
			return nil
		}
		p.tried = append(p.tried, p.Lease.Backend)
		p.Free()
	}
}

// giveUp gives back the blocks of a P that has answered, because no decode will have them. A D that had
// the request when the client left, or at its deadline, tells P itself.
func (c pair) giveUp(b *router.Backend, decodeFailed *leg.Failure) {
	pairing, ok := c.dialect().(kvparams.Pairing)
	if !ok || decodeFailed.Retry == fault.RetryNever && (!c.p.beside.holds || decodeFailed.Handle == fault.FateBurnt) {
		return
	}
	peer := c.s.engines.AskPeer(b) // D may have failed of what was known of it
	switch {
	case !c.p.beside.holds:
		return
	case peer == nil:
		c.s.handoffs.Orphaned(b, handoff.OrphanUnusable)
		return
	}
	c.p.leg.Peer = peer
	c.handoff.Issue(pairing.Pair(&c.p.leg), b, c.p.X.Began)
	if c.d.X.Sent() { // D knows the blocks by their id
		c.handoff.SendTo(c.d.Lease.Backend)
	}
	c.abandon(c.d.Lease.Backend)
}

// prefill runs the prefill leg. If that fails first, it cuts D's leg. A client that left does not make an answer
// fail, and D has its grace from the end of the leg on: P may have had others to serve first.
func (c pair) prefill(ended chan<- *leg.Failure) {
	s := &c.p.beside
	f := leg.Ends(fault.ErrInternal())
	c.s.guard(func() { f = c.p.attempt() })
	c.s.guard(c.p.Free) // after a panic
	s.over.Store(true)
	if f != nil && !(s.holds && c.gone()) && s.first.CompareAndSwap(0, prefillFailed) { // CutGone ends D's leg otherwise
		c.d.X.Cut(leg.CutOther, time.Now())
	}
	if s.due.Store(false); c.gone() {
		c.d.X.Cut(leg.CutGone, time.Now().Add(c.grace().Decode))
	}
	if s.users.Add(-1) == 0 {
		c.s.guard(c.freeAsked)
	}
	ended <- f
}

// end waits until the prefill leg beside D's leg has ended.
func (c pair) end() *leg.Failure {
	f := <-c.p.beside.ended
	c.p.beside.ended = nil
	c.noteSent(c.p.X.Sent())
	return f
}

// cut ends the prefill leg beside D's if it still runs after the answer has ended.
func (c pair) cut() {
	if c.p.beside.ended != nil {
		c.p.X.Cut(leg.CutOther, time.Now())
		c.end()
	}
}

// answeredBeside notes the one figure of P's answer that decode needs beside it. It fails if P sends no blocks.
func (p *prefillLeg) answeredBeside(b *router.Backend, f fault.Fault) *leg.Failure {
	ans, err := p.c.dialect().ParseAnswer(p.buf)
	if fault.OfAnswer(err) == fault.Ended {
		return p.badAnswer(b, f, err)
	}
	if p.beside.holds = true; err == nil {
		p.beside.told.Store(int64(ans.CachedTokens) + 1)
		p.beside.counted = ans.PromptTokens
	}
	return nil
}
