package proxy

import (
	"time"

	"github.com/valyala/fasthttp"

	"xpyd/handoff"
	"xpyd/router"
	"xpyd/upstream"
)

// failure is a leg that failed, or what kept it from its begin.
type failure struct {
	verdict
	told *apiError // what the client gets unless something else is tried
	// asked is how long the backend wants to be left alone (its Retry-After).
	asked time.Duration
	moved bool // health checks took a backend down
}

// Error makes a failure usable where an error is returned.
func (f *failure) Error() string { return f.told.Error() }

// final is f when nobody is left to ask.
func (f *failure) final() *failure {
	f.retry = retryNever
	return f
}

// ends is a failure after which nothing is tried, whosever it is.
func ends(e *apiError) *failure {
	return &failure{verdict: verdict{code: e.Code, outcome: router.ClientGone}, told: e}
}

// fail judges a fault of backend b and does what follows from that for b and the handle. told is
// for the client; nil: the usual text.
func (c *completion) fail(b *router.Backend, f fault, told *apiError) *failure {
	v := classify(f)
	if told == nil {
		told = f.tell(v.code)
	}
	if f.leg == legDecode && v.code == codeDecodeFailed && v.retry == retryPaid {
		told.NoRetry = c.round == maxRounds // a client should not start a third prefill at once
	}
	if v.died {
		x := &c.d.x
		if f.leg == legPrefill {
			x = &c.p.x
		}
		c.diedOf(b, x.Wrote)
	}
	if v.probe {
		c.s.engines.Suspect(b)
	}
	if v.outcome == router.KVLoad {
		c.snap.Pairs().Failed(router.Pair{Prefill: c.handoff.From(), Decode: b})
	}
	c.settle(v.handle, b)
	return &failure{verdict: v, told: told, moved: f.cause == causeDown || f.cause == causeSource}
}

// settle has the handle, or blocks that nobody can name, go their way. b has failed.
func (c *completion) settle(as fate, b *router.Backend) {
	switch as {
	case fateBack:
		c.abandon(nil)
	case fateElsewhere:
		c.abandon(b)
	case fateSuspect:
		if c.handoff.Live() {
			c.d.failed = b
		}
		c.abandon(b)
	case fateBurnt:
		c.handoff.End(handoff.Burnt)
	case fateForbidden:
		c.handoff.Lose(handoff.OrphanHost)
	case fateUnnamed:
		c.s.metrics.Orphan(handoff.OrphanUnusable)
	case fateUnheard:
		c.s.metrics.Orphan(handoff.OrphanAnswerLost)
	}
}

// maxBroken is how many engines may break off over one request, of both pools together. What
// two have died of a third would die of, too.
const maxBroken = 2

// diedOf counts an engine that answered the request, written at wrote, with a failure and is
// gone: vLLM's server answers 500 for an engine core that has died, says so on /health, and
// ends. What came when it was known to be gone is not what it died of.
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

// prefillBrokeOff counts a P that may have died of the request. One that has begun its answer
// had computed the prompt: it counts only if it is gone.
func (c *completion) prefillBrokeOff(b *router.Backend, ue *upstream.Error) {
	if ue.Stage == upstream.StageBody {
		c.diedOf(b, c.p.x.Wrote)
		return
	}
	c.broken.Add(1)
}

// deadly reports that no other engine may have the request.
func (c *completion) deadly() bool { return c.broken.Load() >= maxBroken }

// nameBroken has the error of a request that no other engine may have say so. The official
// clients must not try it again either.
func (c *completion) nameBroken(err *apiError) *apiError {
	if !c.deadly() || err.Code != codePrefillFailed && err.Code != codeDecodeFailed {
		return err
	}
	e := newError(fasthttp.StatusBadGateway, err.Code, "", "backends broke off over this request; it is not sent to another").noRetry()
	e.cause = e.Message + ": " + err.why()
	return e
}
