package proxy

import (
	"errors"
	"time"

	"github.com/valyala/fasthttp"

	"xpyd/router"
)

// P may have its answer half written when it is given up, and the answer holds a handle.
const (
	// downGrace is how long P may still answer after the active check took it down.
	downGrace = 250 * time.Millisecond
	// Then its connection is half-closed and read for a moment more; for longer where
	// nothing can follow it: the client has left, or timeouts.request is over.
	lateForNobody = time.Second
	lateForClient = 50 * time.Millisecond
)

// lateAnswer tells a P that was given up to abort, and reads on for an answer that was
// on its way: its handle must be given back.
func (c *completion) lateAnswer(err error) error {
	var ue *upstreamError
	if !errors.As(err, &ue) || !ue.timeout() || ue.stage == stageDial || ue.stage == stageWrite {
		return err
	}
	c.p.late = true
	x := &c.p.x
	x.halfClose()
	wait := lateForClient
	if c.interrupted() != nil || c.overdue() {
		wait = lateForNobody
	}
	x.interrupt(time.Now().Add(wait))
	if ue.stage == stageHead {
		if headErr := x.readHead(false); headErr != nil {
			return headErr
		}
	}
	c.p.buf, err = x.readAnswer(c.p.buf, c.s.cfg.Limits.Answer)
	return err
}

// prefillGivenUp says why nobody wants the answer any more, if that is so.
func (c *completion) prefillGivenUp() legResult {
	switch gone := c.interrupted(); {
	case gone != nil:
		return legResult{err: gone, outcome: router.ClientGone, sent: true}
	case c.p.down.Load():
		// Decode might wait for a P that stands still by now; to give back does not.
		if c.handoff.live() { // else D's leg, which began beside this one, may have come further
			c.state.set(statePrefilling)
		}
		return prefillWentDown()
	case c.p.late:
		return c.prefillTimedOut()
	}
	return legResult{}
}

// answerLost reports that P may hold blocks of which nobody will hear: its answer was
// cut, or it hung up in place of one. Told that nobody waits, it hangs up after an abort.
func (c *completion) answerLost(ue *upstreamError, told bool) bool {
	switch ue.stage {
	case stageBody:
		return c.p.x.head.status == fasthttp.StatusOK
	case stageHead:
		return !told && !ue.timeout()
	}
	return false
}
