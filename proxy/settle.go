package proxy

import (
	"time"

	"github.com/valyala/fasthttp"

	"xpyd/engines/handoff"
	"xpyd/netio/upstream"
	"xpyd/proxy/fault"
	"xpyd/proxy/leg"
	"xpyd/router"
)

// elsewhere returns f as a failure after which a round with engines of another connector follows, if there
// are such engines for the request. Those of this round's connector are spent.
func (c *completion) elsewhere(f *leg.Failure) *leg.Failure {
	want := c.d.want(c.d.Lease.Backend)
	if c.round.n == maxRounds || c.interrupted() != nil || c.overdue() || !c.snap.Others(want) {
		return f.Final()
	}
	return f.Then(fault.RetryPaid)
}

// fail judges a fault of backend b and does what follows from it for b and the handle. told is for
// the client. If it is nil, the client gets the usual error of the fault.
func (c *completion) fail(b *router.Backend, f fault.Fault, told *fault.Error) *leg.Failure {
	v := fault.Classify(f)
	if told == nil {
		told = f.Tell(v.Code)
	}
	if f.Leg == fault.Decode && v.Code == fault.CodeDecodeFailed && v.Retry == fault.RetryPaid {
		told.NoRetry = c.round.n == maxRounds // a client should not start a third prefill at once
	}
	if v.Died {
		x := &c.d.X
		if f.Leg == fault.Prefill {
			x = &c.p.X
		}
		c.diedOf(b, x.Wrote)
	}
	if v.Probe {
		c.s.engines.Suspect(b)
	}
	if why := f.Blame(v.Outcome); why != "" {
		c.s.engines.Journal.Failed(b, why)
	}
	if v.Outcome == router.KVLoad {
		c.snap.Pairs().Failed(router.Pair{Prefill: c.handoff.From(), Decode: b})
	}
	c.settle(v.Handle, b)
	return &leg.Failure{Verdict: v, Told: told, Moved: f.Cause == fault.Down || f.Cause == fault.Source}
}

// settle carries out the fate of the handle, or of blocks that nothing can name. b is the backend
// that failed.
func (c *completion) settle(as fault.Fate, b *router.Backend) {
	switch as {
	case fault.FateBack:
		c.abandon(nil)
	case fault.FateElsewhere:
		c.abandon(b)
	case fault.FateSuspect:
		if c.handoff.Live() {
			c.d.failed = b
		}
		c.abandon(b)
	case fault.FateBurnt:
		c.handoff.Cut(b)
	case fault.FateForbidden:
		c.handoff.Lose(handoff.OrphanHost)
	case fault.FateUnnamed:
		c.s.handoffs.Orphaned(b, handoff.OrphanUnusable)
	case fault.FateUnheard:
		c.s.handoffs.Orphaned(b, handoff.OrphanAnswerLost)
	}
}

// maxBroken is how many engines of both pools together may break off over one request. A request
// that has killed two engines would kill a third. Of legs that start together, the one that was cut may have killed its
// engine unseen. So it may be four there, in two pairs.
const maxBroken = 2

// diedOf counts engine b against the request if b failed it and is gone. If the core of an engine
// has died, vLLM's server answers 500, says so on /health, and ends. wrote is when the request was
// written. A request that came after the engine was known to be gone did not kill it.
func (c *completion) diedOf(b *router.Backend, wrote time.Time) {
	since, gone := c.s.engines.Gone(b)
	if !gone {
		return
	}
	c.s.engines.Suspect(b)
	if wrote.Before(since) {
		c.broken.Add(1)
	}
}

// brokeOff counts a P that the request may have killed. A P that has begun its answer had
// computed the prompt, so it counts only if it is gone.
func (p *prefillLeg) brokeOff(b *router.Backend, ue *upstream.Error) {
	if ue.Stage == upstream.StageBody {
		p.c.diedOf(b, p.X.Wrote)
		return
	}
	p.c.broken.Add(1)
}

// deadly reports whether the request may go to no other engine, because it may have killed maxBroken.
func (t *tries) deadly() bool { return t.broken.Load() >= maxBroken }

// nameBroken makes the error of a deadly request say that no other engine gets it. The official
// clients must not try the request again either.
func (t *tries) nameBroken(err *fault.Error) *fault.Error {
	if !t.deadly() || err.Code != fault.CodePrefillFailed && err.Code != fault.CodeDecodeFailed {
		return err
	}
	e := fault.NewError(fasthttp.StatusBadGateway, err.Code, "", "backends broke off over this request; it is not sent to another").Final()
	e.Log = e.Message + ": " + err.Why()
	return e
}
