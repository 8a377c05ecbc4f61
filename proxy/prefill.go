package proxy

import (
	"errors"
	"time"

	"github.com/valyala/fasthttp"

	"xpyd/engines/handoff"
	"xpyd/kvparams"
	"xpyd/netio/upstream"
	"xpyd/proxy/fault"
	"xpyd/proxy/leg"
	"xpyd/router"
)

// maxPrefillAttempts bounds how many prefills one round starts. A backend that refuses the connection
// does not count.
const maxPrefillAttempts = 2

// prefillLeg is the first leg. It asks for one token, not streamed, and its answer holds a handle.
type prefillLeg struct {
	*leg.Attempt
	c      *completion
	onDown func() // down, bound once
	tried  []*router.Backend
	leg    kvparams.Leg
	buf    []byte  // P's answer; the handle aliases it
	lent   *[]byte // to return buf with
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
}

// prefill gets a handle from a P, or settles that the request goes to D alone.
func (p *prefillLeg) prefill() *leg.Failure {
	c := p.c
	c.state.set(statePrefilling)
	p.suspectLast()
	p.build()
	var last *leg.Failure
	for {
		want := p.want(p.tried)
		want.Peer = c.d.Lease.Backend
		if err := p.Acquire(c.snap, want, inQueue{c}); err != nil {
			if last == nil {
				last = p.denied(err)
			}
			return p.without(last)
		}
		if last != nil {
			c.s.metrics.PrefillRetried()
		}
		b := p.Lease.Backend
		last = p.attempt()
		c.noteSent(p.X.Sent())
		if last == nil {
			return nil
		}
		if !p.another(b, last) {
			return p.without(last)
		}
		if p.X.Sent() {
			p.build() // without encodings, of which it may have failed
		}
	}
}

// another reports whether another P is asked after b has failed. It takes a share of the retry budget
// for that, but does not wait for one if D can serve the request alone at once, before others end their
// retries.
func (p *prefillLeg) another(b *router.Backend, f *leg.Failure) bool {
	c := p.c
	if f.Retry == fault.RetryNever || c.interrupted() != nil {
		return false
	}
	p.noteTried(b, f)
	if c.round.again = true; f.Retry == fault.RetryFree {
		return true
	}
	patience := retryPatience
	if c.s.engines.StandsIn() && c.d.alone() && !c.snap.Capped() {
		patience = 0
	}
	c.round.prefills++
	return c.round.prefills < maxPrefillAttempts && c.snap.Pick(p.want(p.tried)) != nil && c.mayRetry(0, patience)
}

// refusedByPrefill reports that P refuses what D may take. Such a request is no lack of prefill engines, so neither the
// cap nor decode_only.enabled is about it.
func refusedByPrefill(f *leg.Failure) bool {
	return f.Degrade == fault.ReasonToolChoice || f.Degrade == fault.ReasonRefused
}

// avoidRefusing keeps the request from the P that are known to refuse it for their flags.
func (p *prefillLeg) avoidRefusing() {
	c := p.c
	traits := c.req.Traits()
	if traits == 0 {
		return
	}
	for _, b := range c.snap.Backends(router.Prefill) {
		if c.s.engines.Refuses(b, traits) {
			p.tried, p.refused = append(p.tried, b), true
		}
	}
}

// suspectLast keeps this round away from the last round's P if the D that got its handle has died,
// because the same P could kill another D. If nothing else may take the request, and it was known that the handle was long
// enough, P is asked again all the same, because D died for another reason.
func (p *prefillLeg) suspectLast() {
	c := p.c
	d := c.d.failed
	if c.d.failed = nil; d == nil {
		return
	}
	if _, gone := c.s.engines.Gone(d); !gone {
		return
	}
	tried := append(p.tried, c.handoff.From())
	alone := c.s.cfg.DecodeOnly.Enabled && c.d.alone()
	if alone || !p.known || c.snap.Pick(p.want(tried)) != nil {
		p.tried, c.round.suspect = tried, true
	}
}

// noteTried keeps the request from asking b again.
func (p *prefillLeg) noteTried(b *router.Backend, f *leg.Failure) {
	c := p.c
	p.tried = append(p.tried, b)
	c.moved = c.moved || f.Moved
	c.s.failedLog.Warn().Str("request_id", c.id).Str("leg_id", c.legID).Str("prefill", b.URL).Str("outcome", f.Outcome.String()).
		Str("error", f.Told.Why()).Msg("prefill leg failed, another backend is asked if there is one")
}

// denied says why the pool gave no lease. If the only P there is was left out as a suspect,
// the cause is fault.Suspect, and D may prefill by itself.
func (p *prefillLeg) denied(err error) *leg.Failure {
	c := p.c
	f := fault.Fault{Leg: fault.Prefill, At: fault.AtPool, Cause: fault.NoneUp}
	switch {
	case c.overdue():
		f.Cause = fault.Overdue
	case errors.Is(err, router.ErrBusy):
		f.Cause = fault.Full
	case c.round.suspect:
		f.Cause = fault.Suspect
	case p.refused:
		f.Cause = fault.Flags
	}
	return c.fail(nil, f, nil)
}

// without settles what happens to a request that got no prefill for any reason. Normally D
// prefills by itself, under the cap for requests that should have had a prefill. A failure comes
// back if the request has ended or its time is over, if it was refused for what it asks, if it may
// not go to another engine, or if the cap, the configuration or the connector forbids it.
func (p *prefillLeg) without(last *leg.Failure) *leg.Failure {
	c := p.c
	if f := p.mayDecodeAlone(last); f != nil {
		return f
	}
	if !refusedByPrefill(last) {
		if err := p.degrade(last.Told); err != nil {
			return leg.Ends(err)
		}
		c.s.aloneLog.Warn().Str("request_id", c.id).Stringer("reason", last.Degrade).Msg("decoding without a prefill")
	}
	c.path, c.reason = pathDecodeOnly, last.Degrade
	return nil
}

// mayDecodeAlone returns nil if D may serve the request without a prefill, but for the cap. Otherwise it
// returns what ends the round.
func (p *prefillLeg) mayDecodeAlone(last *leg.Failure) *leg.Failure {
	c := p.c
	gone := c.interrupted()
	switch {
	case gone != nil:
		return leg.Ends(gone)
	case last.Degrade == fault.ReasonNone:
		return last.Final()
	case c.overdue():
		return leg.Ends(fault.ErrDeadline())
	case c.deadly() || !c.d.alone() || !refusedByPrefill(last) && !c.s.cfg.DecodeOnly.Enabled:
		return c.elsewhere(last)
	}
	return nil
}

// attempt runs the leg on the backend of its lease. If P gives a handle, it is in c.handoff afterwards.
func (p *prefillLeg) attempt() *leg.Failure {
	c := p.c
	call := c.call(p.onDown)
	f := p.Run(&call, p.exchange)
	c.times.prefill, c.times.prefilled = p.Took, p.Started.Add(p.Took)
	if f == nil {
		p.price()
		p.End(leg.End{PromptTokens: p.prompt, CachedTokens: p.cached})
	}
	return f
}

// call is an attempt of this round as its trace shows it. down is called if its backend goes down.
func (c *completion) call(down func()) leg.Call {
	return leg.Call{Trace: c.trace, ID: c.legID, Path: c.asks.Path(), Fields: c.fields, Round: c.round.n, Down: down}
}

// build writes the leg's body as segments that alias the client's body.
func (p *prefillLeg) build() {
	c := p.c
	p.leg.ID, p.leg.Scratch, p.leg.Target = c.legID, p.leg.Scratch[:0], c.s.engines.Target(c.d.Lease.Backend)
	c.pSegs = c.encoding.Load().AppendTo(c.dialect().AppendPrefill(c.pSegs[:0], &c.req, &p.leg))
}

func (p *prefillLeg) exchange(b *router.Backend) *leg.Failure {
	c := p.c
	err := p.X.Do(c.s.engines.Client(b), c.request(c.pSegs, p.Attempt), time.Now().Add(c.s.bound().Timeouts.Prefill), !c.dialect().Concurrent())
	if p.X.Repeated {
		c.s.handoffs.Orphaned(b, handoff.OrphanRepeated)
	}
	if p.buf = p.buf[:0]; err == nil {
		err = p.read()
	}
	if err != nil {
		err = p.lateAnswer(err)
	}
	if err != nil {
		return p.broke(b, err)
	}
	f := p.answered(b)
	if f != nil && !p.late() {
		return f
	}
	if cause := p.givenUp(); cause != fault.NoCause {
		return c.fail(b, fault.Fault{Leg: fault.Prefill, At: fault.AtAnswer, Status: p.X.Head.Status, Cause: cause}, nil)
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
func (p *prefillLeg) lateAnswer(err error) error {
	c := p.c
	var ue *upstream.Error
	if !errors.As(err, &ue) || !ue.TimedOut() || ue.Stage == upstream.StageDial || ue.Stage == upstream.StageWrite {
		return err
	}
	x, grace := &p.X, c.grace()
	if c.overdue() && c.interrupted() == nil && (grace.Finishes || kvparams.Dies(c.dialect())) { // as if the client had left
		clients, client := c.s.clients, c.client // because the exchange outlives c
		clients.Orphan(client)
		x.Linger(ue, grace.Prefill, c.s.guard, func() { clients.Settled(client) })
		return err
	}
	x.HalfClose()
	wait := lateForClient
	if c.interrupted() != nil || c.overdue() {
		wait = lateForNobody
	}
	x.Extend(leg.CutLate, time.Now().Add(wait))
	if ue.Stage == upstream.StageHead {
		if headErr := x.ReadHead(); headErr != nil {
			return headErr
		}
	}
	return p.read()
}

// read reads on in P's answer, whose head has come. Nothing is lent before, because P may take long.
func (p *prefillLeg) read() (err error) {
	if p.lent == nil {
		p.lent = p.c.s.answers.LendFor(p.X.Head.Length)
		p.buf = *p.lent
	}
	p.buf, err = p.X.ReadAnswer(p.buf, p.c.s.cfg.Limits.Answer)
	return err
}

// late reports that the leg was given up before its answer came.
func (p *prefillLeg) late() bool { return p.X.IsCut(leg.CutLate) }

// givenUp says why the answer is no longer wanted, or NoCause if it still is.
func (p *prefillLeg) givenUp() fault.Cause {
	c := p.c
	switch ended, late := c.endedBy(), p.late(); {
	case ended != fault.NoCause:
		return ended
	case p.X.IsCut(leg.CutDown):
		// Decode might wait for a P that is frozen by now. To give the handle back does not wait.
		if c.handoff.Live() { // otherwise D's leg runs beside this one and may have come further
			c.state.set(statePrefilling)
		}
		return fault.Down
	case late && p.X.IsCut(leg.CutOther):
		return fault.Other
	case late && c.overdue():
		return fault.Overdue
	case late:
		return fault.Timeout
	}
	return fault.NoCause
}

// answered judges a complete answer of P and takes the handle from it.
func (p *prefillLeg) answered(b *router.Backend) *leg.Failure {
	c := p.c
	f := fault.Fault{Leg: fault.Prefill, At: fault.AtAnswer, Status: p.X.Head.Status}
	switch {
	case f.Status != fasthttp.StatusOK:
		return p.rejected(b, f.Status)
	case c.dialect().Concurrent():
		return p.answeredBeside(b, f)
	}
	ans, err := c.dialect().ParseAnswer(p.buf)
	if err != nil {
		return p.badAnswer(b, f, err)
	}
	p.cached, p.prompt = ans.CachedTokens, ans.PromptTokens
	if c.snap.Remembers(router.Prefill) {
		p.Lease.Told(c.req.Blocks(router.PrefixBlock(c.snap)), ans.PromptTokens, ans.CachedTokens)
	}
	if !c.dialect().HandleInAnswer() {
		return nil
	}
	c.s.engines.Seen(b, ans.Handle.EngineID)
	if ans.Handle.None() {
		f.Cause = fault.NoHandle
		return c.fail(b, f, nil)
	}
	if p.known, err = c.s.engines.Covers(ans, b, c.d.Lease.Backend); err != nil {
		return p.badAnswer(b, f, err)
	}
	p.extent = ans.Extent()
	c.handoff.Issue(ans.Handle, b, p.X.Began)
	c.handoff.Direct(c.d.Lease.Backend)
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

func (c *completion) request(body kvparams.Segments, of *leg.Attempt) *upstream.Request {
	// After a failure, a leg takes a fresh connection, because that leg may have failed on a kept
	// connection that the engine had just closed.
	return &upstream.Request{Method: "POST", Path: c.target, ID: c.legID, Fields: of.Fields(c.fields), Body: body, Fresh: c.round.n > 1 || c.round.again, Owes: true, End: c.times.end}
}
