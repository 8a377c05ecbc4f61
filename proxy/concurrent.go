package proxy

import (
	"sync"
	"sync/atomic"
	"time"

	"xpyd/engines/handoff"
	"xpyd/intake/heads"
	"xpyd/kvparams"
	"xpyd/proxy/fault"
	"xpyd/router"
)

// beside is a prefill leg that runs beside D's leg on a goroutine of its own.
type beside struct {
	result chan *failure // nil while no such leg runs
	due    atomic.Bool   // the leg is about to begin, or runs; a client that leaves looks at it

	mu       sync.Mutex
	answered bool // decode has ended, so what happens to P no longer matters to it
	failed   bool // P failed before that
	over     bool // the leg has ended, and what it has left in the completion may be read
	frees    bool // decode's answer goes to the client, so the leg gives the request's bytes back when it ends

	told atomic.Int64 // cached tokens by P's answer and one more; 0 while it has told none
	// counted is the tokens of the prompt by P's answer; read after the leg has ended.
	counted int
	holds   bool // P has answered, and holds the blocks until decode has them; read after the leg has ended
}

// bothLegs runs a round for a connector whose legs start together.
func (c *completion) bothLegs() *failure {
	if f := c.acquireBeside(); f != nil {
		return f
	} else if c.path == pathDecodeOnly {
		return c.decode()
	}
	b := c.p.lease.Backend
	failed, ofPrefill := c.legsBeside(b)
	switch {
	case !ofPrefill:
		return failed
	case c.anotherPrefill(b, failed):
		return c.tryRound()
	}
	return c.decodeInstead(failed)
}

// legsBeside runs both legs. The first one to fail cuts the other, which would wait for blocks that never
// come or that are never read, and ofPrefill says which it was. A token from D shows that D has the blocks.
// P then ends by itself, and is cut at the latest when the answer ends.
func (c *completion) legsBeside(b *router.Backend) (failed *failure, ofPrefill bool) {
	s, before := &c.p.beside, c.broken.Load()
	if c.grace().Finishes { // D may wait long for P's blocks, so P is checked until then, also if it leaves its pool
		b.HandleIssued()
		defer b.HandleEnded()
	}
	c.buildPrefill()
	s.result = make(chan *failure, 1)
	s.answered, s.failed, s.over, s.frees, s.holds = false, false, false, false, false
	s.told.Store(0)
	go c.prefillBeside(b)
	decodeFailed := c.decode()
	s.mu.Lock()
	s.answered = true
	prefillFirst := s.failed
	s.mu.Unlock()
	if decodeFailed == nil {
		c.d.x.Uncut(cutOther) // P may have failed just as D answered
		return nil, false
	}
	if !prefillFirst {
		c.cutPrefill()
	}
	prefillFailed := c.endBeside()
	c.giveUp(b, decodeFailed)
	if !prefillFirst && c.broken.Load() > before {
		c.spareCut(b)
	}
	// Each leg may have cut the other. Neither cut may outlive the round.
	c.p.x.Uncut(cutOther)
	c.d.x.Uncut(cutOther)
	if prefillFirst && c.interrupted() == nil {
		return prefillFailed, true
	}
	c.moved = c.moved || prefillFailed != nil && prefillFailed.moved
	return decodeFailed, false
}

// spareCut keeps the request from asking P again, if there is another one. P's leg was cut as D broke off, and what
// killed D may be killing P unseen. A D that was cut is asked last in any case.
func (c *completion) spareCut(b *router.Backend) {
	if tried := append(c.p.tried, b); c.snap.Pick(c.wantPrefill(tried)) != nil {
		c.p.tried = tried
	}
}

// decodeInstead has D serve the request alone after P has failed. D may still be ending the leg that was cut, so
// the next one has another id.
func (c *completion) decodeInstead(f *failure) *failure {
	if ended := c.mayDecodeAlone(f); ended != nil {
		return ended
	}
	c.path, c.reason = pathDecodeOnly, f.Degrade // so a D is reserved that serves requests alone
	if err := c.reserveDecode(nil); err != nil {
		return ends(err)
	}
	if f = c.withoutPrefill(f); f != nil {
		c.d.lease.Release(router.NoVerdict)
		return f
	}
	c.legID = c.id + "-" + heads.RandomHex(8)
	return c.decode()
}

// swapTurns is how often a D that went while P was waited for is swapped before any leg begins. After that
// decode swaps it, and P computes meanwhile.
const swapTurns = 2

// acquireBeside takes a P for the reserved D, or settles that D serves the request alone. D may go down or be
// ejected while P is waited for. If no other D is free, P goes back before one is waited for: it would compute
// for nobody, and those who hold that D may be waiting for it.
func (c *completion) acquireBeside() *failure {
	for turn := 0; ; turn++ {
		if err := c.acquireKnown(); err != nil {
			f := c.withoutPrefill(c.prefillDenied(err))
			if f != nil {
				c.d.lease.Release(router.NoVerdict)
			}
			return f
		}
		c.p.beside.due.Store(true) // a client that leaves from here on has D wait for P
		ended := c.interrupted()
		if ended == nil && c.overdue() {
			ended = fault.ErrDeadline()
		}
		if ended == nil && (c.fit() || turn == swapTurns || c.swapAtOnce()) {
			return nil
		}
		c.p.beside.due.Store(false)
		c.p.lease.Release(router.NoVerdict)
		if ended == nil {
			ended = c.reserveDecode(c.d.lease.Backend)
		}
		if ended != nil {
			c.d.lease.Release(router.NoVerdict)
			return c.elsewhere(ends(ended))
		}
	}
}

// swapAtOnce gives up D for another one that is free now. Without one, D is given up all the same.
func (c *completion) swapAtOnce() bool {
	c.leaveDecode()
	c.d.started = time.Now()
	want := c.wantDecode(c.d.lease.Backend)
	want.Peer = c.p.lease.Backend
	if c.snap.AcquireFor(want, &c.d.lease) != nil {
		return false
	}
	c.d.ejected = c.d.lease.Backend.Ejected()
	return true
}

// cutPrefill cuts P's leg, because D's has failed. Where D waits for P to send the blocks, P may run to
// its end if the client left, and otherwise has the grace of an abandoned prefill: blocks that it has
// just pinned can be given back only if it answers.
func (c *completion) cutPrefill() {
	at := time.Now()
	if c.grace().Finishes {
		if c.gone() && c.d.x.Sent() {
			return
		}
		if !c.overdue() { // otherwise P runs on without xpyd, see lateAnswer
			at = at.Add(c.s.bound().Timeouts.PrefillAbortGrace)
		}
	}
	c.p.x.Cut(cutOther, at)
}

// acquireKnown takes a P, and what the connector has to know of it. A P that has not been asked for
// that is of no use.
func (c *completion) acquireKnown() error {
	for {
		want := c.wantPrefill(c.p.tried)
		want.Alone, want.Peer = true, c.d.lease.Backend // no pair is banned, but both legs need one model and two engines
		if err := c.acquire(want, &c.p.lease); err != nil {
			return err
		}
		peer, known := c.s.engines.Peer(c.p.lease.Backend)
		if c.p.leg.Peer, c.d.leg.Peer = peer, peer; known {
			return nil
		}
		c.p.tried = append(c.p.tried, c.p.lease.Backend)
		c.p.lease.Release(router.NoVerdict)
	}
}

// giveUp gives back the blocks of a P that has answered, because no decode will have them. A D that had
// the request when the client left, or at its deadline, tells P itself.
func (c *completion) giveUp(b *router.Backend, decodeFailed *failure) {
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
	c.handoff.Issue(pairing.Pair(&c.p.leg), b, c.p.x.Began)
	if c.d.x.Sent() { // D knows the blocks by their id
		c.handoff.SendTo(c.d.lease.Backend)
	}
	c.abandon(c.d.lease.Backend)
}

// prefillBeside runs the prefill leg. If that fails first, it cuts D's leg. A client that left does not make an answer
// fail, and D has its grace from the end of the leg on: P may have had others to serve first.
func (c *completion) prefillBeside(b *router.Backend) {
	s := &c.p.beside
	f := ends(fault.ErrInternal())
	c.s.guard(func() { f = c.prefillAttempt(b) })
	c.s.guard(func() { c.p.lease.Release(f.result()) }) // it may start other requests
	s.mu.Lock()
	frees := s.frees
	s.over = true
	if f != nil && !s.answered && !(s.holds && c.gone()) { // cutGone ends D's leg there
		s.failed = true
		c.d.x.Cut(cutOther, time.Now())
	}
	s.mu.Unlock()
	if s.due.Store(false); c.gone() {
		c.d.x.Cut(cutGone, time.Now().Add(c.grace().Decode))
	}
	if frees {
		c.s.guard(c.freeAsked)
	}
	s.result <- f
}

// answeredBeside notes the one figure of P's answer that decode needs beside it. It fails if P sends no blocks.
func (c *completion) answeredBeside(b *router.Backend, f fault.Fault) *failure {
	ans, err := c.dialect().ParseAnswer(c.p.buf)
	if fault.OfAnswer(err) == fault.Ended {
		return c.badAnswer(b, f, err)
	}
	if c.p.beside.holds = true; err == nil {
		c.p.beside.told.Store(int64(ans.CachedTokens) + 1)
		c.p.beside.counted = ans.PromptTokens
	}
	return nil
}
