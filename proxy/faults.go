package proxy

import (
	"cmp"
	"errors"

	"github.com/valyala/fasthttp"

	"xpyd/kvparams"
	"xpyd/netio/upstream"
	"xpyd/proxy/fault"
	"xpyd/router"
)

// This file turns what happened to a failed leg into a fault for fault.Classify to judge.

// prefillBroke judges a prefill leg that failed in the transport or at its limits.
func (c *completion) prefillBroke(b *router.Backend, err error) *failure {
	ended, late := c.endedBy(), c.prefillLate()
	f := fault.Fault{Leg: fault.Prefill, At: fault.AtLimit, Status: c.p.x.Head.Status, Cause: cmp.Or(ended, fault.TooLarge)}
	var ue *upstream.Error
	if !errors.As(err, &ue) {
		return c.fail(b, f, nil)
	}
	if ue.BrokeOff() && !late { // a P whose connection was half-closed hangs up
		c.prefillBrokeOff(b, ue)
	}
	f.At, f.HungUp = reachedBy(ue), ended == fault.NoCause && !late && !ue.TimedOut()
	switch {
	case ended != fault.NoCause:
	case f.At == fault.AtDial && upstream.IsLocal(ue.Err):
		f.Cause = fault.Descriptors
	case f.At == fault.AtDial:
		f.Cause = fault.Broke
	case c.p.x.IsCut(cutDown):
		f.Cause = fault.Down
	case (late || ue.TimedOut()) && c.p.x.IsCut(cutOther):
		f.Cause = fault.Other
	case (late || ue.TimedOut()) && c.overdue():
		f.Cause = fault.Overdue
	case late || ue.TimedOut():
		f.Cause = fault.Timeout
	case ue.LongHead():
		f.Cause = fault.LongHead
	default:
		f.Cause = fault.Broke
	}
	failed := c.fail(b, f, nil)
	if f.Cause == fault.Broke {
		failed.told.Log = ue.Error()
	}
	return failed
}

// badAnswer judges an answer of P that is of no use, or has kv_transfer_params that D would hang or die of.
func (c *completion) badAnswer(b *router.Backend, f fault.Fault, why error) *failure {
	if f.Cause = fault.OfAnswer(why); f.Cause != fault.Ended {
		c.s.failedLog.Error().Str("request_id", c.id).Str("prefill", b.URL).Msg("prefill answer cannot be used: " + why.Error())
	}
	return c.fail(b, f, nil)
}

// prefillRefused judges an answer of P that is not a 200.
func (c *completion) prefillRefused(b *router.Backend, status int) *failure {
	f := c.s.refused(fault.Prefill, status)
	flag, always := "", kvparams.Trait(0)
	if f.Cause == fault.Status && status < 500 {
		flag, always = kvparams.RefusingFlag(c.p.buf)
	}
	traits := c.req.Traits()
	switch {
	case f.Cause != fault.Status:
	case traits&kvparams.DemandsTool != 0:
		f.Cause = fault.Forced
	case status == fasthttp.StatusBadRequest && (traits != 0 || flag != ""):
		f.Cause = fault.Flags
	case status == fasthttp.StatusBadRequest && b.Shorter(c.speaks.Load()):
		f.Cause, flag = fault.Flags, "--max-model-len"
	}
	if f.Cause == fault.Flags || f.Cause == fault.Forced && flag != "" {
		c.p.refusing, c.p.flag, c.p.always = b, flag, always&traits
	}
	return c.refusedLeg(f, b, &c.p.x, c.p.buf, c.pSegs)
}

// decodeBroke judges a failure of the transport before the client had anything.
func (c *completion) decodeBroke(b *router.Backend, err error) *failure {
	var ue *upstream.Error
	if !errors.As(err, &ue) {
		panic("BUG: decode leg failed with " + err.Error())
	}
	f := fault.Fault{Leg: fault.Decode, At: reachedBy(ue), Handle: c.handoff.Live(), Cause: c.decodeCause(ue)}
	if c.handoff.Failed(ue, c.d.x.Head.Status, nil); ue.BrokeOff() {
		c.broken.Add(1)
	}
	f.HungUp = f.At > fault.AtDial && (!ue.TimedOut() || c.d.x.HungUp())
	if f.At > fault.AtRequest && !f.HungUp && c.interrupted() == nil && (c.overdue() || f.Cause == fault.Timeout) {
		c.d.x.Linger(ue, c.decodeGrace(), func() {}) // as if the client had left
	}
	failed := c.fail(b, f, nil)
	if f.Cause == fault.Broke && f.At > fault.AtDial {
		failed.told.Log = ue.Error()
	}
	return failed
}

func (c *completion) decodeCause(ue *upstream.Error) fault.Cause {
	dial, ended := ue.Stage == upstream.StageDial, c.endedBy()
	switch {
	case ended != fault.NoCause:
		return ended
	case ue.Cause == cutOther:
		return fault.Other
	case dial && upstream.IsLocal(ue.Err):
		return fault.Descriptors
	case dial:
		return fault.Broke
	case ue.Cause == cutSource:
		return fault.Source
	case c.d.x.IsCut(cutDown):
		return fault.Down
	case ue.TimedOut() && c.overdue():
		return fault.Overdue
	case ue.TimedOut():
		return fault.Timeout
	case ue.LongHead():
		return fault.LongHead
	}
	return fault.Broke
}

// decodeFlawed judges an answer of D that cannot be used. told is for the client, and nil means the usual text.
func (c *completion) decodeFlawed(why fault.Cause, told *fault.Error) *failure {
	return c.fail(c.d.lease.Backend, fault.Fault{Leg: fault.Decode, At: fault.AtAnswer, Status: c.d.x.Head.Status, Cause: why, Handle: c.handoff.Live()}, told)
}

// decodeRefused judges an answer of D that is not a 200.
func (c *completion) decodeRefused(status int, body []byte) *failure {
	b, f := c.d.lease.Backend, c.s.refused(fault.Decode, status)
	f.Handle = c.handoff.Live()
	c.handoff.Failed(nil, status, body)
	return c.refusedLeg(f, b, &c.d.x, body, c.dSegs)
}

// refusedLeg judges the refusal of a leg, and has its engine's own error for the client. Some engines quote the whole
// request in it, and no client may see what leg, its body, tells of other engines.
func (c *completion) refusedLeg(f fault.Fault, b *router.Backend, x *upstream.Exchange, body []byte, leg kvparams.Segments) *failure {
	told, asked := c.s.tellRefusal(f, c.id, b, x, body)
	if told.Raw != nil && c.req.Quoted(told.Raw, leg) {
		told.Raw = nil
	}
	failed := c.fail(b, f, told)
	failed.asked = asked
	return failed
}

func (c *completion) streamCause(err error) fault.Cause {
	ended := c.endedBy()
	var ue *upstream.Error
	timeout := errors.As(err, &ue) && ue.TimedOut()
	switch {
	case ended != fault.NoCause:
		return ended
	case errors.Is(err, upstream.ErrTooLarge):
		return tooLarge(err)
	case c.d.relay.reported && c.d.relay.broken:
		return fault.Reported
	case c.d.relay.broken:
		return fault.Unusable
	case timeout && ue.Cause == cutDown:
		return fault.Down
	case timeout && c.overdue():
		return fault.Overdue
	case timeout:
		return fault.Timeout
	}
	return fault.Broke
}

// reachedBy says how far an exchange had come.
func reachedBy(ue *upstream.Error) fault.Progress {
	switch ue.Stage {
	case upstream.StageDial:
		return fault.AtDial
	case upstream.StageWrite:
		return fault.AtRequest
	case upstream.StageHead:
		return fault.AtHead
	}
	return fault.AtBody
}

// tooLarge turns the error of readHeld or fillEvents into the cause of an answer that cannot be held.
func tooLarge(err error) fault.Cause {
	if errors.Is(err, errNoRoom) {
		return fault.NoRoom
	}
	return fault.TooLarge
}
