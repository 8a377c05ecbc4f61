package proxy

import (
	"errors"
	"time"

	"github.com/valyala/fasthttp"

	"xpyd/kvparams"
	"xpyd/proxy/fault"
	"xpyd/router"
)

// plan chooses the path as far as the request, the pools and the configuration settle it. It fails for
// a request that cannot be split, if no decode engine serves it alone.
func (c *completion) plan() *fault.Error {
	c.snap = c.s.router.Snapshot()
	c.s.router.Admitted()
	alone := c.snap.StandAlone(c.req.Model())
	switch bypass := fault.Bypassed(c.req.Bypass()); {
	case c.snap.RoleOf(c.req.Model()) == router.Prefill:
		c.s.engines.ModelMissed()
		return fault.NewError(fasthttp.StatusNotFound, fault.CodeModelNotFound, "model", "no decode engine serves this model")
	case !c.snap.Pooled(router.Prefill) && alone:
		c.path, c.reason = pathDecodeOnly, fault.ReasonNoPool
	case bypass != fault.ReasonNone && !alone:
		return fault.ErrUnsplit(bypass)
	case bypass != fault.ReasonNone:
		c.path, c.reason = pathDecodeOnly, bypass
	case c.s.cfg.DecodeOnly.Enabled && alone && c.snap.Splits() && c.snap.OnDecodeOnly(c.req.Model()):
		// The request does not lack a prefill that it should have, so decode_only.max_share does not count it.
		c.path, c.reason = pathDecodeOnly, fault.ReasonNoModel
	default:
		c.path = pathDisaggregated
		if alone {
			c.avoidRefusing()
		}
	}
	if ids := c.req.MediaIDs(nil, true); len(ids) > 0 { // engines that have not had these refuse them
		c.p.tried = append(c.p.tried, c.s.engines.WithoutMedia(c.snap.Backends(router.Prefill), ids)...)
		lack := c.s.engines.WithoutMedia(c.snap.Backends(router.Decode), ids)
		c.d.tried, c.d.refused = append(c.d.tried, lack...), append(c.d.refused, lack...)
	}
	return nil
}

// choosePath settles whether a request that may have a prefill gets one. It is called after the
// decode backend is known. A second round does not change the choice.
func (c *completion) choosePath() {
	if c.path != pathDisaggregated || c.chosen || !c.d.alone() {
		return
	}
	c.chosen = true
	d := c.d.lease.Backend
	if c.req.Exceeds(d.Longest()) { // D refuses it as it refuses others, and no prefill is computed for that
		c.path, c.reason = pathDecodeOnly, fault.Bypassed(kvparams.ReasonInvalidFields)
		return
	}
	if c.snap.Splits() && c.snap.Lone(d, router.Want{Role: router.Prefill, Model: c.req.Model(), Like: d}) {
		c.path, c.reason = pathDecodeOnly, fault.ReasonNoOther
		return
	}
	prompt := router.Prompt{Tokens: c.tokens, CachedDecode: c.d.lease.Cached(), Whole: !c.req.Stream(), AtOnce: c.dialect().Concurrent()}
	var p *router.Backend
	if c.snap.Prices() && !prompt.AtOnce {
		want := c.wantPrefill(c.p.tried)
		if p = c.snap.Pick(want); p != nil { // otherwise prefill settles it, unless Decide chooses D alone
			prompt.CachedPrefill = c.snap.Cached(want, p)
		}
	}
	decision := c.snap.Decide(p, d, prompt)
	c.reason = fault.Decided(decision.Reason)
	if !decision.Split {
		c.path = pathDecodeOnly
	}
	c.d.lease.Expect(decision, prompt)
	if e := c.s.log.Debug(); e.Enabled() && p != nil {
		e.Str("request_id", c.id).Stringer("path", c.path).Stringer("reason", c.reason).Int("prompt_tokens", prompt.Tokens).
			Int("cached_prefill", prompt.CachedPrefill).Int("cached_decode", prompt.CachedDecode).Str("prefill", p.URL).Str("decode", d.URL).
			Float64("split_ms", decision.SplitCost*1e3).Float64("local_ms", decision.LocalCost*1e3).Msg("path priced")
	}
}

// prefilled tells the router how long the prefill leg took and for how many tokens.
func (c *completion) prefilled() {
	own := c.p.lease.Tokens()
	if c.p.cached >= 0 && c.p.prompt > 0 {
		// P knows which part was cached. The prompt stays in estimated tokens, as prices do.
		own = int(float64(c.tokens) * max(0, 1-float64(c.p.cached)/float64(c.p.prompt)))
	}
	if _, exact := c.req.PromptTokens(1, 0); !exact {
		size, media := c.req.PromptText()
		c.s.router.ObservePrompt(size, media, c.p.prompt)
	}
	c.s.router.Prefilled(c.p.lease.Ahead(), own, c.times.prefill)
}

// firstToken tells the router the time until D's first event. An answer that comes whole does not show it.
func (c *completion) firstToken() {
	d := &c.d
	d.lease.Computed()
	took := time.Since(c.times.handed)
	switch {
	case c.path == pathDecodeOnly && d.streamed && c.req.Bypass() == kvparams.ReasonNone:
		c.s.router.Computed(d.lease.Backend, d.ahead, d.own, took)
	case c.path == pathDecodeOnly: // several prompts begin before all are computed, and a stored one is longer than it looks
		c.s.router.Computed(d.lease.Backend, d.ahead, d.own, -1)
	case d.streamed && !c.dialect().Concurrent(): // otherwise the time has P's prefill in it
		c.s.router.Pulled(d.lease.Beside(), d.own, took)
	}
	d.streams = d.lease.Backend.Streams() // its own prompt is over, and does not pause it
}

// streamEnded tells the router how a complete stream went on after its first event.
func (c *completion) streamEnded() {
	d := &c.d
	c.s.router.StreamEnded(d.lease.Backend, d.streams, d.relay.events/d.relay.choices)
	d.lease.Backend.Answered(d.relay.content/d.relay.choices, time.Since(c.times.handed)-d.relay.waited)
}

// dialect is how the engines of this round hand blocks over. Both have one connector.
func (c *completion) dialect() kvparams.Dialect {
	if d := c.speaks.Load(); d != nil {
		return c.s.dialects.Of(d.Connector)
	}
	return c.s.dialects.Of("")
}

// reserveDecode takes a lease on a decode backend. It prefers one that was not tried before. Where the round
// has begun, like is its former D, and the other one must have the same connector.
func (c *completion) reserveDecode(like *router.Backend) *fault.Error {
	if c.d.lease.Held() {
		return nil
	}
	want := c.wantDecode(like)
	if c.snap.AcquireFor(want, &c.d.lease) != nil {
		want.Skip = c.d.refused
		if err := c.acquire(want, &c.d.lease); err != nil {
			return c.decodeDenied(err)
		}
	}
	c.d.started, c.d.ejected = time.Now(), c.d.lease.Backend.Ejected()
	c.speaks.Store(c.d.lease.Backend)
	return nil
}

// wantDecode returns what a decode leg asks of its pool, with another D preferred to those that were tried.
func (c *completion) wantDecode(like *router.Backend) router.Want {
	want := c.want(router.Decode, c.d.tried)
	want.Like, want.Gone, want.Unbound = like, c.p.tried, c.path == pathDecodeOnly || c.degraded
	want.Alone, want.Degraded = c.path == pathDecodeOnly || c.degraded || !c.snap.Splits(), c.degraded
	switch {
	case c.handoff.Live():
		want.Peer = c.handoff.From()
	case c.p.beside.result != nil:
		want.Peer = c.p.lease.Backend
	}
	return want
}

// wantPrefill returns what a prefill leg asks of its pool: a P that D can take blocks from.
func (c *completion) wantPrefill(tried []*router.Backend) router.Want {
	want := c.want(router.Prefill, tried)
	want.Like = c.d.lease.Backend
	return want
}

// want returns what a leg of the request asks of its pool. It is valid until the request is answered.
func (c *completion) want(role router.Role, skip []*router.Backend) router.Want {
	w := router.Want{Role: role, Skip: skip, Tokens: c.tokens, Model: c.req.Model(), Key: c.session()}
	if c.snap.Remembers(role) {
		w.Prefix, w.Conversation = c.req.Blocks(), c.req.Conversation()
	}
	return w
}

// session returns the key of the affinity header that ties the client's requests together, or 0
// without one.
func (c *completion) session() uint64 {
	for _, name := range c.snap.AffinityHeaders() {
		if v := c.ctx.Request.Header.Peek(name); len(v) > 0 {
			return router.KeyOf(v)
		}
	}
	return 0
}

// acquire takes a lease. If all backends are full, it waits in the queue for one.
func (c *completion) acquire(want router.Want, l *router.Lease) error {
	err := c.snap.AcquireFor(want, l)
	if line := c.snap.Queue(); line.Length > 0 && errors.Is(err, router.ErrBusy) {
		queued := time.Now()
		line.Wait = min(line.Wait, c.times.end.Sub(queued))
		turn(&want, c.use.Account, c.conn, &c.ctx.Request.Header, c.req.Priority())
		err = c.snap.AcquireWait(want, l, line, c.ending())
		c.times.dequeued = time.Now()
		waited := c.times.dequeued.Sub(queued)
		c.times.queued += waited
		c.s.metrics.Queued(int(want.Role), waited)
	}
	return err
}

// ending returns a channel that is closed when the completion is interrupted. It is made on demand,
// as few completions wait.
func (c *completion) ending() <-chan struct{} {
	c.queued.Lock()
	defer c.queued.Unlock()
	if c.done == nil {
		c.done = make(chan struct{})
	}
	if c.interrupted() != nil {
		c.wake()
	}
	return c.done
}

// wake closes done once. The caller holds queued.
func (c *completion) wake() {
	if c.done != nil && !c.woken {
		c.woken = true
		close(c.done)
	}
}

// leaveQueue ends the wait of a completion that was interrupted.
func (c *completion) leaveQueue() {
	c.queued.Lock()
	defer c.queued.Unlock()
	c.wake()
}
