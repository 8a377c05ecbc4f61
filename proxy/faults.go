package proxy

import (
	"bytes"
	"errors"
	"slices"

	"github.com/valyala/fasthttp"

	"xpyd/kvparams"
	"xpyd/netio/upstream"
	"xpyd/proxy/fault"
	"xpyd/proxy/leg"
	"xpyd/router"
)

// This file turns what happened to a failed leg into a fault for fault.Classify to judge.

// broke judges a prefill leg that failed in the transport or at its limits.
func (p *prefillLeg) broke(b *router.Backend, err error) *leg.Failure {
	c := p.c
	w := leg.Why{Ended: c.endedBy(), Late: p.late(), Overdue: c.overdue()}
	var ue *upstream.Error
	broke := errors.As(err, &ue)
	over := w.Late || broke && ue.TimedOut()
	switch {
	case p.X.IsCut(leg.CutDown):
		w.Cut = fault.Down
	case over && p.X.IsCut(leg.CutOther):
		w.Cut = fault.Other
	}
	if broke && ue.BrokeOff() && !w.Late { // a P whose connection was half-closed hangs up
		p.brokeOff(b, ue)
	}
	f := p.Fault(err, w)
	f.HungUp = broke && !over && w.Ended == fault.NoCause
	return c.fail(b, f, explained(f, err))
}

// explained is what the client is told of an exchange that failed with err, which the log gets.
func explained(f fault.Fault, err error) *fault.Error {
	told := f.Tell(fault.Classify(f).Code)
	if f.Cause == fault.Broke {
		told.Log = err.Error()
	}
	return told
}

// badAnswer judges an answer of P that is of no use, or has kv_transfer_params that D would hang or die of.
func (p *prefillLeg) badAnswer(b *router.Backend, f fault.Fault, why error) *leg.Failure {
	c := p.c
	if f.Cause = fault.OfAnswer(why); f.Cause != fault.Ended {
		c.s.failedLog.Error().Str("request_id", c.id).Str("prefill", b.URL).Msg("prefill answer cannot be used: " + why.Error())
	}
	return c.fail(b, f, nil)
}

// rejected judges an answer of P that is not a 200.
func (p *prefillLeg) rejected(b *router.Backend, status int) *leg.Failure {
	c := p.c
	f := c.s.refused(fault.Prefill, status)
	flag, always := "", kvparams.Trait(0)
	if f.Cause == fault.Status && status < 500 {
		flag, always = kvparams.RefusingFlag(p.buf)
	}
	traits := c.req.Traits()
	switch {
	case f.Cause != fault.Status:
	case unlisted(c, b, status, p.buf, p.tried):
		f.Cause = fault.Unlisted
	case traits&kvparams.DemandsTool != 0:
		f.Cause = fault.Forced
	case status == fasthttp.StatusBadRequest && (traits != 0 || flag != ""):
		f.Cause = fault.Flags
	case status == fasthttp.StatusBadRequest && b.Shorter(c.speaks.Load()):
		f.Cause, flag = fault.Flags, "--max-model-len"
	}
	if f.Cause == fault.Flags || f.Cause == fault.Forced && flag != "" {
		p.refusing, p.flag, p.always = b, flag, always&traits
	}
	return c.refusedLeg(f, b, &p.X, p.buf, c.pSegs)
}

// broke judges a failure of the transport before the client had anything.
func (d *decodeLeg) broke(b *router.Backend, err error) *leg.Failure {
	c := d.c
	var ue *upstream.Error
	if !errors.As(err, &ue) {
		panic("BUG: decode leg failed with " + err.Error())
	}
	f := d.Fault(err, d.why(ue))
	f.Handle = c.handoff.Live()
	if c.handoff.Failed(ue, d.X.Head.Status, nil); ue.BrokeOff() {
		c.broken.Add(1)
	}
	f.HungUp = f.At > fault.AtDial && (!ue.TimedOut() || d.X.HungUp())
	if f.At > fault.AtRequest && !f.HungUp && c.interrupted() == nil && (c.overdue() || f.Cause == fault.Timeout) {
		d.X.Linger(ue, c.decodeGrace(), c.s.guard, func() {}) // as if the client had left
	}
	if f.At == fault.AtDial {
		return c.fail(b, f, nil)
	}
	return c.fail(b, f, explained(f, err))
}

// why is what is known of D's exchange that failed.
func (d *decodeLeg) why(ue *upstream.Error) leg.Why {
	w := leg.Why{Ended: d.c.endedBy(), Overdue: d.c.overdue()}
	switch {
	case ue.Cause == leg.CutOther:
		w.Cut = fault.Other
	case ue.Cause == leg.CutSource:
		w.Cut = fault.Source
	case d.X.IsCut(leg.CutDown):
		w.Cut = fault.Down
	}
	return w
}

// flawed judges an answer of D that cannot be used. told is for the client, and nil means the usual text.
func (d *decodeLeg) flawed(why fault.Cause, told *fault.Error) *leg.Failure {
	return d.c.fail(d.Lease.Backend, fault.Fault{Leg: fault.Decode, At: fault.AtAnswer, Status: d.X.Head.Status, Cause: why, Handle: d.c.handoff.Live()}, told)
}

// rejected judges an answer of D that is not a 200.
func (d *decodeLeg) rejected(status int, body []byte) *leg.Failure {
	c := d.c
	b, f := d.Lease.Backend, c.s.refused(fault.Decode, status)
	if f.Handle = c.handoff.Live(); unlisted(c, b, status, body, d.tried) {
		f.Cause = fault.Unlisted
	}
	c.handoff.Failed(nil, status, body)
	return c.refusedLeg(f, b, &d.X, body, c.dSegs)
}

// unlisted reports that b no longer has the model of the request, as one that has unloaded an adapter, and another backend
// of its role that was not tried lists it. vLLM also answers 404 for what is no model, such as a response's id.
func unlisted(c *completion, b *router.Backend, status int, body []byte, tried []*router.Backend) bool {
	model := c.req.Model()
	return status == fasthttp.StatusNotFound && model != nil && bytes.Contains(body, []byte("does not exist")) &&
		slices.ContainsFunc(c.snap.Backends(b.Role), func(x *router.Backend) bool {
			return x != b && x.State() != router.Down && !slices.Contains(tried, x) && slices.Contains(x.Models(), string(model))
		})
}

// refusedLeg judges the refusal of a leg, and has its engine's own error for the client. Some engines quote the whole
// request in it, and no client may see what sent, its body, tells of other engines.
func (c *completion) refusedLeg(f fault.Fault, b *router.Backend, x *upstream.Exchange, body []byte, sent kvparams.Segments) *leg.Failure {
	told, asked := c.s.tellRefusal(f, c.id, b, x, body)
	if told.Raw != nil && c.req.Quoted(told.Raw, sent) {
		told.Raw = nil
	}
	failed := *c.fail(b, f, told)
	failed.Asked = asked
	return &failed
}

// streamCause says what an answer failed of that the client has had a part of.
func (d *decodeLeg) streamCause(err error) fault.Cause {
	w, r := leg.Why{Ended: d.c.endedBy(), Overdue: d.c.overdue()}, &d.relay
	var ue *upstream.Error
	if errors.As(err, &ue) && ue.Cause == leg.CutDown {
		w.Cut = fault.Down
	}
	switch {
	case w.Ended != fault.NoCause, !r.broken, errors.Is(err, upstream.ErrTooLarge):
		return w.Cause(err)
	case r.reported:
		return fault.Reported
	}
	return fault.Unusable
}
