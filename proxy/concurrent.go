package proxy

import (
	"sync/atomic"
	"time"

	"xpyd/router"
)

// bothLegs runs a round for a connector whose legs start together. The first leg to
// fail cuts the other, which would wait for blocks that never come or nobody reads.
func (c *completion) bothLegs() *apiError {
	want := c.want(router.Prefill, c.p.tried)
	want.Alone = true
	if c.snap.AcquireFor(want, &c.p.lease) != nil {
		c.d.lease.Release(router.ClientGone)
		return prefillUnavailable()
	}
	b := c.p.lease.Backend
	c.buildPrefill()
	var failed, cut atomic.Bool
	result := make(chan legResult, 1)
	go func() {
		r := legResult{err: internalError(), outcome: router.ClientGone}
		c.s.guard(func() { r = c.prefillAttempt(b) })
		if cut.Load() && r.outcome == router.Timeout {
			r.outcome = router.ClientGone // it did nothing wrong
		}
		c.p.lease.Release(r.outcome)
		if r.err != nil {
			failed.Store(true)
			c.d.x.interrupt(time.Now())
		}
		result <- r
	}()
	err := c.decode()
	prefillFirst := failed.Load()
	if err != nil && !prefillFirst {
		cut.Store(true)
		c.p.x.interrupt(time.Now())
	}
	r := <-result
	c.reached = c.reached || c.p.x.sent()
	if err != nil { // each leg may have cut the other: neither limit may outlive the round
		c.p.x.reset()
		c.d.x.reset()
	}
	if err == nil || !prefillFirst || c.interrupted() != nil {
		return err
	}
	c.p.tried = append(c.p.tried, b)
	r.err.again = r.next
	return r.err
}
