package proxy

import (
	"errors"
	"io"
	"time"

	"github.com/valyala/fasthttp"

	"xpyd/budget"
	"xpyd/handoff"
	"xpyd/kvparams"
	"xpyd/router"
	"xpyd/upstream"
)

// decodeLeg is the second leg: the client's own request with the handle, whose answer
// goes to the client.
type decodeLeg struct {
	x       upstream.Exchange
	lease   router.Lease
	tried   []*router.Backend // by this request, for whatever reason they failed
	refused []*router.Backend // no connection: useless for the rest of the request
	failed  *router.Backend   // the last round's, if it failed with a handle
	// source watches P while D may be loading its blocks: D waits for a P that is frozen
	// without a limit.
	source   router.Watch
	buffered bool // the answer comes whole: no sign of loaded blocks
	last     bool // no round follows
	leg      kvparams.Leg
	segs     kvparams.Segments
	started  time.Time
	// What the router learns prices from: estimated tokens that D does not have in its
	// cache, those that it was computing before, the first event's time, and the time that
	// D had spent on prefills by then.
	own, ahead int
	began      time.Time
	local      time.Duration

	// The answer. streamed: events, relayed as they come. Else whole: buffered and
	// checked, or too large for that.
	streamed bool
	large    bool
	held     budget.Charge // for what relay.buf holds beyond freeAnswer
	size     int           // for fasthttp: −1 is chunked
	whole    kvparams.Completion
	out      kvparams.Segments
	relay    relay
}

// decode sends the request to the reserved D and brings its answer to where the
// client can have it: a first committing event, or a whole checked body.
func (c *completion) decode() *failure {
	for {
		if gone := c.interrupted(); gone != nil {
			c.abandon(nil)
			c.d.lease.Release(router.ClientGone)
			return ends(gone)
		}
		if err := c.swapUnfit(); err != nil {
			c.abandon(nil)
			return ends(err)
		}
		// After the last wait for a slot: the handle has aged in it.
		if c.handoff.Unseen() && !c.handoff.Fresh() {
			f := c.fail(nil, fault{leg: legDecode, at: atPool, cause: causeStale, handle: true}, nil)
			c.d.lease.Release(f.outcome)
			return f
		}
		b := c.d.lease.Backend
		c.d.started = time.Now()
		f := c.watchedDecode(b)
		c.reached = c.reached || c.d.x.Sent()
		if f == nil {
			return nil
		}
		c.decodeTried(b, f)
		if f.retry != retryFree {
			return f
		}
		if c.interrupted() != nil {
			return f.final()
		}
		// No D has seen the handle: the next one may have it.
		c.d.refused = append(c.d.refused, b)
		if err := c.reserveDecode(); err != nil {
			c.abandon(nil)
			return ends(err)
		}
	}
}

// decodeTried closes a leg that failed, and keeps the request from asking b again.
func (c *completion) decodeTried(b *router.Backend, f *failure) {
	c.endDecode(b, f.outcome, f.code)
	c.d.x.Uncut(cutDown, cutSource) // for the next backend
	c.moved = c.moved || f.moved
	if c.interrupted() == nil {
		c.d.tried = append(c.d.tried, b)
	}
}

// watchedDecode is decodeAttempt while both engines that it depends on are watched.
func (c *completion) watchedDecode(b *router.Backend) *failure {
	c.d.lease.OnDown(c.onDecodeDown)
	if c.d.buffered, c.d.last = !c.req.Stream(), c.round == maxRounds; c.handoff.Live() {
		c.d.source.On(c.handoff.From(), c.onSourceDown)
	}
	f := c.decodeAttempt(b)
	c.d.source.Off()
	c.d.lease.OnDown(nil)
	if f == nil {
		c.d.x.Uncut(cutDown, cutSource) // D has answered: its answer goes on
	}
	return f
}

// sourceBack reads on for D's answer after err, where that is a cut which was put off and P
// has come back by now: the blocks were still D's.
func (c *completion) sourceBack(err error, deadline time.Time) error {
	var ue *upstream.Error
	if !errors.As(err, &ue) || ue.Cause != cutSource || ue.Stage != upstream.StageHead || c.handoff.From().State() == router.Down {
		return err
	}
	if c.d.x.Uncut(cutSource); c.d.x.CutBy() != 0 {
		return err
	}
	c.d.source.On(c.handoff.From(), c.onSourceDown) // which tells once
	c.d.x.SetDeadline(deadline)
	return c.d.x.ReadHead()
}

// swapUnfit changes the reserved D if it was ejected or went down while P worked.
func (c *completion) swapUnfit() *apiError {
	b := c.d.lease.Backend
	if b.Fit() {
		return nil
	}
	c.d.lease.Release(router.ClientGone)
	c.d.tried = append(c.d.tried, b)
	return c.reserveDecode()
}

// endDecode closes the leg: connection, lease, count. Later calls do nothing.
func (c *completion) endDecode(b *router.Backend, o router.Outcome, failed code) {
	if !c.d.lease.Held() {
		return
	}
	if o == router.OK {
		c.d.x.Finish()
	} else {
		c.d.x.Drop()
	}
	c.s.metrics.Leg(legDecode, b, o, failed, time.Since(c.d.started))
	c.d.lease.Release(o) // last: without a lease a backend that has left is forgotten, and its series with it
}

func (c *completion) decodeAttempt(b *router.Backend) *failure {
	c.state.set(stateDecoding)
	d := &c.d
	var handle kvparams.Handle
	if c.handoff.Unseen() {
		handle = c.handoff.SendTo(b)
	}
	d.own, d.ahead = max(0, d.lease.Tokens()-d.lease.Cached()), 0
	if c.path == pathDecodeOnly {
		d.ahead = d.lease.Compute(d.own, c.req.Stream())
		d.segs = c.req.AppendPlain(d.segs[:0])
	} else {
		d.leg.ID, d.leg.Scratch = c.legID, d.leg.Scratch[:0]
		d.segs = c.s.dialect.AppendDecode(d.segs[:0], &c.req, handle, &d.leg)
	}
	deadline := time.Now().Add(c.s.cfg.Timeouts.FirstEvent)
	// A handle must not reach D twice: no second try on a fresh connection.
	err := d.x.Do(c.s.engines.Client(b), c.request(d.segs), deadline, handle.None())
	c.times.handed = d.x.Wrote
	if err != nil {
		err = c.sourceBack(err, deadline)
	}
	if err == nil {
		err = c.decodeAnswered()
	}
	if err == nil {
		return nil
	}
	var failed *failure
	if errors.As(err, &failed) {
		return failed
	}
	return c.decodeBroke(b, err)
}

// decodeAnswered reads D's answer up to the point where the client may have it. A
// *failure is D's own, anything else the transport's.
func (c *completion) decodeAnswered() error {
	x := &c.d.x
	if c.d.relay.pooled == nil {
		c.s.buffers.get(&c.d.relay)
	}
	status := x.Head.Status
	if status == fasthttp.StatusOK && x.IsEventStream() {
		c.d.streamed, c.d.size = true, -1
		return c.firstEvents()
	}
	c.d.streamed = false
	buf, err := c.s.readHeld(x, c.d.relay.buf[:0], c.client, &c.d.held)
	c.d.relay.buf = buf
	switch {
	case errors.Is(err, upstream.ErrTooLarge):
		return c.commitLarge(err)
	case err != nil:
		return err
	case status == fasthttp.StatusOK:
		return c.commitWhole()
	}
	return c.decodeRefused(status, buf)
}

// commitWhole checks a complete answer and prepares it for the client.
func (c *completion) commitWhole() error {
	d := &c.d
	if err := d.whole.Parse(d.relay.buf); err != nil {
		c.s.log.Error().Str("request_id", c.id).Str("decode", d.lease.Backend.URL).Msg("decode answer cannot be used: " + err.Error())
		return c.decodeFlawed(causeUnusable, nil)
	}
	d.out = d.whole.AppendClient(d.out[:0], c.cachedTokens())
	d.size, d.large = d.out.Len(), false
	d.relay.handle = d.whole.Handle()
	c.commit()
	c.endDecode(d.lease.Backend, router.OK, codeNone) // D is done: a client that reads slowly holds no place on it
	return nil
}

// commitLarge lets an answer through as it comes that is too large to buffer, or for which
// there is no room, as err says.
func (c *completion) commitLarge(err error) error {
	d := &c.d
	if d.x.UntilClose() {
		return c.decodeFlawed(tooLarge(err), tooLargeToHold(err))
	}
	d.large, d.size = true, int(d.x.Head.Length)
	if d.size < 0 {
		d.size = -1
	}
	c.commit()
	return nil
}

// commit: D has the blocks and its answer is the client's. Nothing is tried again, so
// the request body is given back.
func (c *completion) commit() {
	c.state.set(stateCommitted)
	c.endRetry()
	c.firstToken()
	if c.handoff.Live() {
		c.snap.Pairs().Worked(router.Pair{Prefill: c.handoff.From(), Decode: c.d.lease.Backend})
		c.handoff.End(handoff.Burnt)
		c.s.metrics.Handoff(c.times.handed.Sub(c.times.prefilled))
	}
	if !c.s.dialect.Concurrent() { // else P may still be reading the one and writing the other
		c.freeBody()
		c.freeAnswer()
	}
}

// freeAnswer gives P's answer back; the handle has ended, or is another's.
func (c *completion) freeAnswer() {
	p := &c.p
	c.s.answers.takeBack(p.lent, p.buf)
	p.lent, p.buf = nil, nil
	p.ans = kvparams.Answer{CachedTokens: p.ans.CachedTokens}
}

// freeBody gives the request's bytes back, with all that aliases them.
func (c *completion) freeBody() {
	c.req.Reset()
	clear(c.p.segs)
	clear(c.d.segs)
	c.body.Free(c.s.bodies)
}

// cachedTokens is what the client is told about prefix cache hits: P's figure, as D
// reports nothing for blocks that came from P. −1 leaves D's.
func (c *completion) cachedTokens() int {
	if c.path != pathDisaggregated || !c.s.cfg.Usage.Rewrite || !c.s.dialect.HandleInAnswer() {
		return -1
	}
	return c.p.ans.CachedTokens
}

// firstEvents reads events until one commits, and keeps them all for the client. A
// failure before that is no answer at all and may be tried again.
func (c *completion) firstEvents() error {
	r := &c.d.relay
	r.start(c.cachedTokens(), c.req.Choices(), c.s.cfg.Errors.ExposeUpstream)
	for {
		buf, err := c.d.x.Fill(r.buf)
		r.buf = buf
		r.scan()
		switch {
		case r.committed:
			c.commit()
			return nil
		case r.broken:
			return c.decodeFlawed(causeReported, nil)
		case r.done:
			return c.decodeFlawed(causeTokenless, nil)
		case errors.Is(err, io.EOF):
			return c.decodeFlawed(causeCut, nil)
		case err != nil:
			return err
		case int64(len(r.buf)) > c.s.cfg.Limits.Answer:
			return c.decodeFlawed(causeTooLarge, eventTooLarge())
		}
	}
}
