package proxy

import (
	"time"

	"github.com/valyala/fasthttp"
	"xpyd/router"
	"xpyd/upstream"
)

// maxBroken is how many engines may break off over one request, of both pools together. What
// two have died of a third would die of, too.
const maxBroken = 2

// diedOf counts an engine that answered the request, written at wrote, with a failure and is
// gone: vLLM's server answers 500 for an engine core that has died, says so on /health, and
// ends. What came when it was known to be gone is not what it died of.
func (c *completion) diedOf(b *router.Backend, wrote time.Time) {
	since, gone := c.s.gone(b)
	if !gone {
		return
	}
	c.s.probes.suspect(b)
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
	if err == nil || !c.deadly() || err.Code != codePrefillFailed && err.Code != codeDecodeFailed {
		return err
	}
	e := newError(fasthttp.StatusBadGateway, err.Code, "", "backends broke off over this request; it is not sent to another").noRetry()
	e.cause = e.Message + ": " + err.why()
	return e
}
