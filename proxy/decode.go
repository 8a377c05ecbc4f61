package proxy

import (
	"errors"
	"io"
	"time"

	"github.com/valyala/fasthttp"

	"xpyd/engines/handoff"
	"xpyd/intake/budget"
	"xpyd/kvparams"
	"xpyd/netio/upstream"
	"xpyd/proxy/fault"
	"xpyd/proxy/leg"
	"xpyd/router"
)

// decodeLeg is the second leg. It sends the client's own request with the handle, and its answer goes to the client.
type decodeLeg struct {
	*leg.Attempt
	c                    *completion
	onDown, onSourceDown func() // down and sourceDown, bound once

	tried   []*router.Backend // by this request, whatever they failed of
	refused []*router.Backend // gave no connection, or lack an image of the request, so useless for the rest of it
	failed  *router.Backend   // of the last round, if it failed with a handle
	// source watches P while D may be loading P's blocks, because D waits without a limit for a
	// P that is frozen.
	source  router.Watch
	ejected bool // D was reserved although it was ejected, because no other was to be had
	leg     kvparams.Leg
	worked  time.Duration // how long D had the request when it answered, or was given up
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
func (d *decodeLeg) alone() bool { return !d.Lease.Backend.Bound.Load() }

// decode sends the request to the reserved D and reads its answer until the client may have it: up to
// the first event that commits, or a whole checked body.
func (d *decodeLeg) decode() *leg.Failure {
	c := d.c
	for {
		if gone := c.interrupted(); gone != nil {
			c.abandon(nil)
			return leg.Ends(gone)
		}
		if err := d.swapUnfit(); err != nil {
			c.abandon(nil)
			return c.elsewhere(leg.Ends(err))
		}
		// This comes after the last wait for a slot, in which the handle has aged.
		if c.handoff.Unseen() && !c.handoff.FreshFor(d.Lease.Backend) {
			return c.fail(nil, fault.Fault{Leg: fault.Decode, At: fault.AtPool, Cause: fault.Stale, Handle: true}, nil)
		}
		b := d.Lease.Backend
		call := c.call(d.onDown)
		f := d.Run(&call, d.watched)
		c.noteSent(d.X.Sent())
		if f == nil {
			d.Lease.OnWedged(d.onDown) // the answer goes on
			return nil
		}
		d.noteTried(b, f)
		if f.Retry != fault.RetryFree {
			return f
		}
		if c.interrupted() != nil {
			return f.Final()
		}
		// No D has seen the handle, so the next one may have it.
		d.refused = append(d.refused, b)
		if err := d.reserve(b); err != nil {
			c.abandon(nil)
			return c.elsewhere(leg.Ends(err))
		}
	}
}

// noteTried notes how the leg on b failed, and has the request not ask b again.
func (d *decodeLeg) noteTried(b *router.Backend, f *leg.Failure) {
	c := d.c
	if givenUp(f.Told) && !c.times.handed.IsZero() {
		d.worked = time.Since(c.times.handed)
	}
	c.moved = c.moved || f.Moved
	if c.interrupted() == nil {
		d.tried = append(d.tried, b)
	}
}

// watched runs attempt on b, which its attempt watches, and watches P, whose blocks D may wait for.
func (d *decodeLeg) watched(b *router.Backend) *leg.Failure {
	c := d.c
	if c.handoff.Live() {
		c.handoff.Watch(&d.source, d.onSourceDown)
	} else if c.path == pathDisaggregated && c.grace().Finishes {
		d.source.On(c.p.Lease.Backend, d.onSourceDown) // also once P has answered, because D waits long for its blocks
	}
	defer d.source.Off()
	return d.attempt(b)
}

// sourceBack reads on for D's answer if err is a cut for a P that went down and is back by now. The
// cut was put off until just before the end of the lease, so P still holds the blocks for D.
func (d *decodeLeg) sourceBack(err error, deadline time.Time) error {
	c := d.c
	var ue *upstream.Error
	if !errors.As(err, &ue) || ue.Cause != leg.CutSource || ue.Stage != upstream.StageHead || c.dialect().Concurrent() || c.handoff.From().State() == router.Down || c.handoff.Gone() {
		return err
	}
	if d.X.Uncut(leg.CutSource); d.X.CutBy() != 0 {
		return err
	}
	c.handoff.Watch(&d.source, d.onSourceDown) // again, because it tells only once
	d.X.SetDeadline(deadline)
	return d.X.ReadHead()
}

// fit reports whether the reserved D should be asked. A D that was already ejected when it was reserved is
// the best that there is: without it, only those are left that have failed this request.
func (d *decodeLeg) fit() bool {
	b := d.Lease.Backend
	return b.Fit() || d.ejected && b.State() != router.Down
}

// swapUnfit reserves another D if the reserved one was ejected or went down while P worked.
func (d *decodeLeg) swapUnfit() *fault.Error {
	if d.fit() {
		return nil
	}
	d.leave()
	return d.reserve(d.Lease.Backend)
}

// leave gives up a D that has not been asked, so that another one can be reserved.
func (d *decodeLeg) leave() {
	d.tried = append(d.tried, d.Lease.Backend)
	d.Free()
}

// endAnswer ends the leg of an answer that the client has, or had a part of. Later calls do nothing.
func (d *decodeLeg) endAnswer(o router.Outcome, failed fault.Code) {
	if !d.Lease.Held() {
		return
	}
	if o == router.OK {
		d.X.Complete()
	}
	d.End(leg.End{Outcome: o, Code: failed})
}

func (d *decodeLeg) attempt(b *router.Backend) *leg.Failure {
	c := d.c
	c.state.set(stateDecoding)
	var handle kvparams.Handle
	if c.handoff.Unseen() {
		handle = c.handoff.SendTo(b)
	}
	kvparams.TellIDs(&c.req, c.carried.stream().Ask(tellsIDs(c.dialect())))
	d.own, d.ahead = max(0, d.Lease.Tokens()-d.Lease.Cached()), 0
	if c.path == pathDecodeOnly {
		d.ahead = d.Lease.Compute(d.own, c.req.Stream())
		c.dSegs = c.encoding.Load().AppendTo(c.req.AppendPlain(c.dSegs[:0]))
	} else {
		d.Lease.Pull(d.own, c.req.Stream())
		d.leg.ID, d.leg.Scratch = c.legID, d.leg.Scratch[:0]
		c.dSegs = c.dialect().AppendDecode(c.dSegs[:0], &c.req, handle, &d.leg)
	}
	deadline := time.Now().Add(c.s.bound().Timeouts.FirstEvent)
	// A handle must not reach D twice, so it gets no second try on a fresh connection. Neither does an
	// id that pairs this leg with P's.
	again := handle.None() && (c.path == pathDecodeOnly || !c.dialect().Concurrent())
	err := d.X.Do(c.s.engines.Client(b), c.request(c.dSegs, d.Attempt), deadline, again)
	c.times.handed = d.X.Wrote
	if err != nil {
		err = d.sourceBack(err, deadline)
	}
	if err == nil {
		err = d.answered()
	}
	if err == nil {
		return nil
	}
	var failed *leg.Failure
	if errors.As(err, &failed) {
		return failed
	}
	return d.broke(b, err)
}

// answered reads D's answer up to the point where the client may have it. A *failure is D's
// own. Any other error is the transport's.
func (d *decodeLeg) answered() error {
	c := d.c
	x := &d.X
	if d.relay.pooled == nil {
		d.relay.borrow(&c.s.buffers)
	}
	status := x.Head.Status
	if status == fasthttp.StatusOK && x.IsEventStream() {
		d.streamed, d.size = true, -1
		return d.firstEvents()
	}
	if d.streamed = c.carried.stream().Joined(); d.streamed && status == fasthttp.StatusOK {
		return d.flawed(fault.Unusable, nil) // the client has a part of a stream
	}
	buf, err := c.s.readHeld(x, d.relay.buf[:0], c.client, &d.held)
	d.relay.buf = buf
	switch {
	case errors.Is(err, upstream.ErrTooLarge) && d.streamed:
		return d.flawed(fault.Unusable, nil)
	case errors.Is(err, upstream.ErrTooLarge):
		return d.commitLarge(err)
	case err != nil:
		return err
	case status == fasthttp.StatusOK:
		return d.commitWhole()
	}
	return d.rejected(status, buf)
}

// commitWhole checks a complete answer and prepares it for the client.
func (d *decodeLeg) commitWhole() error {
	c := d.c
	if d.whole == nil {
		d.whole = new(kvparams.Completion)
	}
	if err := d.whole.ParseAs(c.api, d.relay.buf, c.req.Choices()); err != nil {
		c.s.log.Error().Str("request_id", c.id).Str("decode", d.Lease.Backend.URL).Msg("decode answer cannot be used: " + err.Error())
		return d.flawed(fault.Unusable, nil)
	}
	d.out = d.whole.AppendClient(d.out[:0], c.cachedTokens())
	d.size, d.large = d.out.Len(), false
	d.relay.handle = d.whole.Handle()
	d.Lease.Ended(d.whole.Usage().Completion / c.bill.choices)
	d.Lease.Backend.Answered(d.whole.Usage().Completion/c.bill.choices, time.Since(c.times.handed))
	c.commit()
	d.endAnswer(router.OK, fault.CodeNone) // D is done, so a client that reads slowly holds no place on it
	return nil
}

// commitLarge lets an answer through as it comes. It is too large to buffer, or there is no room for it, as err says.
func (d *decodeLeg) commitLarge(err error) error {
	if d.X.UntilClose() {
		return d.flawed(leg.TooLarge(err), tooLargeToHold(err))
	}
	d.large, d.size = true, max(-1, int(d.X.Head.Length))
	d.c.commit()
	return nil
}

// commit notes that D has the blocks and that its answer goes to the client. Nothing is tried
// again, so commit gives the request body back.
func (c *completion) commit() {
	c.state.set(stateCommitted)
	c.d.worked = time.Since(c.times.handed)
	c.endRetry()
	c.s.clients.Served(c.client)
	c.d.firstToken()
	if c.path == pathDecodeOnly && c.p.refusing != nil {
		c.s.engines.Refused(c.p.refusing, c.p.always, c.p.flag)
	}
	c.sawMedia()
	if c.handoff.Live() {
		pair := router.Pair{Prefill: c.handoff.From(), Decode: c.d.Lease.Backend}
		if c.snap.Pairs().Worked(pair); c.d.streamed {
			c.snap.Pairs().Took(pair, c.d.worked)
		}
		c.s.engines.Used(c.handoff.From(), c.p.extent)
		c.handoff.End(handoff.Burnt)
		c.s.metrics.Handoff(c.times.handed.Sub(c.times.prefilled))
	}
	if !c.p.beside.usesAsked() { // otherwise P may still be reading the body and writing its answer
		c.freeAsked()
	}
}

// sawMedia notes which engines have in their caches what the request names by a uuid.
func (c *completion) sawMedia() {
	ids := c.req.MediaIDs(nil, false)
	c.s.engines.SawMedia(c.d.Lease.Backend, ids)
	if c.path == pathDisaggregated {
		c.s.engines.SawMedia(c.p.Lease.Backend, ids)
	}
}

// freeAsked gives back what only the legs' requests and P's answer need.
func (c *completion) freeAsked() {
	c.freeBody()
	c.p.freeAnswer()
}

// freeAnswer gives the buffer of P's answer back. The handle has ended, or a release has it.
func (p *prefillLeg) freeAnswer() {
	p.c.s.answers.TakeBackLong(p.lent, p.buf)
	p.lent, p.buf = nil, nil
}

// freeBody gives the request's bytes back, and with them all that aliases them.
func (c *completion) freeBody() {
	if a := c.asking; a != nil {
		a.req.Reset()
		clear(a.pSegs[:cap(a.pSegs)])
		clear(a.dSegs[:cap(a.dSegs)])
		c.asking = nil
		c.s.idle.asking.Put(a)
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
func (d *decodeLeg) firstEvents() error {
	c := d.c
	r := &d.relay
	if c.carried.stream().Joined() {
		r.resume()
	} else {
		r.start(c.api, c.cachedTokens(), c.req.Choices(), c.s.cfg.Errors.ExposeUpstream)
		if s := c.carried.stream(); s.Asks() {
			r.carry = s
		}
	}
	for {
		err := d.fillEvents()
		r.cached = c.cachedTokens()
		r.scan()
		switch {
		case r.committed:
			c.commit()
			return nil
		case r.broken:
			return d.flawed(fault.Reported, nil)
		case r.done:
			return d.flawed(fault.Tokenless, nil)
		case errors.Is(err, io.EOF):
			return d.flawed(fault.Cut, nil)
		case errors.Is(err, leg.ErrNoRoom):
			return d.flawed(fault.NoRoom, fault.ErrTooLargeToHold(true))
		case err != nil:
			return err
		case int64(len(r.buf)) > c.s.cfg.Limits.Answer:
			return d.flawed(fault.TooLarge, fault.ErrEventTooLarge())
		}
	}
}
