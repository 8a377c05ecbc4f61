package proxy

import (
	"sync"
	"time"

	"xpyd/fault"
	"xpyd/router"
)

// beside is a prefill leg that runs beside D's leg on a goroutine of its own.
type beside struct {
	result chan *failure // nil while no such leg runs

	mu       sync.Mutex
	answered bool // decode has ended, so what happens to P no longer matters to it
	failed   bool // P failed before that
}

// bothLegs runs a round for a connector whose legs start together. The first leg to fail cuts the
// other, which would wait for blocks that never come or that are never read. A token from D shows
// that D has the blocks. P then ends by itself, and is cut at the latest when the answer ends.
func (c *completion) bothLegs() *failure {
	want := c.want(router.Prefill, c.p.tried)
	want.Alone = true
	if c.snap.AcquireFor(want, &c.p.lease) != nil {
		c.d.lease.Release(router.ClientGone)
		return c.fail(nil, fault.Fault{Leg: fault.Prefill, At: fault.AtPool, Cause: fault.NoneUp}, nil).final()
	}
	b := c.p.lease.Backend
	c.buildPrefill()
	s := &c.p.beside
	s.result, s.answered, s.failed = make(chan *failure, 1), false, false
	go c.prefillBeside(b)
	decodeFailed := c.decode()
	s.mu.Lock()
	s.answered = true
	prefillFirst := s.failed
	s.mu.Unlock()
	if decodeFailed == nil {
		c.d.x.Uncut(cutOther) // P may have failed just as D answered
		return nil
	}
	if !prefillFirst {
		c.p.x.Cut(cutOther, time.Now())
	}
	prefillFailed := c.endBeside()
	if c.broken.Load() > 0 && c.p.x.Sent() && c.d.x.Sent() {
		c.broken.Store(maxBroken) // the leg that was cut may have died of it too
	}
	// Each leg may have cut the other. Neither cut may outlive the round.
	c.p.x.Uncut(cutOther)
	c.d.x.Uncut(cutOther)
	c.moved = c.moved || prefillFailed != nil && prefillFailed.moved
	if !prefillFirst || c.interrupted() != nil {
		return decodeFailed
	}
	c.p.tried = append(c.p.tried, b)
	return prefillFailed
}

// prefillBeside runs the prefill leg. If that fails first, it cuts D's leg.
func (c *completion) prefillBeside(b *router.Backend) {
	s := &c.p.beside
	f := ends(internalError())
	c.s.guard(func() { f = c.prefillAttempt(b) })
	c.p.lease.Release(f.result())
	s.mu.Lock()
	if f != nil && !s.answered {
		s.failed = true
		c.d.x.Cut(cutOther, time.Now())
	}
	s.mu.Unlock()
	s.result <- f
}

// endBeside waits until the prefill leg beside D's leg has ended.
func (c *completion) endBeside() *failure {
	f := <-c.p.beside.result
	c.p.beside.result = nil
	c.reached = c.reached || c.p.x.Sent()
	return f
}

// cutBeside ends that leg if it still runs after the answer has ended.
func (c *completion) cutBeside() {
	if c.p.beside.result != nil {
		c.p.x.Cut(cutOther, time.Now())
		c.endBeside()
	}
}
