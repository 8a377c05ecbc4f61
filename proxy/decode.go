package proxy

import (
	"errors"
	"io"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
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
	down    atomic.Bool       // the active check took the backend down while the leg waited
	// source watches P while D may be loading its blocks: D waits for a P that is frozen
	// without a limit. cutOff: P went down.
	source  router.Watch
	cutOff  atomic.Bool
	mute    bool // the answer comes whole: no sign of loaded blocks
	last    bool // no round follows
	leg     kvparams.Leg
	segs    kvparams.Segments
	started time.Time
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
	held     charge // for what relay.buf holds beyond freeAnswer
	size     int    // for fasthttp: −1 is chunked
	whole    kvparams.Completion
	out      kvparams.Segments
	relay    relay
}

// decode sends the request to the reserved D and brings its answer to where the
// client can have it: a first committing event, or a whole checked body.
func (c *completion) decode() *apiError {
	for {
		if gone := c.interrupted(); gone != nil {
			c.abandon(nil)
			c.d.lease.Release(router.ClientGone)
			return gone
		}
		if err := c.swapUnfit(); err != nil {
			c.abandon(nil)
			return err
		}
		// After the last wait for a slot: the handle has aged in it.
		if c.handoff.state == handleIssued && !c.handoff.fresh() {
			c.abandon(nil)
			c.d.lease.Release(router.ClientGone)
			e := newError(fasthttp.StatusServiceUnavailable, codeHandleExpired, "", "no decode backend took the prefill before its lease ran out").retryAfter(1)
			e.again = true
			return e
		}
		b := c.d.lease.Backend
		c.d.started = time.Now()
		r := c.watchedDecode(b)
		c.reached = c.reached || c.d.x.Sent()
		if r.err == nil {
			return nil
		}
		c.endDecode(b, r.outcome, r.err.Code)
		if c.d.down.Load() || c.d.cutOff.Load() {
			c.d.x.Reset() // for the next backend
		}
		if c.interrupted() == nil {
			c.d.tried = append(c.d.tried, b)
		}
		if r.outcome != router.Refused || c.interrupted() != nil {
			return r.err
		}
		// No D has seen the handle: the next one may have it.
		c.d.refused = append(c.d.refused, b)
		if err := c.reserveDecode(); err != nil {
			c.abandon(nil)
			return err
		}
	}
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

func (c *completion) decodeAttempt(b *router.Backend) legResult {
	c.state.set(stateDecoding)
	d := &c.d
	var handle kvparams.Handle
	if c.handoff.state == handleIssued {
		handle = c.handoff.handleFor(b, c.handoff.send())
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
	err := d.x.Do(c.s.engines.client(b), c.request(d.segs), deadline, handle.None())
	c.times.handed = d.x.Wrote
	if err != nil {
		err = c.sourceBack(err, deadline)
	}
	if err == nil {
		err = c.decodeAnswered()
	}
	if err == nil {
		return legResult{}
	}
	var ae *apiError
	if !errors.As(err, &ae) {
		return c.decodeBroke(b, err)
	}
	return c.decodeRefused(b, ae)
}

// decodeRefused ends a leg that D answered with an error.
func (c *completion) decodeRefused(b *router.Backend, e *apiError) legResult {
	if e.Status < 500 || e.blameless {
		// D has normally told P already. Where its validation came first it has not,
		// and the blocks would wait for the lease; the same D lives, so it is asked.
		c.abandon(nil)
		return legResult{err: e, outcome: router.ClientFault, sent: true}
	}
	if e.Code == codeUpstreamAuth {
		c.abandon(b)
		return legResult{err: e, outcome: router.Auth, sent: true}
	}
	if e.Code == codeDecodeFailed {
		c.diedOf(b, c.d.x.Wrote)
	}
	return legResult{err: e, outcome: c.blame(b), sent: true}
}

// blame settles whose fault a failure of D before its first token is. An engine does
// not say that it could not load P's blocks, so a failure with a handle counts
// against the pair; the router finds out which of the two fails with others as well.
func (c *completion) blame(d *router.Backend) router.Outcome {
	if !c.handoff.live() {
		return router.Engine
	}
	c.snap.Pairs().Failed(router.Pair{Prefill: c.handoff.from, Decode: d})
	c.d.failed = d
	c.abandon(d)
	return router.KVLoad
}

// decodeBroke classifies a transport failure before the client had anything.
func (c *completion) decodeBroke(b *router.Backend, err error) legResult {
	var ue *upstream.Error
	if !errors.As(err, &ue) {
		panic("BUG: decode leg failed with " + err.Error())
	}
	if ue.Stage == upstream.StageDial {
		return c.decodeUndialled(b, ue)
	}
	if ue.BrokeOff() {
		c.broken.Add(1)
	}
	if gone := c.interrupted(); gone != nil {
		// D has the whole request and aborts, which frees P's blocks. A request cut
		// while it was written frees nothing, nor does a D that broke off by itself.
		if ue.Stage == upstream.StageWrite || !ue.TimedOut() || c.d.x.HungUp() {
			c.abandon(nil)
		}
		c.handoff.end(endBurnt)
		return legResult{err: gone, outcome: router.ClientGone, sent: true}
	}
	if c.d.cutOff.Load() && ue.TimedOut() {
		// D aborts the load when its connection closes, and tells P once P runs again.
		if ue.Stage == upstream.StageWrite {
			c.abandon(nil)
		}
		c.handoff.end(endBurnt)
		e := c.decodeFailed("prefill backend failed its health checks before its blocks were loaded")
		e.cause = "moved: the prefill backend's health checks failed"
		return legResult{err: e, outcome: router.ClientGone, sent: true}
	}
	if c.handoff.live() {
		c.d.failed = b
	}
	c.abandon(b)
	if c.d.down.Load() {
		e := c.decodeFailed("decode backend failed its health checks")
		e.cause = "moved: its health checks failed"
		return legResult{err: e, outcome: router.Gateway, sent: true}
	}
	if ue.TimedOut() && c.overdue() {
		return legResult{err: deadlineError(), outcome: router.ClientGone, sent: true}
	}
	if ue.TimedOut() {
		e := newError(fasthttp.StatusGatewayTimeout, codeDecodeTimeout, "", "decode backend sent no event within timeouts.first_event").noRetry()
		return legResult{err: e, outcome: router.Timeout, sent: true}
	}
	c.s.probes.suspect(b)
	e := c.decodeFailed("decode backend broke off before its first event")
	e.cause = ue.Error()
	return legResult{err: e, outcome: router.Gateway, sent: true}
}

// decodeUndialled: no connection came about, so D has not seen the handle.
func (c *completion) decodeUndialled(b *router.Backend, ue *upstream.Error) legResult {
	c.handoff.unsent()
	if gone := c.interrupted(); gone != nil {
		c.abandon(nil)
		return legResult{err: gone, outcome: router.ClientGone}
	}
	if upstream.IsLocal(ue.Err) {
		c.abandon(nil)
		return legResult{err: outOfDescriptors(), outcome: router.ClientGone}
	}
	c.s.probes.suspect(b)
	return legResult{err: c.decodeUnavailable(), outcome: router.Refused}
}

// decodeFailed is a failure that a new round may mend. After the second burnt prefill
// a client should not start a third one at once.
func (c *completion) decodeFailed(message string) *apiError {
	e := newError(fasthttp.StatusBadGateway, codeDecodeFailed, "", message)
	e.again = true
	e.NoRetry = c.round == maxRounds
	return e
}

// decodeAnswered reads D's answer up to the point where the client may have it. An
// *apiError is D's own failure, anything else the transport's.
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
	case c.s.authFailed(status):
		return c.s.upstreamAuth(c.id, c.d.lease.Backend)
	case status == fasthttp.StatusOK:
		return c.commitWhole()
	}
	return c.decodeStatus(status, buf)
}

// decodeStatus is D's own failure as the client gets it, unless another round helps.
func (c *completion) decodeStatus(status int, body []byte) *apiError {
	x := &c.d.x
	switch {
	case status == fasthttp.StatusTooManyRequests || status == fasthttp.StatusServiceUnavailable:
		e := c.s.relayed(x, body, status, codeDecodeUnavailable, "decode backend is busy")
		askedToWait(c.d.lease.Backend, e)
		e.again = true
		return e
	case status >= 400 && status < 500:
		return c.s.relayed(x, body, status, codeUpstreamRejected, "decode backend refused the request")
	case status >= 500:
		e := c.s.relayed(x, body, status, codeDecodeFailed, "decode backend failed")
		e.again, e.NoRetry = true, c.round == maxRounds
		return e
	}
	return c.decodeFailed("decode backend answered with an unexpected status")
}

// commitWhole checks a complete answer and prepares it for the client.
func (c *completion) commitWhole() error {
	d := &c.d
	if err := d.whole.Parse(d.relay.buf); err != nil {
		c.s.log.Error().Str("request_id", c.id).Str("decode", d.lease.Backend.URL).Msg("decode answer cannot be used: " + err.Error())
		return c.decodeFailed("decode backend gave an incomplete answer")
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
		return tooLargeToHold(err)
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
	if c.handoff.live() {
		c.snap.Pairs().Worked(router.Pair{Prefill: c.handoff.from, Decode: c.d.lease.Backend})
		c.handoff.end(endBurnt)
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
	c.body.free(c.s)
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
			return c.decodeFailed("decode backend reported an error before its first token")
		case r.done:
			return c.decodeFailed("decode backend ended its stream without a token")
		case errors.Is(err, io.EOF):
			return c.decodeFailed("decode backend ended its stream before its first token")
		case err != nil:
			return err
		case int64(len(r.buf)) > c.s.cfg.Limits.Answer:
			return eventTooLarge()
		}
	}
}
