package proxy

import (
	"time"

	"xpyd/engines/handoff"
	"xpyd/netio/upstream"
	"xpyd/proxy/fault"
	"xpyd/router"
)

// What cuts a leg, and when. P may have an answer on its way that holds a handle, so P is rarely
// cut at once. A cut for a backend is taken back when the leg on it ends. The others hold for the
// rest of the request.
//
//	cause      P's leg                       D's leg
//	cutGone    router.Router.AbortAt         handoff.Grace.Decode, see prefillBeside
//	cutStop    timeouts.prefill_abort_grace  at once
//	cutDown    downGrace                     at once
//	cutSource                                at once, or before the lease ends: see sourceDown
//	cutOther   at once, see cutPrefill       at once
//	cutLate    lateForNobody, lateForClient
const (
	_         upstream.Cause = iota
	cutGone                  // the client has left
	cutStop                  // the process ends
	cutDown                  // health checks took the leg's backend down
	cutSource                // P has gone down or restarted while D may be loading its blocks
	cutOther                 // the other leg, which began together with this one, has failed or is over
	cutLate                  // xpyd gave P up, and the wait for an answer on its way is over
)

// ClientGone cuts every exchange that waits for a backend.
func (c *completion) ClientGone() {
	c.leave()
	now := time.Now()
	c.encoding.Load().Cut(fault.Gone)
	c.p.x.Cut(cutGone, c.s.router.AbortAt(&c.p.lease, now, c.grace().Prefill))
	c.d.x.Cut(cutGone, now.Add(c.decodeGrace()))
	c.leaveQueue()
}

// decodeGrace is how long D's leg may go on for a client that has left or a deadline that is over.
func (c *completion) decodeGrace() time.Duration {
	grace := c.grace()
	if c.p.beside.due.Load() && grace.Finishes { // D waits for P's blocks, and prefillBeside cuts D's leg earlier
		grace.Decode += grace.Prefill
	}
	return grace.Decode
}

func (c *completion) grace() handoff.Grace {
	t := &c.s.bound().Timeouts
	return handoff.GraceOf(c.dialect(), t.Prefill, t.PrefillAbortGrace, t.DecodeAbortGrace)
}

// leave notes that the client is gone, and in which state.
func (c *completion) leave() {
	s := c.state.get()
	if c.left.CompareAndSwap(0, uint32(s)+1) {
		c.s.departed.Add(1)
		if s == statePrefilling || c.p.beside.due.Load() {
			c.orphan.Store(true)
			c.s.clients.Orphan(c.client)
		}
	}
}

// orphanPatience is how long a completion waits for engines to be done with others that its client has left.
const orphanPatience = 30 * time.Second

// awaitOrphans waits while engines have too much to do for requests that the client has left.
func (c *completion) awaitOrphans() *fault.Error {
	begun := time.Now()
	c.s.watch.Look(begun)
	turn := c.s.clients.Wait(c.client)
	if turn == nil {
		return nil
	}
	over := time.NewTimer(min(orphanPatience, c.times.end.Sub(begun)))
	defer over.Stop()
	select {
	case <-turn:
		c.times.dequeued = time.Now()
		c.times.queued += c.times.dequeued.Sub(begun)
		return nil
	case <-c.ending():
	case <-over.C:
	}
	c.s.clients.Quit(c.client, turn)
	if ended := c.interrupted(); ended != nil {
		return ended
	}
	if c.overdue() {
		return fault.ErrDeadline()
	}
	return fault.ErrClientLimit()
}

// gone reports that the client has left.
func (c *completion) gone() bool { return c.left.Load() > 0 }

// stopGrace is how long a client may take to read the end of its answer when the drain time is over.
const stopGrace = 500 * time.Millisecond

// ServerStopping ends the completion with an error once the drain time is over.
func (c *completion) ServerStopping() {
	c.stop.Store(true)
	now := time.Now()
	_ = c.conn.SetReadDeadline(now)
	_ = c.conn.SetWriteDeadline(now.Add(stopGrace))
	c.encoding.Load().Cut(fault.Stopped)
	c.p.x.Cut(cutStop, now.Add(c.s.bound().Timeouts.PrefillAbortGrace))
	c.d.x.Cut(cutStop, now)
	c.leaveQueue()
}

// prefillDown cuts the prefill leg, so that another backend gets it. The active check calls it.
func (c *completion) prefillDown() { c.p.x.Cut(cutDown, time.Now().Add(c.s.downGrace)) }

// decodeDown cuts a decode leg that has produced nothing, so that another backend gets it. The active
// check calls it.
func (c *completion) decodeDown() { c.d.x.Cut(cutDown, time.Now()) }

// sourceDown cuts D's leg when P has gone down, or has restarted where D would wait for it. D may wait for P's blocks for
// ever. It may also read them when P runs again and has given them to another prompt after their
// lease. An answer that is not a stream gives no sign that D has loaded the blocks. After the lease
// it has, unless it has queued the request, which renews the lease. In that case all is well if P
// is gone, because D cannot read anything, but not if P stands still. In the last round a cut can
// only fail the request, so it waits as long as it can for P to come back. Where both legs start together there is no
// handle that tells of a lease, and P's answer begins one of kv.lease. An Irreplaceable P has just answered, so the cut waits
// for it in the same way.
func (c *completion) sourceDown() {
	at := time.Now()
	if c.dialect().Concurrent() {
		if c.p.beside.running() || c.d.buffered && (c.d.last || at.After(c.times.prefilled.Add(c.s.cfg.KV.Lease))) {
			return // P's own leg fails, or D has the blocks, or nothing is gained
		}
	} else if c.d.buffered {
		switch end := c.handoff.LeaseEnd(); {
		case at.After(end) && !c.handoff.From().Hung():
			return
		case at.Before(end) && c.d.last:
			at = end.Add(-c.s.cfg.KV.LeaseMargin)
		}
	}
	if p, end := c.source(); p.Irreplaceable() && at.Before(end) {
		if late := end.Add(-c.s.cfg.KV.LeaseMargin); at.Before(late) {
			at = late
		}
	}
	c.d.x.Cut(cutSource, at)
}

// source returns the P whose blocks D may be waiting for, and when it no longer holds them.
func (c *completion) source() (p *router.Backend, end time.Time) {
	if c.dialect().Concurrent() {
		return c.p.lease.Backend, c.times.prefilled.Add(c.s.cfg.KV.Lease)
	}
	return c.handoff.From(), c.handoff.LeaseEnd()
}

// interrupted returns the error of a completion that must end now, whatever it is doing.
func (c *completion) interrupted() *fault.Error {
	if ended := c.endedBy(); ended != fault.NoCause {
		return fault.Fault{Cause: ended}.Tell(fault.CodeNone)
	}
	return nil
}

// endedBy says why the completion must end now, if it must.
func (c *completion) endedBy() fault.Cause {
	switch {
	case c.gone():
		return fault.Gone
	case c.stop.Load():
		return fault.Stopped
	}
	return fault.NoCause
}

// running reports that the prefill leg beside D's may still write to the completion.
func (s *beside) running() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.result != nil && !s.over
}

// freesAtEnd has the leg give the request's bytes back when it ends. It returns false if no leg runs.
func (s *beside) freesAtEnd() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.frees = s.result != nil && !s.over
	return s.frees
}

// endBeside waits until the prefill leg beside D's leg has ended.
func (c *completion) endBeside() *failure {
	f := <-c.p.beside.result
	c.p.beside.result = nil
	c.noteSent(c.p.x.Sent())
	return f
}

// cutBeside ends the prefill leg beside D's if it still runs after the answer has ended.
func (c *completion) cutBeside() {
	if c.p.beside.result != nil {
		c.p.x.Cut(cutOther, time.Now())
		c.endBeside()
	}
}
