package proxy

import (
	"errors"
	"time"

	"github.com/valyala/fasthttp"
	"xpyd/router"
	"xpyd/upstream"
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
	var ue *upstream.Error
	if !errors.As(err, &ue) || !ue.TimedOut() || ue.Stage == upstream.StageDial || ue.Stage == upstream.StageWrite {
		return err
	}
	c.p.late = true
	x := &c.p.x
	x.HalfClose()
	wait := lateForClient
	if c.interrupted() != nil || c.overdue() {
		wait = lateForNobody
	}
	x.Interrupt(time.Now().Add(wait))
	if ue.Stage == upstream.StageHead {
		if headErr := x.ReadHead(); headErr != nil {
			return headErr
		}
	}
	c.p.buf, err = x.ReadAnswer(c.p.buf, c.s.cfg.Limits.Answer)
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
func (c *completion) answerLost(ue *upstream.Error, told bool) bool {
	switch ue.Stage {
	case upstream.StageBody:
		return c.p.x.Head.Status == fasthttp.StatusOK
	case upstream.StageHead:
		return !told && !ue.TimedOut()
	}
	return false
}
