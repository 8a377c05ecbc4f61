package proxy

import (
	"cmp"
	"errors"

	"xpyd/router"
	"xpyd/upstream"
)

// This file turns what happened to a failed leg into a fault for classify to judge.

// prefillBroke judges a prefill leg that failed in the transport or at its limits.
func (c *completion) prefillBroke(b *router.Backend, err error) *failure {
	ended, late := c.endedBy(), c.prefillLate()
	f := fault{leg: legPrefill, at: atLimit, status: c.p.x.Head.Status, cause: cmp.Or(ended, causeTooLarge)}
	var ue *upstream.Error
	if !errors.As(err, &ue) {
		return c.fail(b, f, nil)
	}
	if ue.BrokeOff() && !late { // a P whose connection was half-closed hangs up
		c.prefillBrokeOff(b, ue)
	}
	f.at, f.hungUp = reachedBy(ue), ended == causeNone && !late && !ue.TimedOut()
	switch {
	case ended != causeNone:
	case f.at == atDial && upstream.IsLocal(ue.Err):
		f.cause = causeDescriptors
	case f.at == atDial:
		f.cause = causeBroke
	case c.p.x.IsCut(cutDown):
		f.cause = causeDown
	case (late || ue.TimedOut()) && c.p.x.IsCut(cutOther):
		f.cause = causeOther
	case (late || ue.TimedOut()) && c.overdue():
		f.cause = causeOverdue
	case late || ue.TimedOut():
		f.cause = causeTimeout
	default:
		f.cause = causeBroke
	}
	failed := c.fail(b, f, nil)
	if f.cause == causeBroke {
		failed.told.cause = ue.Error()
	}
	return failed
}

// badHandle judges kv_transfer_params that D would hang or die of.
func (c *completion) badHandle(b *router.Backend, f fault, why error) *failure {
	f.cause = causeBadHandle
	c.s.failedLog.Error().Str("request_id", c.id).Str("prefill", b.URL).Msg("prefill backend gave an unusable handle: " + why.Error())
	return c.fail(b, f, nil)
}

// prefillRefused judges an answer of P that is not a 200.
func (c *completion) prefillRefused(b *router.Backend, status int) *failure {
	f := c.s.refused(legPrefill, status)
	if f.cause == causeStatus && c.req.ForcedTool() {
		f.cause = causeForced
	}
	told, asked := c.s.tellRefusal(f, c.id, b, &c.p.x, c.p.buf)
	failed := c.fail(b, f, told)
	failed.asked = asked
	return failed
}

// decodeBroke judges a failure of the transport before the client had anything.
func (c *completion) decodeBroke(b *router.Backend, err error) *failure {
	var ue *upstream.Error
	if !errors.As(err, &ue) {
		panic("BUG: decode leg failed with " + err.Error())
	}
	f := fault{leg: legDecode, at: reachedBy(ue), handle: c.handoff.Live(), cause: c.decodeCause(ue)}
	switch {
	case f.at == atDial:
		c.handoff.Unsent()
	case ue.BrokeOff():
		c.broken.Add(1)
	}
	if f.at > atDial && (f.cause == causeGone || f.cause == causeStopped) {
		f.hungUp = !ue.TimedOut() || c.d.x.HungUp()
	}
	failed := c.fail(b, f, nil)
	if f.cause == causeBroke && f.at > atDial {
		failed.told.cause = ue.Error()
	}
	return failed
}

func (c *completion) decodeCause(ue *upstream.Error) cause {
	dial, ended := ue.Stage == upstream.StageDial, c.endedBy()
	switch {
	case ended != causeNone:
		return ended
	case ue.Cause == cutOther:
		return causeOther
	case dial && upstream.IsLocal(ue.Err):
		return causeDescriptors
	case dial:
		return causeBroke
	case ue.Cause == cutSource:
		return causeSource
	case c.d.x.IsCut(cutDown):
		return causeDown
	case ue.TimedOut() && c.overdue():
		return causeOverdue
	case ue.TimedOut():
		return causeTimeout
	}
	return causeBroke
}

// decodeFlawed judges an answer of D that cannot be used. told is for the client, and nil means the
// usual text.
func (c *completion) decodeFlawed(why cause, told *apiError) *failure {
	return c.fail(c.d.lease.Backend, fault{leg: legDecode, at: atAnswer, status: c.d.x.Head.Status, cause: why, handle: c.handoff.Live()}, told)
}

// decodeRefused judges an answer of D that is not a 200.
func (c *completion) decodeRefused(status int, body []byte) *failure {
	b, f := c.d.lease.Backend, c.s.refused(legDecode, status)
	f.handle = c.handoff.Live()
	told, asked := c.s.tellRefusal(f, c.id, b, &c.d.x, body)
	failed := c.fail(b, f, told)
	failed.asked = asked
	return failed
}

func (c *completion) streamCause(err error) cause {
	ended := c.endedBy()
	var ue *upstream.Error
	timeout := errors.As(err, &ue) && ue.TimedOut()
	switch {
	case ended != causeNone:
		return ended
	case errors.Is(err, upstream.ErrTooLarge):
		return causeTooLarge
	case c.d.relay.reported && c.d.relay.broken:
		return causeReported
	case c.d.relay.broken:
		return causeUnusable
	case timeout && c.overdue():
		return causeOverdue
	case timeout:
		return causeTimeout
	}
	return causeBroke
}
