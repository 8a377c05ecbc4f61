package proxy

import (
	"errors"
	"io"
	"time"

	"github.com/valyala/fasthttp"

	"xpyd/engines/handoff"
	"xpyd/intake/budget"
	"xpyd/kvparams"
	"xpyd/metrics/trace"
	"xpyd/netio/upstream"
	"xpyd/proxy/fault"
	"xpyd/router"
)

// decodeLeg is the second leg. It sends the client's own request with the handle, and its answer goes to the client.
type decodeLeg struct {
	x       upstream.Exchange
	lease   router.Lease
	tried   []*router.Backend // by this request, whatever they failed of
	refused []*router.Backend // gave no connection, or lack an image of the request, so useless for the rest of it
	failed  *router.Backend   // of the last round, if it failed with a handle
	// source watches P while D may be loading P's blocks, because D waits without a limit for a
	// P that is frozen.
	source   router.Watch
	buffered bool // the answer comes whole, so nothing shows that the blocks are loaded
	last     bool // no round follows
	ejected  bool // D was reserved although it was ejected, because no other was to be had
	leg      kvparams.Leg
	started  time.Time
	worked   time.Duration // how long D had the request when it answered, or was given up
	span     trace.Leg
	// The router learns prices from these. own is the estimated tokens that D does not have in
	// its cache, and ahead those that it was already computing. streams is what D did at the first event.
	own, ahead int
	streams    router.Streaming

	// The answer. A streamed one is events, relayed as they come. Any other is whole, and is
	// buffered and checked unless it is too large for that.
	streamed bool
	large    bool
	held     budget.Charge        // for what relay.buf holds beyond freeAnswer, of a whole answer or of an event that has not ended
	size     int                  // for fasthttp; −1 means chunked
	whole    *kvparams.Completion // nil until the first whole answer
	out      kvparams.Segments
	relay    relay
}

// alone reports whether the round's backend serves the request without a prefill.
func (d *decodeLeg) alone() bool { return !d.lease.Backend.Bound.Load() }

// decode sends the request to the reserved D and reads its answer until the client may have it: up to
// the first event that commits, or a whole checked body.
func (c *completion) decode() *failure {
	for {
		if gone := c.interrupted(); gone != nil {
			c.abandon(nil)
			c.d.lease.Release(router.NoVerdict)
			return ends(gone)
		}
		if err := c.swapUnfit(); err != nil {
			c.abandon(nil)
			return c.elsewhere(ends(err))
		}
		// This comes after the last wait for a slot, in which the handle has aged.
		if c.handoff.Unseen() && !c.handoff.FreshFor(c.d.lease.Backend) {
			f := c.fail(nil, fault.Fault{Leg: fault.Decode, At: fault.AtPool, Cause: fault.Stale, Handle: true}, nil)
			c.d.lease.Release(f.Outcome)
			return f
		}
		b := c.d.lease.Backend
		c.d.started = time.Now()
		f := c.watchedDecode(b)
		c.noteSent(c.d.x.Sent())
		if f == nil {
			return nil
		}
		c.decodeTried(b, f)
		if f.Retry != fault.RetryFree {
			return f
		}
		if c.interrupted() != nil {
			return f.final()
		}
		// No D has seen the handle, so the next one may have it.
		c.d.refused = append(c.d.refused, b)
		if err := c.reserveDecode(b); err != nil {
			c.abandon(nil)
			return c.elsewhere(ends(err))
		}
	}
}

// decodeTried closes a leg that failed, and notes b so that the request does not ask it again.
func (c *completion) decodeTried(b *router.Backend, f *failure) {
	if givenUp(f.told) && !c.times.handed.IsZero() {
		c.d.worked = time.Since(c.times.handed)
	}
	c.endDecode(b, f.Outcome, f.Code)
	c.d.x.Uncut(cutDown, cutSource) // for the next backend
	c.moved = c.moved || f.moved
	if c.interrupted() == nil {
		c.d.tried = append(c.d.tried, b)
	}
}

// watchedDecode runs decodeAttempt and watches both engines that it depends on.
func (c *completion) watchedDecode(b *router.Backend) *failure {
	c.d.lease.OnDown(c.onDecodeDown)
	if c.d.buffered, c.d.last = !c.req.Stream(), c.round == maxRounds; c.handoff.Live() {
		c.handoff.Watch(&c.d.source, c.onSourceDown)
	} else if c.path == pathDisaggregated && c.grace().Finishes {
		c.d.source.On(c.p.lease.Backend, c.onSourceDown) // also once P has answered, because D waits long for its blocks
	}
	f := c.decodeAttempt(b)
	c.d.source.Off()
	c.d.lease.OnDown(nil)
	if f == nil {
		c.d.x.Uncut(cutDown, cutSource) // D has answered, and its answer goes on
		c.d.lease.OnWedged(c.onDecodeDown)
	}
	return f
}

// sourceBack reads on for D's answer if err is a cut for a P that went down and is back by now. The
// cut was put off until just before the end of the lease, so P still holds the blocks for D.
func (c *completion) sourceBack(err error, deadline time.Time) error {
	var ue *upstream.Error
	if !errors.As(err, &ue) || ue.Cause != cutSource || ue.Stage != upstream.StageHead || c.dialect().Concurrent() || c.handoff.From().State() == router.Down || c.handoff.Gone() {
		return err
	}
	if c.d.x.Uncut(cutSource); c.d.x.CutBy() != 0 {
		return err
	}
	c.handoff.Watch(&c.d.source, c.onSourceDown) // again, because it tells only once
	c.d.x.SetDeadline(deadline)
	return c.d.x.ReadHead()
}

// fit reports whether the reserved D should be asked. A D that was already ejected when it was reserved is
// the best that there is: without it, only those are left that have failed this request.
func (c *completion) fit() bool {
	d := c.d.lease.Backend
	return d.Fit() || c.d.ejected && d.State() != router.Down
}

// swapUnfit reserves another D if the reserved one was ejected or went down while P worked.
func (c *completion) swapUnfit() *fault.Error {
	if c.fit() {
		return nil
	}
	c.leaveDecode()
	return c.reserveDecode(c.d.lease.Backend)
}

// leaveDecode gives up a D that has not been asked, so that another one can be reserved.
func (c *completion) leaveDecode() {
	c.d.tried = append(c.d.tried, c.d.lease.Backend)
	c.d.lease.Release(router.NoVerdict)
}

// endDecode ends the leg with its connection and its lease, and counts it. Later calls do nothing.
func (c *completion) endDecode(b *router.Backend, o router.Outcome, failed fault.Code) {
	if !c.d.lease.Held() {
		return
	}
	if o == router.OK {
		c.d.x.Complete()
		c.d.x.Finish()
	} else {
		c.d.x.Drop()
	}
	c.s.metrics.Leg(fault.Decode, b, o, failed, time.Since(c.d.started))
	c.d.span.End(trace.LegEnd{ID: c.legID, Status: c.d.x.Head.Status, Outcome: o.String(), Code: failed.String()})
	c.d.lease.Release(o) // last, because a backend that has left is forgotten without a lease, and its series with it
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
		c.dSegs = c.encoding.Load().AppendTo(c.req.AppendPlain(c.dSegs[:0]))
	} else {
		d.lease.Pull(d.own, c.req.Stream())
		d.leg.ID, d.leg.Scratch = c.legID, d.leg.Scratch[:0]
		c.dSegs = c.dialect().AppendDecode(c.dSegs[:0], &c.req, handle, &d.leg)
	}
	c.trace.Leg(&d.span, "decode", b.URL, c.api.Path(), c.round, c.fields)
	deadline := time.Now().Add(c.s.bound().Timeouts.FirstEvent)
	// A handle must not reach D twice, so it gets no second try on a fresh connection. Neither does an
	// id that pairs this leg with P's.
	again := handle.None() && (c.path == pathDecodeOnly || !c.dialect().Concurrent())
	err := d.x.Do(c.s.engines.Client(b), c.request(c.dSegs, &d.span), deadline, again)
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

// decodeAnswered reads D's answer up to the point where the client may have it. A *failure is D's
// own. Any other error is the transport's.
func (c *completion) decodeAnswered() error {
	x := &c.d.x
	if c.d.relay.pooled == nil {
		c.d.relay.borrow(&c.s.buffers)
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
	if d.whole == nil {
		d.whole = new(kvparams.Completion)
	}
	if err := d.whole.ParseAs(c.api, d.relay.buf, c.req.Choices()); err != nil {
		c.s.log.Error().Str("request_id", c.id).Str("decode", d.lease.Backend.URL).Msg("decode answer cannot be used: " + err.Error())
		return c.decodeFlawed(fault.Unusable, nil)
	}
	d.out = d.whole.AppendClient(d.out[:0], c.cachedTokens())
	d.size, d.large = d.out.Len(), false
	d.relay.handle = d.whole.Handle()
	d.lease.Backend.Answered(d.whole.Usage().Completion/c.bill.choices, time.Since(c.times.handed))
	c.commit()
	c.endDecode(d.lease.Backend, router.OK, fault.CodeNone) // D is done, so a client that reads slowly holds no place on it
	return nil
}

// commitLarge lets an answer through as it comes. It is too large to buffer, or there is no room for it, as err says.
func (c *completion) commitLarge(err error) error {
	d := &c.d
	if d.x.UntilClose() {
		return c.decodeFlawed(tooLarge(err), tooLargeToHold(err))
	}
	d.large, d.size = true, max(-1, int(d.x.Head.Length))
	c.commit()
	return nil
}

// commit notes that D has the blocks and that its answer goes to the client. Nothing is tried
// again, so commit gives the request body back.
func (c *completion) commit() {
	c.state.set(stateCommitted)
	c.d.worked = time.Since(c.times.handed)
	c.endRetry()
	c.s.clients.Served(c.client)
	c.firstToken()
	if c.path == pathDecodeOnly && c.p.refusing != nil {
		c.s.engines.Refused(c.p.refusing, c.p.always, c.p.flag)
	}
	c.sawMedia()
	if c.handoff.Live() {
		pair := router.Pair{Prefill: c.handoff.From(), Decode: c.d.lease.Backend}
		if c.snap.Pairs().Worked(pair); c.d.streamed {
			c.snap.Pairs().Took(pair, c.d.worked)
		}
		c.s.engines.Used(c.handoff.From(), c.p.extent)
		c.handoff.End(handoff.Burnt)
		c.s.metrics.Handoff(c.times.handed.Sub(c.times.prefilled))
	}
	if !c.p.beside.freesAtEnd() { // P may still be reading the body and writing its answer
		c.freeAsked()
	}
}

// sawMedia notes which engines have in their caches what the request names by a uuid.
func (c *completion) sawMedia() {
	ids := c.req.MediaIDs(nil, false)
	c.s.engines.SawMedia(c.d.lease.Backend, ids)
	if c.path == pathDisaggregated {
		c.s.engines.SawMedia(c.p.lease.Backend, ids)
	}
}

// freeAsked gives back what only the legs' requests and P's answer need.
func (c *completion) freeAsked() {
	c.freeBody()
	c.freeAnswer()
}

// freeAnswer gives the buffer of P's answer back. The handle has ended, or a release has it.
func (c *completion) freeAnswer() {
	p := &c.p
	c.s.answers.TakeBackLong(p.lent, p.buf)
	p.lent, p.buf = nil, nil
}

// freeBody gives the request's bytes back, and with them all that aliases them.
func (c *completion) freeBody() {
	if a := c.asking; a != nil {
		a.req.Reset()
		clear(a.pSegs[:cap(a.pSegs)])
		clear(a.dSegs[:cap(a.dSegs)])
		c.asking = nil
		c.s.asking.Put(a)
	}
	c.body.Free(c.s.bodies)
}

// cachedTokens is the number of cached tokens that xpyd tells the client. It is P's figure, because D
// reports nothing for blocks that came from P. −1 leaves D's figure.
func (c *completion) cachedTokens() int {
	switch {
	case c.path != pathDisaggregated || !c.s.cfg.Usage.Rewrite:
		return -1
	case c.dialect().Concurrent():
		return int(c.p.beside.told.Load()) - 1
	}
	return c.p.cached
}

// firstEvents reads events until one commits, and keeps them all for the client. After a failure
// before that, the client has had nothing, so the request may be tried again.
func (c *completion) firstEvents() error {
	r := &c.d.relay
	r.start(c.api, c.cachedTokens(), c.req.Choices(), c.s.cfg.Errors.ExposeUpstream)
	for {
		err := c.fillEvents()
		r.cached = c.cachedTokens()
		r.scan()
		switch {
		case r.committed:
			c.commit()
			return nil
		case r.broken:
			return c.decodeFlawed(fault.Reported, nil)
		case r.done:
			return c.decodeFlawed(fault.Tokenless, nil)
		case errors.Is(err, io.EOF):
			return c.decodeFlawed(fault.Cut, nil)
		case errors.Is(err, errNoRoom):
			return c.decodeFlawed(fault.NoRoom, fault.ErrTooLargeToHold(true))
		case err != nil:
			return err
		case int64(len(r.buf)) > c.s.cfg.Limits.Answer:
			return c.decodeFlawed(fault.TooLarge, fault.ErrEventTooLarge())
		}
	}
}
