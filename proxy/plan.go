package proxy

import (
	"time"

	"xpyd/fault"
	"xpyd/router"
)

// plan chooses the path as far as the request, the pools and the configuration settle it. It fails for
// a request that cannot be split, if the connector allows nothing else.
func (c *completion) plan() *fault.Error {
	c.snap = c.s.router.Snapshot()
	c.s.router.Admitted()
	switch bypass := fault.Bypassed(c.req.Bypass()); {
	case !c.snap.Pooled(router.Prefill) && c.s.dialect.DecodeOnlySafe():
		c.path, c.reason = pathDecodeOnly, fault.ReasonNoPool
	case bypass != fault.ReasonNone && !c.s.dialect.DecodeOnlySafe():
		return fault.ErrUnsplit(bypass, c.s.dialect.Name())
	case bypass != fault.ReasonNone:
		c.path, c.reason = pathDecodeOnly, bypass
	case c.s.engines.DecodeAlone() && c.snap.Splits() && c.snap.OnDecodeOnly(c.req.Model()):
		// The request does not lack a prefill that it should have, so decode_only.max_share does
		// not count it.
		c.path, c.reason = pathDecodeOnly, fault.ReasonNoModel
	default:
		c.path = pathDisaggregated
	}
	return nil
}

// choosePath settles whether a request that may have a prefill gets one. It is called after the
// decode backend is known. A second round does not change the choice.
func (c *completion) choosePath() {
	if c.path != pathDisaggregated || c.chosen || !c.s.dialect.DecodeOnlySafe() || c.s.dialect.Concurrent() {
		return
	}
	c.chosen = true
	d := c.d.lease.Backend
	prompt := router.Prompt{Tokens: c.tokens, CachedDecode: c.d.lease.Cached(), Whole: !c.req.Stream()}
	var p *router.Backend
	if c.snap.Prices() {
		want := c.want(router.Prefill, nil)
		if p = c.snap.Pick(want); p != nil { // otherwise prefill settles it, unless Decide chooses D alone
			prompt.CachedPrefill = c.snap.Cached(want, p)
		}
	}
	decision := c.snap.Decide(p, d, prompt)
	c.reason = fault.Decided(decision.Reason)
	if !decision.Split {
		c.path = pathDecodeOnly
	}
	if e := c.s.log.Debug(); e.Enabled() && p != nil {
		e.Str("request_id", c.id).Stringer("path", c.path).Stringer("reason", c.reason).Int("prompt_tokens", prompt.Tokens).
			Int("cached_prefill", prompt.CachedPrefill).Int("cached_decode", prompt.CachedDecode).
			Str("prefill", p.URL).Str("decode", d.URL).
			Float64("split_ms", decision.SplitCost*1e3).Float64("local_ms", decision.LocalCost*1e3).Msg("path priced")
	}
}

// prefilled tells the router how long the prefill leg took and for how many tokens.
func (c *completion) prefilled() {
	own := c.p.lease.Tokens()
	if a := &c.p.ans; a.CachedTokens >= 0 && a.PromptTokens > 0 {
		// P knows which part was cached. The prompt stays in estimated tokens, as prices do.
		own = int(float64(c.tokens) * max(0, 1-float64(a.CachedTokens)/float64(a.PromptTokens)))
	}
	if _, exact := c.req.PromptTokens(1); !exact {
		c.s.router.ObservePrompt(c.req.PromptBytes(), c.p.ans.PromptTokens)
	}
	c.s.router.Prefilled(c.p.lease.Ahead(), own, c.times.prefill)
}

// firstToken tells the router the time until D's first event. An answer that comes whole does not
// show it.
func (c *completion) firstToken() {
	d := &c.d
	d.lease.Computed()
	now := time.Now()
	took := now.Sub(c.times.handed)
	if !d.streamed {
		if c.path == pathDecodeOnly {
			c.s.router.Computed(d.lease.Backend, d.ahead, d.own, -1)
		}
		return
	}
	d.began, d.local = now, d.lease.Backend.LocalTime()
	if c.path == pathDecodeOnly {
		c.s.router.Computed(d.lease.Backend, d.ahead, d.own, took)
		return
	}
	c.s.router.Pulled(d.own, took)
}

// streamEnded tells the router how a complete stream went on after its first event.
func (c *completion) streamEnded() {
	d := &c.d
	c.s.router.StreamEnded(d.relay.events, d.lease.Backend.LocalTime()-d.local, time.Since(d.began))
}
