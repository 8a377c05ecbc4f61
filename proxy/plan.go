package proxy

import (
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
			c.p.avoidRefusing()
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
	d := c.d.Lease.Backend
	if c.req.Exceeds(d.Longest()) { // D refuses it as it refuses others, and no prefill is computed for that
		c.path, c.reason = pathDecodeOnly, fault.Bypassed(kvparams.ReasonInvalidFields)
		return
	}
	if c.snap.Splits() && c.snap.Lone(d, router.Want{Role: router.Prefill, Model: c.req.Model(), Like: d}) {
		c.path, c.reason = pathDecodeOnly, fault.ReasonNoOther
		return
	}
	prompt := router.Prompt{Tokens: c.tokens, CachedDecode: c.d.Lease.Cached(), Whole: !c.req.Stream(), AtOnce: c.dialect().Concurrent()}
	if e := c.d.Lease.Errand(); e != nil {
		take(c, e.Decision(), prompt)
		return
	}
	var p *router.Backend
	if c.snap.Prices() && !prompt.AtOnce {
		want := c.p.want(c.p.tried)
		if p = c.snap.Pick(want); p != nil { // otherwise prefill settles it, unless Decide chooses D alone
			prompt.CachedPrefill = c.snap.Cached(want, p)
		}
	}
	decision := c.snap.Decide(p, d, prompt)
	take(c, decision, prompt)
	if e := c.s.log.Debug(); e.Enabled() && p != nil {
		e.Str("request_id", c.id).Stringer("path", c.path).Stringer("reason", c.reason).Int("prompt_tokens", prompt.Tokens).
			Int("cached_prefill", prompt.CachedPrefill).Int("cached_decode", prompt.CachedDecode).Str("prefill", p.URL).Str("decode", d.URL).
			Float64("split_ms", decision.SplitCost*1e3).Float64("local_ms", decision.LocalCost*1e3).Msg("path priced")
	}
}

// take takes the way that was chosen.
func take(c *completion, decision router.Decision, prompt router.Prompt) {
	c.reason = fault.Decided(decision.Reason)
	if !decision.Split {
		c.path = pathDecodeOnly
	}
	c.d.Lease.Expect(decision, prompt)
}

// route chooses the way of a request of which nothing is settled yet, among engines without a role. Otherwise it
// returns nil.
func route(c *completion, want router.Want) *router.Errand {
	if c.path != pathDisaggregated || c.chosen || c.round.n > 1 || c.dialect().Concurrent() {
		return nil
	}
	turn(&want, c.use.Account, c.conn, &c.ctx.Request.Header, c.req.Priority())
	return router.Route(c.snap, want, c.req.MostTokens(), !c.req.Stream())
}

// price tells the router how long the prefill leg took and for how many tokens.
func (p *prefillLeg) price() {
	c := p.c
	own := p.Lease.Tokens()
	if p.cached >= 0 && p.prompt > 0 {
		// P knows which part was cached. The prompt stays in estimated tokens, as prices do.
		own = int(float64(c.tokens) * max(0, 1-float64(p.cached)/float64(p.prompt)))
	}
	c.bill.counted(c.s.router, p.prompt)
	c.s.router.Prefilled(p.Lease.Ahead(), own, c.times.prefill)
	router.Paced(p.Lease.Backend, router.WorkPrefill, p.Lease.Ahead()+own, c.times.prefill)
}

// firstToken tells the router the time until D's first event. An answer that comes whole does not show it.
func (d *decodeLeg) firstToken() {
	c := d.c
	d.Lease.Computed()
	took := time.Since(c.times.handed)
	switch {
	case c.path == pathDecodeOnly && d.streamed && c.req.Bypass() == kvparams.ReasonNone:
		c.s.router.Computed(d.Lease.Backend, d.ahead, d.own, took)
	case c.path == pathDecodeOnly: // several prompts begin before all are computed, and a stored one is longer than it looks
		c.s.router.Computed(d.Lease.Backend, d.ahead, d.own, -1)
	case d.streamed && !c.dialect().Concurrent(): // otherwise the time has P's prefill in it
		c.s.router.Pulled(d.Lease.Beside(), d.own, took)
		router.Paced(d.Lease.Backend, router.WorkTransfer, d.Lease.Beside()+d.own, took)
	}
	d.streams = d.Lease.Backend.Streams() // its own prompt is over, and does not pause it
}

// streamEnded tells the router how a complete stream went on after its first event.
func (d *decodeLeg) streamEnded() {
	d.Lease.Ended(d.relay.content / d.relay.choices)
	if d.c.carried.stream().Times() > 0 { // a part of it came from another engine
		return
	}
	d.c.s.router.StreamEnded(d.Lease.Backend, d.streams, d.relay.events/d.relay.choices)
	d.Lease.Backend.Answered(d.relay.content/d.relay.choices, time.Since(d.c.times.handed)-d.relay.waited)
	router.Paced(d.Lease.Backend, router.WorkStep, d.relay.events/d.relay.choices-1, time.Since(d.c.times.first)-d.relay.waited)
}

// dialect is how the engines of this round hand blocks over. Both have one connector.
func (c *completion) dialect() kvparams.Dialect {
	if d := c.speaks.Load(); d != nil {
		return c.s.dialects.Of(d.Connector)
	}
	return c.s.dialects.Of("")
}

// reserve takes a lease on a decode backend. It prefers one that was not tried before. Where the round
// has begun, like is its former D, and the other one must have the same connector.
func (d *decodeLeg) reserve(like *router.Backend) *fault.Error {
	c := d.c
	if d.Lease.Held() {
		return nil
	}
	want := d.want(like)
	errand := route(c, want)
	want.To = errand.To(router.Decode)
	defer func() { d.Lease.Follow(errand) }() // or end it, if it is on another D
	if d.Take(c.snap, want) != nil {
		want.Skip = d.refused
		if err := d.Acquire(c.snap, want, inQueue{c}); err != nil {
			return d.denied(err)
		}
	}
	d.ejected = d.Lease.Backend.Ejected()
	c.speaks.Store(d.Lease.Backend)
	return nil
}

// want returns what a decode leg asks of its pool, with another D preferred to those that were tried.
func (d *decodeLeg) want(like *router.Backend) router.Want {
	c := d.c
	want := c.want(router.Decode, d.tried)
	want.Like, want.Gone, want.Unbound = like, c.p.tried, c.path == pathDecodeOnly || c.degraded
	want.Alone, want.Degraded = c.path == pathDecodeOnly || c.degraded || !c.snap.Splits(), c.degraded
	switch {
	case c.handoff.Live():
		want.Peer = c.handoff.From()
	case c.p.beside.ended != nil:
		want.Peer = c.p.Lease.Backend
	}
	return want
}

// want returns what a prefill leg asks of its pool: a P that D can take blocks from.
func (p *prefillLeg) want(tried []*router.Backend) router.Want {
	want := p.c.want(router.Prefill, tried)
	want.Like, want.To = p.c.d.Lease.Backend, p.c.d.Lease.Errand().To(router.Prefill)
	return want
}

// want returns what a leg of the request asks of its pool. It is valid until the request is answered.
func (c *completion) want(role router.Role, skip []*router.Backend) router.Want {
	w := router.Want{Role: role, Skip: skip, Tokens: c.tokens, Model: c.req.Model(), Key: c.session(c.snap.AffinityHeaders())}
	if c.snap.Remembers(role) {
		block := router.PrefixBlock(c.snap)
		w.Prefix, w.Conversation = c.req.Blocks(block), c.req.Conversation(block)
	}
	return w
}

// session returns the key of the affinity header that ties the client's requests together, or 0
// without one.
func (c *completion) session(headers []string) uint64 {
	if c.ctx == nil {
		return c.carried.place.session
	}
	for _, name := range headers {
		if v := c.ctx.Request.Header.Peek(name); len(v) > 0 {
			return router.KeyOf(v)
		}
	}
	return 0
}

// inQueue is a completion that waits in the queue for a backend.
type inQueue struct{ c *completion }

// Line has the completion wait in its client's turn, until its time is over.
func (q inQueue) Line(w *router.Want) (time.Time, <-chan struct{}) {
	c := q.c
	if c.ctx == nil {
		w.Flow, w.Priority = c.carried.place.flow, c.carried.place.priority
	} else {
		turn(w, c.use.Account, c.conn, &c.ctx.Request.Header, c.req.Priority())
	}
	return c.times.end, c.ending()
}

// Waited counts a wait.
func (q inQueue) Waited(role router.Role, d time.Duration) {
	q.c.times.dequeued = time.Now()
	q.c.times.queued += d
	q.c.s.metrics.Queued(int(role), d)
}
