package proxy

import (
	"time"

	"xpyd/router"
)

// watchedDecode is decodeAttempt while both engines that it depends on are watched.
func (c *completion) watchedDecode(b *router.Backend) legResult {
	c.d.down.Store(false)
	c.d.cutOff.Store(false)
	c.d.lease.OnDown(c.onDecodeDown)
	if c.d.mute, c.d.last = !c.req.Stream(), c.round == maxRounds; c.handoff.live() {
		c.d.source.On(c.handoff.from, c.onSourceDown)
	}
	r := c.decodeAttempt(b)
	c.d.source.Off()
	c.d.lease.OnDown(nil)
	if r.err == nil && (c.d.cutOff.Load() || c.d.down.Load()) {
		// D has answered: its answer goes on.
		c.d.x.resume()
		if c.interrupted() != nil {
			c.d.x.interrupt(time.Now())
		}
	}
	return r
}

// sourceDown is told by the active check of P: D may wait for its blocks for ever.
// An answer that is not streamed gives no sign that they were loaded; where the lease
// has passed they were, and in the last round a cut could only fail the request.
func (c *completion) sourceDown() {
	if c.d.mute && (c.d.last || c.handoff.age() > c.s.cfg.KV.Lease) {
		return
	}
	c.d.cutOff.Store(true)
	c.d.x.interrupt(time.Now())
}

// decodeDown is told by the active check: a leg that has produced nothing is moved.
func (c *completion) decodeDown() {
	c.d.down.Store(true)
	c.d.x.interrupt(time.Now())
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
