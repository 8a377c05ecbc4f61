package proxy

import (
	"errors"
	"time"

	"github.com/valyala/fasthttp"

	"xpyd/engines/handoff"
	"xpyd/kvparams"
	"xpyd/metrics/trace"
	"xpyd/netio/upstream"
	"xpyd/proxy/fault"
	"xpyd/router"
)

// maxPrefillAttempts bounds how many prefills one round starts. A backend that refuses the connection
// does not count.
const maxPrefillAttempts = 2

// prefillLeg is the first leg. It asks for one token, not streamed, and its answer holds a handle.
type prefillLeg struct {
	x     upstream.Exchange
	lease router.Lease
	tried []*router.Backend
	// attempts is how many P have failed in this round, without those that refused the connection.
	attempts int
	again    bool // a P has failed, and another was asked
	leg      kvparams.Leg
	buf      []byte  // P's answer; the handle aliases it
	lent     *[]byte // to return buf with
	span     trace.Leg
	// cached and prompt are the tokens that P says it found in its cache, and those of the prompt; −1: unknown.
	cached, prompt int
	extent         kvparams.Extent // of the handle
	known          bool            // that its blocks hold the prompt
	// beside is for a leg that runs at the same time as D's.
	beside beside
	// refusing is a P that has refused what a flag may forbid. flag is the one that P blames, and always what it then
	// refuses each time. D's answer tells whether that is so.
	refusing *router.Backend
	flag     string
	always   kvparams.Trait
	// refused: a P is known to refuse the like of the request. It is in tried for this.
	refused bool
	// suspect: a D failed with the handle of the last round's P. That P is in tried for this.
	suspect bool
}

// prefill gets a handle from a P, or settles that the request goes to D alone.
func (c *completion) prefill() *failure {
	c.state.set(statePrefilling)
	c.suspectPrefill()
	c.buildPrefill()
	var last *failure
	for {
		want := c.wantPrefill(c.p.tried)
		want.Peer = c.d.lease.Backend
		if err := c.acquire(want, &c.p.lease); err != nil {
			if last == nil {
				last = c.prefillDenied(err)
			}
			return c.withoutPrefill(last)
		}
		b := c.p.lease.Backend
		last = c.prefillAttempt(b)
		c.noteSent(c.p.x.Sent())
		c.p.lease.Release(last.result())
		if last == nil {
			return nil
		}
		if !c.anotherPrefill(b, last) {
			return c.withoutPrefill(last)
		}
		c.s.metrics.PrefillRetried()
		if c.p.x.Sent() {
			c.buildPrefill() // without encodings, of which it may have failed
		}
	}
}

// anotherPrefill reports whether another P is asked after b has failed. It takes a share of the retry budget
// for that, but does not wait for one if D can serve the request alone at once, before others end their
// retries.
func (c *completion) anotherPrefill(b *router.Backend, f *failure) bool {
	if f.Retry == fault.RetryNever || c.interrupted() != nil {
		return false
	}
	c.prefillTried(b, f)
	if c.p.again = true; f.Retry == fault.RetryFree {
		return true
	}
	patience := retryPatience
	if c.s.engines.StandsIn() && c.d.alone() && !c.snap.Capped() {
		patience = 0
	}
	c.p.attempts++
	return c.p.attempts < maxPrefillAttempts && c.snap.Pick(c.wantPrefill(c.p.tried)) != nil && c.retryWithin(0, patience)
}

// result returns the outcome of a leg that may have failed.
func (f *failure) result() router.Outcome {
	if f == nil {
		return router.OK
	}
	return f.Outcome
}

// refusedByPrefill reports that P refuses what D may take. Such a request is no lack of prefill engines, so neither the
// cap nor decode_only.enabled is about it.
func (f *failure) refusedByPrefill() bool {
	return f.Degrade == fault.ReasonToolChoice || f.Degrade == fault.ReasonRefused
}

// avoidRefusing keeps the request from the P that are known to refuse it for their flags.
func (c *completion) avoidRefusing() {
	traits := c.req.Traits()
	if traits == 0 {
		return
	}
	for _, b := range c.snap.Backends(router.Prefill) {
		if c.s.engines.Refuses(b, traits) {
			c.p.tried, c.p.refused = append(c.p.tried, b), true
		}
	}
}

// suspectPrefill keeps this round away from the last round's P if the D that got its handle has died,
// because the same P could kill another D. If nothing else may take the request, and it was known that the handle was long
// enough, P is asked again all the same, because D died for another reason.
func (c *completion) suspectPrefill() {
	d := c.d.failed
	if c.d.failed = nil; d == nil {
		return
	}
	if _, gone := c.s.engines.Gone(d); !gone {
		return
	}
	tried := append(c.p.tried, c.handoff.From())
	alone := c.s.cfg.DecodeOnly.Enabled && c.d.alone()
	if alone || !c.p.known || c.snap.Pick(c.wantPrefill(tried)) != nil {
		c.p.tried, c.p.suspect = tried, true
	}
}

// prefillTried keeps the request from asking b again.
func (c *completion) prefillTried(b *router.Backend, f *failure) {
	c.p.tried = append(c.p.tried, b)
	c.moved = c.moved || f.moved
	c.s.failedLog.Warn().Str("request_id", c.id).Str("leg_id", c.legID).Str("prefill", b.URL).Str("outcome", f.Outcome.String()).
		Str("error", f.told.Why()).Msg("prefill leg failed, another backend is asked if there is one")
}

// prefillDenied says why the pool gave no lease. If the only P there is was left out as a suspect,
// the cause is fault.Suspect, and D may prefill by itself.
func (c *completion) prefillDenied(err error) *failure {
	f := fault.Fault{Leg: fault.Prefill, At: fault.AtPool, Cause: fault.NoneUp}
	switch {
	case c.overdue():
		f.Cause = fault.Overdue
	case errors.Is(err, router.ErrBusy):
		f.Cause = fault.Full
	case c.p.suspect:
		f.Cause = fault.Suspect
	case c.p.refused:
		f.Cause = fault.Flags
	}
	return c.fail(nil, f, nil)
}

// withoutPrefill settles what happens to a request that got no prefill for any reason. Normally D
// prefills by itself, under the cap for requests that should have had a prefill. A failure comes
// back if the request has ended or its time is over, if it was refused for what it asks, if it may
// not go to another engine, or if the cap, the configuration or the connector forbids it.
func (c *completion) withoutPrefill(last *failure) *failure {
	if f := c.mayDecodeAlone(last); f != nil {
		return f
	}
	if !last.refusedByPrefill() {
		if err := c.degrade(last.told); err != nil {
			return ends(err)
		}
		c.s.aloneLog.Warn().Str("request_id", c.id).Stringer("reason", last.Degrade).Msg("decoding without a prefill")
	}
	c.path, c.reason = pathDecodeOnly, last.Degrade
	return nil
}

// mayDecodeAlone returns nil if D may serve the request without a prefill, but for the cap. Otherwise it
// returns what ends the round.
func (c *completion) mayDecodeAlone(last *failure) *failure {
	gone := c.interrupted()
	switch {
	case gone != nil:
		return ends(gone)
	case last.Degrade == fault.ReasonNone:
		return last.final()
	case c.overdue():
		return ends(fault.ErrDeadline())
	case c.deadly() || !c.d.alone() || !last.refusedByPrefill() && !c.s.cfg.DecodeOnly.Enabled:
		return c.elsewhere(last)
	}
	return nil
}

// prefillAttempt runs the leg on one backend. If P gives a handle, it is in c.handoff afterwards.
func (c *completion) prefillAttempt(b *router.Backend) *failure {
	started := time.Now()
	c.p.lease.OnDown(c.onPrefillDown)
	c.trace.Leg(&c.p.span, "prefill", b.URL, c.api.Path(), c.round, c.fields)
	f := c.prefillExchange(b)
	c.p.lease.OnDown(nil)
	c.times.prefilled = time.Now()
	c.times.prefill = c.times.prefilled.Sub(started)
	if f == nil {
		c.p.x.Finish()
		c.prefilled()
		c.s.metrics.Leg(fault.Prefill, b, router.OK, fault.CodeNone, c.times.prefill)
		c.p.span.End(trace.LegEnd{ID: c.legID, Status: c.p.x.Head.Status, Outcome: router.OK.String(), PromptTokens: c.p.prompt, CachedTokens: c.p.cached})
	} else {
		c.p.x.Drop()
		c.s.metrics.Leg(fault.Prefill, b, f.Outcome, f.Code, c.times.prefill)
		c.p.span.End(trace.LegEnd{ID: c.legID, Status: c.p.x.Head.Status, Outcome: f.Outcome.String(), Code: f.Code.String()})
	}
	c.p.x.Uncut(cutDown, cutLate) // they do not hold for the next backend
	return f
}

// buildPrefill writes the leg's body as segments that alias the client's body.
func (c *completion) buildPrefill() {
	p := &c.p
	p.leg.ID, p.leg.Scratch, p.leg.Target = c.legID, p.leg.Scratch[:0], c.s.engines.Target(c.d.lease.Backend)
	c.pSegs = c.encoding.Load().AppendTo(c.dialect().AppendPrefill(c.pSegs[:0], &c.req, &p.leg))
}

func (c *completion) prefillExchange(b *router.Backend) *failure {
	p := &c.p
	err := p.x.Do(c.s.engines.Client(b), c.request(c.pSegs, &p.span), time.Now().Add(c.s.bound().Timeouts.Prefill), !c.dialect().Concurrent())
	if p.x.Repeated {
		c.s.handoffs.Orphaned(b, handoff.OrphanRepeated)
	}
	if p.buf = p.buf[:0]; err == nil {
		err = c.readPrefill()
	}
	if err != nil {
		err = c.lateAnswer(err)
	}
	if err != nil {
		return c.prefillBroke(b, err)
	}
	f := c.prefillAnswered(b)
	if f != nil && !c.prefillLate() {
		return f
	}
	if cause := c.prefillGivenUp(); cause != fault.NoCause {
		return c.fail(b, fault.Fault{Leg: fault.Prefill, At: fault.AtAnswer, Status: p.x.Head.Status, Cause: cause}, nil)
	}
	return f
}

// P may have written half of its answer when it is given up, and the answer holds a handle.
const (
	// downGrace is how long P may still answer after the active check took it down.
	downGrace = 250 * time.Millisecond
	// After a leg is given up, its connection is half-closed and read for a short time more. The time is longer if
	// nothing can follow the leg, because the client has left, the process ends or timeouts.request is over.
	lateForNobody = time.Second
	lateForClient = 50 * time.Millisecond
)

// lateAnswer tells a P that was given up to abort, and reads on for an answer that was already on
// its way, because the handle in it must be given back.
func (c *completion) lateAnswer(err error) error {
	var ue *upstream.Error
	if !errors.As(err, &ue) || !ue.TimedOut() || ue.Stage == upstream.StageDial || ue.Stage == upstream.StageWrite {
		return err
	}
	x, grace := &c.p.x, c.grace()
	if c.overdue() && c.interrupted() == nil && (grace.Finishes || kvparams.Dies(c.dialect())) { // as if the client had left
		client := c.client
		c.s.clients.Orphan(client)
		x.Linger(ue, grace.Prefill, func() { c.s.clients.Settled(client) })
		return err
	}
	x.HalfClose()
	wait := lateForClient
	if c.interrupted() != nil || c.overdue() {
		wait = lateForNobody
	}
	x.Extend(cutLate, time.Now().Add(wait))
	if ue.Stage == upstream.StageHead {
		if headErr := x.ReadHead(); headErr != nil {
			return headErr
		}
	}
	return c.readPrefill()
}

// readPrefill reads on in P's answer, whose head has come. Nothing is lent before, because P may take long.
func (c *completion) readPrefill() (err error) {
	p := &c.p
	if p.lent == nil {
		p.lent = c.s.answers.LendFor(p.x.Head.Length)
		p.buf = *p.lent
	}
	p.buf, err = p.x.ReadAnswer(p.buf, c.s.cfg.Limits.Answer)
	return err
}

// prefillLate reports that the leg was given up before its answer came.
func (c *completion) prefillLate() bool { return c.p.x.IsCut(cutLate) }

// prefillGivenUp says why the answer is no longer wanted, or NoCause if it still is.
func (c *completion) prefillGivenUp() fault.Cause {
	switch ended, late := c.endedBy(), c.prefillLate(); {
	case ended != fault.NoCause:
		return ended
	case c.p.x.IsCut(cutDown):
		// Decode might wait for a P that is frozen by now. To give the handle back does not wait.
		if c.handoff.Live() { // otherwise D's leg runs beside this one and may have come further
			c.state.set(statePrefilling)
		}
		return fault.Down
	case late && c.p.x.IsCut(cutOther):
		return fault.Other
	case late && c.overdue():
		return fault.Overdue
	case late:
		return fault.Timeout
	}
	return fault.NoCause
}

// prefillAnswered judges a complete answer of P and takes the handle from it.
func (c *completion) prefillAnswered(b *router.Backend) *failure {
	f := fault.Fault{Leg: fault.Prefill, At: fault.AtAnswer, Status: c.p.x.Head.Status}
	switch {
	case f.Status != fasthttp.StatusOK:
		return c.prefillRefused(b, f.Status)
	case c.dialect().Concurrent():
		return c.answeredBeside(b, f)
	}
	ans, err := c.dialect().ParseAnswer(c.p.buf)
	if err != nil {
		return c.badAnswer(b, f, err)
	}
	c.p.cached, c.p.prompt = ans.CachedTokens, ans.PromptTokens
	if !c.dialect().HandleInAnswer() {
		return nil
	}
	c.s.engines.Seen(b, ans.Handle.EngineID)
	if ans.Handle.None() {
		f.Cause = fault.NoHandle
		return c.fail(b, f, nil)
	}
	if c.p.known, err = c.s.engines.Covers(ans, b, c.d.lease.Backend); err != nil {
		return c.badAnswer(b, f, err)
	}
	c.p.extent = ans.Extent()
	c.handoff.Issue(ans.Handle, b, c.p.x.Began)
	c.handoff.Direct(c.d.lease.Backend)
	c.state.set(stateHandedOff)
	switch {
	case !c.s.handoffs.Allows(ans.Handle.RemoteHost):
		f.Cause = fault.Host
	case !c.handoff.Fresh():
		f.Cause = fault.Stale
	default:
		return nil
	}
	failed := c.fail(b, f, nil)
	c.state.set(statePrefilling)
	return failed
}

func (c *completion) request(body kvparams.Segments, span *trace.Leg) *upstream.Request {
	// After a failure, a leg takes a fresh connection, because that leg may have failed on a kept
	// connection that the engine had just closed.
	return &upstream.Request{Method: "POST", Path: c.target, ID: c.legID, Fields: span.Fields(c.fields), Body: body, Fresh: c.round > 1 || c.p.again, Owes: true, End: c.times.end}
}
