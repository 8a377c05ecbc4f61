package proxy

import (
	"time"

	"xpyd/engines/handoff"
	"xpyd/proxy/fault"
	"xpyd/proxy/leg"
	"xpyd/router"
)

// This file has what cuts a leg, and when. P may have an answer on its way that holds a handle, so P is rarely cut at
// once. leg.CutGone and those below it say how long each cut holds.
//
//	cause      P's leg                       D's leg
//	CutGone    router.Router.AbortAt         handoff.Grace.Decode, see pair.prefill
//	CutStop    timeouts.prefill_abort_grace  at once
//	CutDown    downGrace                     at once
//	CutSource                                at once, or before the lease ends: see sourceDown
//	CutOther   at once, see cutForDecode     at once
//	CutLate    lateForNobody, lateForClient

// ClientGone cuts every exchange that waits for a backend.
func (c *completion) ClientGone() {
	c.leave()
	now := time.Now()
	c.encoding.Load().Cut(fault.Gone)
	c.p.X.Cut(leg.CutGone, c.s.router.AbortAt(&c.p.Lease, now, c.grace().Prefill))
	c.d.X.Cut(leg.CutGone, now.Add(c.decodeGrace()))
	c.leaveQueue()
}

// decodeGrace is how long D's leg may go on for a client that has left or a deadline that is over.
func (c *completion) decodeGrace() time.Duration {
	grace := c.grace()
	if c.p.beside.due.Load() && grace.Finishes { // D waits for P's blocks, and pair.prefill cuts D's leg earlier
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

// ServerStopping ends the completion with an error once the drain time is over.
func (c *completion) ServerStopping() {
	c.stop.Store(true)
	now := time.Now()
	_ = c.conn.SetReadDeadline(now)
	_ = c.conn.SetWriteDeadline(now.Add(stopGrace))
	c.encoding.Load().Cut(fault.Stopped)
	c.p.X.Cut(leg.CutStop, now.Add(c.s.bound().Timeouts.PrefillAbortGrace))
	c.d.X.Cut(leg.CutStop, now)
	c.leaveQueue()
}

// down cuts the prefill leg, so that another backend gets it. The active check calls it.
func (p *prefillLeg) down() { p.X.Cut(leg.CutDown, time.Now().Add(p.c.s.downGrace)) }

// down cuts a decode leg that has produced nothing, so that another backend gets it. The active
// check calls it.
func (d *decodeLeg) down() { d.X.Cut(leg.CutDown, time.Now()) }

// sourceDown cuts D's leg when P has gone down, or has restarted where D would wait for it. D may wait for P's blocks for
// ever. It may also read them when P runs again and has given them to another prompt after their
// lease. An answer that is not a stream gives no sign that D has loaded the blocks. After the lease
// it has, unless it has queued the request, which renews the lease. In that case all is well if P
// is gone, because D cannot read anything, but not if P stands still. In the last round a cut can
// only fail the request, so it waits as long as it can for P to come back. Where both legs start together there is no
// handle that tells of a lease, and P's answer begins one of kv.lease. An Irreplaceable P has just answered, so the cut waits
// for it in the same way.
func (d *decodeLeg) sourceDown() {
	c := d.c
	at, whole, last := time.Now(), !c.bill.stream, c.round.n == maxRounds
	if c.dialect().Concurrent() {
		if c.p.beside.running() || whole && (last || at.After(c.times.prefilled.Add(c.s.cfg.KV.Lease))) {
			return // P's own leg fails, or D has the blocks, or nothing is gained
		}
	} else if whole {
		switch end := c.handoff.LeaseEnd(); {
		case at.After(end) && !c.handoff.From().Hung():
			return
		case at.Before(end) && last:
			at = end.Add(-c.s.cfg.KV.LeaseMargin)
		}
	}
	if p, end := d.loadsFrom(); p.Irreplaceable() && at.Before(end) {
		if late := end.Add(-c.s.cfg.KV.LeaseMargin); at.Before(late) {
			at = late
		}
	}
	d.X.Cut(leg.CutSource, at)
}

// loadsFrom returns the P whose blocks D may be waiting for, and when it no longer holds them.
func (d *decodeLeg) loadsFrom() (p *router.Backend, end time.Time) {
	c := d.c
	if c.dialect().Concurrent() {
		return c.p.Lease.Backend, c.times.prefilled.Add(c.s.cfg.KV.Lease)
	}
	return c.handoff.From(), c.handoff.LeaseEnd()
}
