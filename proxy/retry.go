package proxy

import (
	"errors"
	"math/rand/v2"
	"time"

	"xpyd/proxy/fault"
	"xpyd/router"
)

// denied says why the pool gave no lease.
func (d *decodeLeg) denied(err error) *fault.Error {
	c := d.c
	if gone := c.interrupted(); gone != nil {
		return gone
	}
	if c.overdue() {
		return fault.ErrDeadline()
	}
	if errors.Is(err, router.ErrBusy) && c.degraded && c.snap.Capped() {
		return fault.ErrShareSpent()
	}
	f := fault.Fault{Leg: fault.Decode, At: fault.AtPool, Cause: fault.NoneUp}
	if errors.Is(err, router.ErrBusy) {
		f.Cause = fault.Full
	}
	return f.Tell(fault.Classify(f).Code)
}

// degrade counts the request among those that should have had a prefill. If their share is spent,
// it releases its D and waits, as a request that finds a full pool does. why is the failure that
// led here.
func (p *prefillLeg) degrade(why *fault.Error) *fault.Error {
	c := p.c
	if c.snap.Degrade(&c.d.Lease) {
		c.degraded = true
		return nil
	}
	if c.s.cfg.DecodeOnly.MaxShare > 0 {
		c.d.Free()
		c.degraded = true
		err := c.d.reserve(nil)
		if err == nil {
			return nil
		}
		c.degraded = false
		if err.Code != fault.CodePrefillUnavailable {
			return err
		}
	}
	e := fault.ErrShareSpent()
	e.Log, e.RetryAfter = why.Why(), max(e.RetryAfter, why.RetryAfter)
	return e
}

// Full jitter spreads retries, so that requests that failed together do not all come back at once.
const (
	minBackoff = 25 * time.Millisecond
	maxBackoff = 250 * time.Millisecond
)

// retryPatience is how long a retry waits for its share of the budget. An engine that dies fails
// more requests at once than may be retried at once.
const retryPatience = 30 * time.Second

// mayRetry backs off and takes a share of the retry budget, which all completions have in common.
// The completion holds its share until a token comes or it ends. A leg that moved because its
// backend went down does not count as a retry. asked is how long the failed backend wants to be
// left alone. The request waits no longer than patience for its share, which is 0 if it can be served in another way at
// once.
func (c *completion) mayRetry(asked, patience time.Duration) bool {
	if c.deadly() {
		return false
	}
	if c.moved {
		c.moved = false // each move is exempt once
		c.s.router.Moved(c.s.live.Load())
		return true
	}
	pause := minBackoff + rand.N(maxBackoff-minBackoff)
	if asked > pause && c.snap.Pick(c.want(router.Decode, c.d.tried)) == nil {
		if asked > c.snap.Queue().Wait {
			return false // the client is told to come back after that time
		}
		pause = min(asked, time.Until(c.times.end))
	}
	for failed := time.Now(); ; {
		select {
		case <-time.After(pause):
		case <-c.ending():
			return false // the client has left or the process ends
		}
		if c.overdue() {
			return false
		}
		pause = minBackoff + rand.N(maxBackoff-minBackoff)
		c.endRetry() // each retry takes its own share
		if c.s.router.TakeRetry(c.s.live.Load(), time.Since(failed) > router.RetrySettle) {
			c.retrying = true
			return true
		}
		if time.Since(failed) > patience {
			if patience > 0 {
				c.s.metrics.RetryDenied()
			}
			return false
		}
	}
}
