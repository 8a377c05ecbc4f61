package proxy

import (
	"errors"
	"time"
	"xpyd/router"
	"xpyd/upstream"
)

// watchedDecode is decodeAttempt while both engines that it depends on are watched.
func (c *completion) watchedDecode(b *router.Backend) *failure {
	c.d.down.Store(false)
	c.d.cutOff.Store(false)
	c.d.lease.OnDown(c.onDecodeDown)
	if c.d.mute, c.d.last = !c.req.Stream(), c.round == maxRounds; c.handoff.live() {
		c.d.source.On(c.handoff.from, c.onSourceDown)
	}
	f := c.decodeAttempt(b)
	c.d.source.Off()
	c.d.lease.OnDown(nil)
	if f == nil && (c.d.cutOff.Load() || c.d.down.Load()) {
		// D has answered: its answer goes on.
		c.d.x.Resume()
		if c.interrupted() != nil {
			c.d.x.Interrupt(time.Now())
		}
	}
	return f
}

// sourceDown is told by the active check of P: D may wait for its blocks for ever, or read
// them when P runs again and has given them to another prompt, as their lease is over.
// An answer that is not streamed gives no sign that they were loaded. Where the lease has
// passed they were, unless D has queued the request, which renews the lease: then all is well
// if P is gone, as D cannot read anything, but not if it stands still. In the last round a
// cut can only fail the request: P may come back until it must be.
func (c *completion) sourceDown() {
	at := time.Now()
	if c.d.mute {
		switch end := c.handoff.issued.Add(c.s.cfg.KV.Lease); {
		case at.After(end) && !c.handoff.from.Hung():
			return
		case at.Before(end) && c.d.last:
			at = end.Add(-c.s.cfg.KV.LeaseMargin)
		}
	}
	c.d.cutOff.Store(true)
	c.d.x.InterruptBy(at)
}

// sourceBack reads on for D's answer after err, where that is a cut which was put off and P
// has come back by now: the blocks were still D's.
func (c *completion) sourceBack(err error, deadline time.Time) error {
	var ue *upstream.Error
	if !c.d.cutOff.Load() || c.handoff.from.State() == router.Down || !errors.As(err, &ue) || !ue.TimedOut() || ue.Stage != upstream.StageHead {
		return err
	}
	c.d.x.Resume()
	if c.interrupted() != nil || c.d.down.Load() {
		return err
	}
	c.d.cutOff.Store(false)
	c.d.source.On(c.handoff.from, c.onSourceDown) // which tells once
	c.d.x.SetDeadline(deadline)
	return c.d.x.ReadHead()
}

// decodeDown is told by the active check: a leg that has produced nothing is moved.
func (c *completion) decodeDown() {
	c.d.down.Store(true)
	c.d.x.Interrupt(time.Now())
}

// swapUnfit changes the reserved D if it was ejected or went down while P worked.
func (c *completion) swapUnfit() *apiError {
	b := c.d.lease.Backend
	if b.Fit() {
		return nil
	}
	c.d.lease.Release(router.ClientGone)
	c.d.tried = append(c.d.tried, b)
	return c.reserveDecode()
}
