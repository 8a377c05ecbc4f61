package proxy

import (
	"bytes"
	"cmp"
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
	"xpyd/kvparams"
	"xpyd/router"
	"xpyd/upstream"
)

// maxPrefillAttempts bounds how often a prefill that may have run is started in one
// round. A backend that refuses the connection does not count.
const maxPrefillAttempts = 2

// prefillLeg is the first leg: one token, not streamed, answered with a handle.
type prefillLeg struct {
	x     upstream.Exchange
	lease router.Lease
	tried []*router.Backend
	down  atomic.Bool // the active check took the backend down while the leg waited
	late  bool        // the leg was given up before its answer came
	leg   kvparams.Leg
	segs  kvparams.Segments
	buf   []byte  // P's answer; the handle aliases it
	lent  *[]byte // where buf goes back to
	ans   kvparams.Answer
	// beside is for a leg that runs beside D's.
	beside beside
	// suspect: a D failed with the handle of the last round's P, which is in tried for it.
	suspect bool
}

// legResult is how one attempt of a leg ended.
type legResult struct {
	err     *apiError // nil: the leg succeeded
	outcome router.Outcome
	next    bool   // another backend may do better
	sent    bool   // the backend may have worked for it
	degrade reason // to go without a prefill; reasonNone: that would not help, or be twice the work
}

// prefill obtains a handle from some P, or settles that the request goes to D alone.
func (c *completion) prefill() *apiError {
	c.state.set(statePrefilling)
	c.suspectPrefill()
	c.buildPrefill()
	var last legResult
	patience := retryPatience
	if c.s.standsIn() && !c.snap.Capped() {
		patience = 0 // D can have it before others have done with their retries
	}
	for attempts := 0; attempts < maxPrefillAttempts; {
		want := c.want(router.Prefill, c.p.tried)
		want.Peer = c.d.lease.Backend
		if err := c.acquire(want, &c.p.lease); err != nil {
			if gone := c.interrupted(); gone != nil {
				return gone
			}
			if last.err == nil {
				last = c.prefillSpent(prefillDenied(err))
			}
			break
		}
		b := c.p.lease.Backend
		last = c.prefillAttempt(b)
		c.reached = c.reached || c.p.x.Sent()
		c.p.lease.Release(last.outcome)
		if last.err == nil || !last.next {
			break
		}
		if gone := c.interrupted(); gone != nil {
			return gone
		}
		c.p.tried = append(c.p.tried, b)
		c.s.failed.Warn().Str("request_id", c.id).Str("leg_id", c.legID).Str("prefill", b.URL).Str("outcome", last.outcome.String()).
			Str("error", last.err.why()).Msg("prefill leg failed, another backend is asked if there is one")
		if !last.sent {
			continue
		}
		if attempts++; attempts == maxPrefillAttempts || c.snap.Pick(c.want(router.Prefill, c.p.tried)) == nil || !c.retryWithin(0, patience) {
			break
		}
	}
	if last.err == nil {
		return nil
	}
	return c.withoutPrefill(last)
}

// prefillDenied says why the pool gave no lease.
func prefillDenied(err error) legResult {
	if errors.Is(err, router.ErrBusy) {
		e := newError(fasthttp.StatusServiceUnavailable, codeOverloaded, "", "every prefill backend has prefill_max_in_flight requests").retryAfter(1)
		return legResult{err: e, degrade: reasonBusy}
	}
	return legResult{err: prefillUnavailable(), degrade: reasonUnavailable}
}

func prefillUnavailable() *apiError {
	return newError(fasthttp.StatusServiceUnavailable, codePrefillUnavailable, "", "no prefill backend accepts connections").retryAfter(1)
}

// withoutPrefill is where a request that got no prefill goes, whatever the cause: D prefills by
// itself, under the cap for requests that should have had a prefill. Else it returns the failure
// that led here: to a request that is refused for what it is or has had its time, or where the
// configuration or the connector forbids it.
func (c *completion) withoutPrefill(last legResult) *apiError {
	forced := last.degrade == reasonToolChoice
	gone := c.interrupted()
	switch {
	case gone != nil:
		return gone
	case last.degrade == reasonNone:
		return last.err
	case c.overdue():
		return deadlineError()
	case c.deadly() || !c.s.dialect.DecodeOnlySafe() || !forced && !c.s.cfg.DecodeOnly.Enabled:
		return last.err
	case !forced:
		if err := c.degrade(last.err); err != nil {
			return err
		}
		c.s.alone.Warn().Str("request_id", c.id).Stringer("reason", last.degrade).Msg("decoding without a prefill")
	}
	c.path, c.reason = pathDecodeOnly, last.degrade
	return nil
}

// prefillAttempt runs the leg on one backend and leaves a handle in c.handoff if P
// gave one.
func (c *completion) prefillAttempt(b *router.Backend) legResult {
	started := time.Now()
	c.p.down.Store(false)
	c.p.lease.OnDown(c.onPrefillDown)
	r := c.prefillExchange(b)
	c.p.lease.OnDown(nil)
	if r.err == nil {
		c.p.x.Finish()
	} else {
		c.p.x.Drop()
	}
	c.times.prefilled = time.Now()
	c.times.prefill = c.times.prefilled.Sub(started)
	if r.err == nil {
		c.prefilled()
	}
	c.s.metrics.Leg(legPrefill, b, r.outcome, codeOf(r.err), c.times.prefill)
	if c.interrupted() == nil && c.p.x.Interrupted() {
		c.p.x.Reset() // for the next backend
	}
	return r
}

// prefillDown is told by the active check: the leg is moved.
func (c *completion) prefillDown() {
	c.p.down.Store(true)
	c.p.x.Interrupt(time.Now().Add(c.s.downGrace))
}

func codeOf(e *apiError) code {
	if e == nil {
		return codeNone
	}
	return e.Code
}

// buildPrefill writes the leg's body, as segments over the client's.
func (c *completion) buildPrefill() {
	p := &c.p
	p.leg.ID, p.leg.Scratch = c.legID, p.leg.Scratch[:0]
	p.segs = c.s.dialect.AppendPrefill(p.segs[:0], &c.req, &p.leg)
}

func (c *completion) prefillExchange(b *router.Backend) legResult {
	p := &c.p
	p.late = false
	if p.lent == nil {
		p.lent = c.s.answers.lend()
		p.buf = *p.lent
	}
	err := p.x.Do(c.s.engines.client(b), c.request(p.segs), time.Now().Add(c.s.cfg.Timeouts.Prefill), true)
	if p.x.Repeated {
		c.s.metrics.Orphan(orphanRepeated)
	}
	if err == nil {
		p.buf, err = p.x.ReadAnswer(p.buf[:0], c.s.cfg.Limits.Answer)
	} else {
		p.buf = p.buf[:0]
	}
	if err != nil {
		err = c.lateAnswer(err)
	}
	if err != nil {
		return c.prefillBroke(b, err)
	}
	r := c.prefillAnswered(b)
	if r.err != nil && !c.p.late {
		return r
	}
	if up := c.prefillGivenUp(); up.err != nil {
		c.abandon(nil)
		return up
	}
	return r
}

// prefillBroke classifies a transport failure.
func (c *completion) prefillBroke(b *router.Backend, err error) legResult {
	gone := c.interrupted()
	var ue *upstream.Error
	if errors.As(err, &ue) && c.answerLost(ue, gone != nil || c.p.late) {
		c.s.metrics.Orphan(orphanAnswerLost)
	}
	if ue != nil && ue.BrokeOff() && !c.p.late { // who was told that nobody waits hangs up
		c.prefillBrokeOff(b, ue)
	}
	if ue == nil {
		c.s.metrics.Orphan(orphanUnusable)
	}
	switch {
	case gone != nil:
		return legResult{err: gone, outcome: router.ClientGone}
	case ue == nil:
		return prefillTooLarge()
	case ue.Stage == upstream.StageDial && upstream.IsLocal(ue.Err):
		return legResult{err: outOfDescriptors(), outcome: router.ClientGone}
	case ue.Stage == upstream.StageDial:
		c.s.probes.suspect(b)
		e := prefillUnavailable()
		e.cause = ue.Error()
		return legResult{err: e, outcome: router.Refused, next: true, degrade: reasonUnavailable}
	case c.p.down.Load():
		return prefillWentDown()
	case c.p.late || ue.TimedOut():
		return c.prefillTimedOut()
	}
	c.s.probes.suspect(b)
	e := newError(fasthttp.StatusBadGateway, codePrefillFailed, "", "prefill backend broke off the connection")
	e.cause = ue.Error()
	return legResult{err: e, outcome: router.Gateway, next: true, sent: true, degrade: reasonFailed}
}

func (c *completion) prefillTimedOut() legResult {
	if c.overdue() {
		return legResult{err: deadlineError(), outcome: router.ClientGone, sent: true}
	}
	// Not tried again, by D neither: another engine would be as long on it, and twice the work.
	e := newError(fasthttp.StatusGatewayTimeout, codePrefillTimeout, "", "prefill backend did not answer within timeouts.prefill")
	return legResult{err: e, outcome: router.Timeout, sent: true}
}

// prefillWentDown moves the leg.
func prefillWentDown() legResult {
	e := newError(fasthttp.StatusBadGateway, codePrefillFailed, "", "prefill backend failed its health checks")
	e.cause = "moved: its health checks failed"
	return legResult{err: e, outcome: router.Gateway, next: true, sent: true, degrade: reasonUnavailable}
}

// prefillTooLarge: nobody's failure. Another P would answer the same; D alone may stream it.
func prefillTooLarge() legResult {
	e := newError(fasthttp.StatusBadGateway, codePrefillFailed, "", "prefill backend's answer is larger than limits.answer").noRetry()
	return legResult{err: e, outcome: router.ClientFault, sent: true, degrade: reasonFailed}
}

func (c *completion) prefillBad(b *router.Backend, why string) legResult {
	c.diedOf(b, c.p.x.Wrote)
	c.s.failed.Error().Str("request_id", c.id).Str("prefill", b.URL).Msg("prefill answer cannot be used: " + why)
	e := newError(fasthttp.StatusBadGateway, codePrefillFailed, "", "prefill backend gave an answer that cannot be used")
	return legResult{err: e, outcome: router.Gateway, next: true, sent: true, degrade: reasonFailed}
}

// prefillAnswered reads a complete answer of P.
func (c *completion) prefillAnswered(b *router.Backend) legResult {
	switch status := c.p.x.Head.Status; {
	case status != fasthttp.StatusOK:
		return c.prefillRefused(b, status)
	case !c.s.dialect.HandleInAnswer():
		return legResult{sent: true}
	}
	ans, err := c.s.dialect.ParseAnswer(c.p.buf)
	if err != nil {
		var ae *kvparams.AnswerError
		if errors.As(err, &ae) && ae.Code == kvparams.CodeHandoff {
			return c.badHandle(b, ae)
		}
		c.s.metrics.Orphan(orphanUnusable)
		return c.prefillBad(b, err.Error())
	}
	c.p.ans = ans
	c.s.engineSeen(b, ans.Handle.EngineID)
	if ans.Handle.None() {
		e := newError(fasthttp.StatusBadGateway, codeInvalidHandoff, "", "prefill backend gave no kv_transfer_params; is it started with --kv-transfer-config?")
		return legResult{err: e, outcome: router.Engine, next: true, sent: true, degrade: reasonNoHandle}
	}
	if err := ans.Covers(b.BlockTokens()); err != nil {
		return c.badHandle(b, err)
	}
	c.handoff.issue(ans.Handle, b)
	c.state.set(stateHandedOff)
	if !c.s.hostAllowed(ans.Handle.RemoteHost) {
		c.handoff.lose(orphanHost)
		c.state.set(statePrefilling)
		return unusableHandle("prefill backend named a host that is not in kv.allow_hosts")
	}
	return legResult{sent: true}
}

// prefillRefused maps P's status to what the client gets and what may be tried.
func (c *completion) prefillRefused(b *router.Backend, status int) legResult {
	forced := reasonNone
	if c.req.ForcedTool() {
		// One token cannot hold the call that the client insists on.
		forced = reasonToolChoice
	}
	switch {
	case status == fasthttp.StatusTooManyRequests || status == fasthttp.StatusServiceUnavailable:
		e := c.s.relayed(&c.p.x, c.p.buf, status, codePrefillUnavailable, "prefill backend is busy")
		askedToWait(b, e)
		return legResult{err: e, outcome: busyOutcome(status), next: true, sent: true, degrade: reasonBusy}
	case c.s.authFailed(status):
		return legResult{err: c.s.upstreamAuth(c.id, b), outcome: router.Auth, next: true, degrade: reasonFailed}
	case status >= 400 && status < 500:
		return legResult{err: c.s.relayed(&c.p.x, c.p.buf, status, codeUpstreamRejected, "prefill backend refused the request"), outcome: router.ClientFault, sent: true, degrade: forced}
	case status >= 500:
		c.diedOf(b, c.p.x.Wrote)
		e := c.s.relayed(&c.p.x, c.p.buf, status, codePrefillFailed, "prefill backend failed")
		return legResult{err: e, outcome: router.Engine, next: forced == reasonNone, sent: true, degrade: cmp.Or(forced, reasonFailed)}
	}
	e := newError(fasthttp.StatusBadGateway, codePrefillFailed, "", "prefill backend answered with an unexpected status")
	return legResult{err: e, outcome: router.Gateway, next: true, sent: true, degrade: reasonFailed}
}

// askedToWait notes for how long a busy backend wants to be left alone. A 429 is about
// this client: the others may go on.
func askedToWait(b *router.Backend, e *apiError) {
	e.asked = time.Duration(e.RetryAfter) * time.Second
	if e.asked > 0 && e.Status == fasthttp.StatusServiceUnavailable {
		b.Defer(e.asked)
	}
	e.RetryAfter = max(e.RetryAfter, 1)
}

// busyOutcome: a 429 is for this client, a 503 for everybody.
func busyOutcome(status int) router.Outcome {
	if status == fasthttp.StatusTooManyRequests {
		return router.ClientFault
	}
	return router.Engine
}

// authFailed: with a key of our own a 401 is our fault, else it is the client's key.
func (s *Server) authFailed(status int) bool {
	return (status == fasthttp.StatusUnauthorized || status == fasthttp.StatusForbidden) && (len(s.backendAuth) > 0 || s.keys.required())
}

func (s *Server) upstreamAuth(id string, b *router.Backend) *apiError {
	s.log.Error().Str("request_id", id).Str("role", b.Role.String()).Str("backend", b.URL).
		Msg("the backend refuses xpyd's key; check backend_api_key or backend_api_key_file")
	return newError(fasthttp.StatusBadGateway, codeUpstreamAuth, "", "a backend refused the proxy's credentials").noRetry()
}

// relayed is a backend's own error: a 4xx as it is, a 5xx with our text, as an
// engine's may hold addresses or prompts.
func (s *Server) relayed(x *upstream.Exchange, body []byte, status int, c code, message string) *apiError {
	e := newError(status, c, "", message)
	e.cause = "status " + strconv.Itoa(status)
	switch {
	case x.TooLarge:
		e.Message += "; its own answer is larger than limits.answer"
	case status < 500 || s.cfg.Errors.ExposeUpstream:
		e.Raw = bytes.Clone(body)
		e.ContentType = string(x.Head.ContentType)
	}
	e.RetryAfter = seconds(x.Head.RetryAfter)
	e.NoRetry = status >= 400 && status < 500 && status != fasthttp.StatusTooManyRequests
	return e
}

func (c *completion) request(body kvparams.Segments) *upstream.Request {
	// Kept connections that the engine has just closed may have cost the first round.
	return &upstream.Request{Method: "POST", Path: c.target, ID: c.legID, Fields: c.fields, Body: body, Fresh: c.round > 1, End: c.times.end}
}

func apiPath(api kvparams.API) string {
	if api == kvparams.Chat {
		return "/v1/chat/completions"
	}
	return "/v1/completions"
}
