package proxy

import (
	"time"

	"github.com/rs/zerolog"
	"github.com/valyala/fasthttp"

	"xpyd/engines/handoff"
	"xpyd/intake/heads"
	"xpyd/kvparams"
	"xpyd/metrics"
	"xpyd/proxy/carry"
	"xpyd/proxy/fault"
	"xpyd/router"
)

// finish is the one end of a completion. It settles what is left of the leases, the handle and the
// buffers, counts, and writes the log line. writeErr is the error that fasthttp met while it wrote
// the response.
//
// A panic in one step must not keep the other steps from what they give back. It must not leave
// finish either. fasthttp would close the body once more outside any handler, which ends the process.
func (c *completion) finish(writeErr error) {
	s := c.s
	defer s.live.Add(-1)
	s.watch.Remove(&c.watch)
	if writeErr != nil && c.failure == nil {
		c.leave() // while xpyd wrote to it
		c.failure = fault.ErrGone()
	}
	s.guard(pair{c}.cut)
	s.guard(func() { c.abandon(nil) })
	s.guard(c.endLegs)
	s.guard(record{c}.noteSoundness)
	s.guard(record{c}.settleKey)
	s.guard(record{c}.account)
	s.clients.End(c.client)
	s.guard(c.recycle)
}

// abandon gives a live handle back in the background, because the client is gone or no decode will
// come. avoid is a D that has just failed, or nil.
func (c *completion) abandon(avoid *router.Backend) {
	if !c.handoff.Live() {
		return
	}
	a := handoff.Abandoned{LegID: c.legID, API: c.asks, Fields: c.fields, Req: &c.req, Snap: c.snap, Avoid: avoid, Broken: int(c.broken.Load())}
	if avoid == nil && c.d.Lease.Held() {
		a.Prefer = c.d.Lease.Backend
	}
	if c.gone() {
		clients, client := c.s.clients, c.client // because the release outlives c
		clients.Orphan(client)
		a.Begun = func() { clients.Settled(client) }
	}
	c.handoff.Release(a)
}

func (c *completion) endLegs() {
	defer c.endRetry()
	defer c.p.Free()
	defer c.d.Free()
	how := router.NoVerdict
	if c.gone() {
		how = router.ClientGone
	}
	c.d.endAnswer(how, fault.CodeNone)
}

// noteSoundness counts whether the backends served the completion. An error that is the client's
// fault, or comes from a limit of the proxy, says nothing about the backends.
func (c record) noteSoundness() {
	e := c.failure
	if e == nil {
		c.s.engines.Soundness.Succeeded()
		return
	}
	if e.Status < fasthttp.StatusInternalServerError || e.Blameless || !e.Code.OfBackends() || !c.s.engines.SomeUp() {
		return
	}
	c.s.engines.Soundness.Failed()
}

// record is what logs, metrics and keys get of a completion: what it was, and what it cost.
type record struct{ *completion }

func (c record) account() {
	o := c.count()
	if ended := c.s.ended; ended != nil {
		l := c.life(o)
		ended(&l)
	}
	c.logLine(o)
	c.endTrace(o)
}

// count counts the completion and returns its outcome.
func (c record) count() outcome {
	m := c.s.metrics
	now := time.Now()
	o := outcomeOK
	if e := c.failure; e != nil {
		o = outcomeOf(e, c.state.get() == stateCommitted)
		m.Error(e.Code)
		if e.Code == fault.CodeClientGone {
			m.ClientGone(c.phase())
		}
	}
	trace := heads.TraceID(c.fields)
	m.Request(c.api, o, now.Sub(c.times.start), trace)
	c.countModel(o)
	if of := c.use.Account; of != nil {
		prompt, answer := c.spent()
		m.KeyRequest(of.Name, int(o))
		m.KeyTokens(of.Name, string(c.model), c.state.get() == stateCommitted, prompt, answer)
	}
	if c.reached {
		m.Decision(c.path, c.reason)
	}
	if c.d.relay.handle {
		c.s.handoffs.KeptByDecode(c.d.Lease.Backend)
	}
	if c.d.streamed && !c.times.first.IsZero() {
		c.countStream(now, trace)
	}
	return o
}

// countStream observes how fast a stream was.
func (c record) countStream(now time.Time, trace string) {
	m := c.s.metrics
	ttft, span, events := c.times.first.Sub(c.times.start), now.Sub(c.times.first), c.d.relay.events
	m.Stream(c.api, c.path, ttft, span, events, trace)
	if c.carried.stream().Times() == 0 { // otherwise it came from another one
		m.FirstToken(int(fault.Decode), c.d.Lease.Backend.URL, c.times.first.Sub(c.d.Started))
	}
	m.Streamed(c.d.Lease.Backend.URL, span, events)
	m.Model(c.model, true).Streamed(ttft, span, events)
	if of := c.use.Account; of != nil {
		m.KeyStreamed(of.Name, ttft, span, events)
	}
}

// outcomeOf names the end of a request that failed. committed says that the client had a part of its answer.
func outcomeOf(e *fault.Error, committed bool) outcome {
	switch {
	case e.Code == fault.CodeClientGone:
		return outcomeClientGone
	case committed:
		return outcomeBroken
	case e.Status < 500:
		return outcomeClientError
	}
	return outcomeError
}

// phase says how far the completion had come when the client left.
func (c record) phase() phase {
	s := c.state.get()
	if left := c.left.Load(); left > 0 {
		s = state(left - 1)
	}
	if s == stateAdmitted && !c.body.Whole() {
		return phaseBody
	}
	return firstPhase + phase(s)
}

func (c record) logLine(o outcome) {
	e := c.s.log.Info()
	if o == outcomeError || o == outcomeBroken {
		e = c.s.log.Warn()
	}
	if !e.Enabled() {
		return
	}
	t := &c.times
	e.Str("client", c.conn.IP().String()).Str("request_id", c.id).Str("leg_id", c.legID).Stringer("api", c.api)
	if c.reached {
		e.Stringer("path", c.path).Stringer("reason", c.reason)
	}
	if id := c.trace.ID(); id != "" {
		e.Str("trace_id", id)
	}
	c.logUse(e)
	e.Int("rounds", c.round.n)
	logBackend(e, "prefill", c.p.Lease.Backend)
	logBackend(e, "decode", c.d.Lease.Backend)
	if f := c.failure; f != nil {
		e.Stringer("code", f.Code)
		if f.Log != "" {
			e.Str("error", f.Log)
		}
	}
	e.Int("status", c.status()).Stringer("outcome", o)
	if c.failure != nil && c.failure.Code == fault.CodeClientGone {
		e.Stringer("phase", c.phase())
	}
	c.encoding.Load().Log(e)
	if n := c.carried.stream().Times(); n > 0 {
		e.Int("carried", n)
	}
	if k := c.carried; k != nil && k.not != carry.None {
		e.Stringer("not_carried", k.not)
	}
	if !t.prefilled.IsZero() {
		e.Float64("prefill_ms", ms(t.prefill))
		if t.handed.After(t.prefilled) { // with legs that begin together, nothing is handed over
			e.Float64("handoff_ms", ms(t.handed.Sub(t.prefilled)))
		}
	}
	if c.d.streamed && !t.first.IsZero() { // a whole answer shows no first token
		e.Float64("ttft_ms", ms(t.first.Sub(t.start)))
	}
	e.Float64("total_ms", ms(time.Since(t.start))).
		Int("events", c.d.relay.events).Int64("bytes", c.d.relay.sent).Msg("completion")
}

// logUse says whose request it was, and what it cost.
func (c record) logUse(e *zerolog.Event) {
	if c.use.Account != nil {
		e.Str("key", c.use.Name)
	}
	if len(c.model) > 0 {
		e.Bytes("model", c.model)
	}
	if prompt, answer := c.spent(); prompt > 0 {
		e.Int("prompt_tokens", prompt).Int("completion_tokens", answer)
	}
}

// status is that of the answer's head.
func (c record) status() int {
	if c.failure != nil && (c.erred || c.state.get() != stateCommitted) {
		return c.failure.Status
	}
	return fasthttp.StatusOK
}

func logBackend(e *zerolog.Event, role string, b *router.Backend) {
	if b != nil {
		e.Str(role, b.URL)
	}
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// recycle puts the completion back into the pool with nothing left of its request.
func (c *completion) recycle() {
	s := c.s
	c.freeBody()
	c.p.freeAnswer()
	c.d.relay.giveBack(&s.buffers)
	c.d.held.Lower(0)
	c.carried.reset()
	if c.left.Load() > 0 {
		s.departed.Add(-1)
	}
	if c.orphan.Load() {
		s.clients.Settled(c.client)
	}
	if c.p.Lease.Held() || c.d.Lease.Held() { // whoever gave a lease after the end may still use c
		return
	}
	c.clear()
	s.idle.completions.Put(c)
}

// clear leaves of a completion only what the next one uses again: its attempts, and buffers with nothing in them.
func (c *completion) clear() {
	c.p.Reset()
	c.d.Reset()
	clear(c.d.out)
	if c.d.whole != nil {
		c.d.whole.Reset()
	}
	*c = completion{
		s: c.s, incoming: incoming{fields: c.fields[:0], model: c.model[:0]},
		p: prefillLeg{c: c, Attempt: c.p.Attempt, onDown: c.p.onDown, tried: c.p.tried[:0], leg: kvparams.Leg{Scratch: c.p.leg.Scratch[:0]}},
		d: decodeLeg{
			c: c, Attempt: c.d.Attempt, onDown: c.d.onDown, onSourceDown: c.d.onSourceDown, tried: c.d.tried[:0], refused: c.d.refused[:0],
			leg: kvparams.Leg{Scratch: c.d.leg.Scratch[:0]}, whole: c.d.whole, out: c.d.out[:0],
		},
		carried: c.carried,
	}
}

// tokensUsed returns what an answered completion was made of. D's usage says it. Without one, P has counted the
// prompt or xpyd has estimated it, and each event with a part of the answer is a token.
func (c record) tokensUsed() metrics.Tokens {
	d := &c.d
	u, events := kvparams.NoUsage(), -1
	switch {
	case d.streamed:
		u, events = d.relay.usage, d.relay.content
	case d.large:
		u, events = d.relay.usage, int(max(d.relay.sent, d.X.Head.Length)>>10) // without a usage: about what a token has with its logprobs
	default:
		u = d.whole.Usage()
	}
	used := metrics.Tokens{Prompt: u.Prompt, Cached: u.Cached, Completion: u.Completion, Told: u.Completion >= 0}
	if !used.Told {
		used.Completion = events
	}
	if c.path == pathDisaggregated && !c.dialect().Concurrent() {
		used.Cached = c.p.cached // what D says of KV that came from P tells nothing
		if used.Prompt < 0 {
			used.Prompt = c.p.prompt
		}
	} else if c.path == pathDisaggregated {
		used.Cached = int(c.p.beside.told.Load()) - 1
	}
	if used.Prompt < 0 {
		used.Prompt = c.bill.prompt
	}
	return used
}

// countModel counts the completion for its model. Only a model that has answered gets a series.
func (c record) countModel(o outcome) {
	answered := c.state.get() == stateCommitted
	m := c.s.metrics.Model(c.model, answered)
	m.Ended(int(o))
	if answered {
		used := c.tokensUsed()
		if m.Answered(used); used.Told && c.p.prompt <= 0 { // otherwise P has told
			c.bill.counted(c.s.router, used.Prompt)
		}
	}
}

// endRetry gives the share of the retry budget back.
func (c *completion) endRetry() {
	if c.retrying {
		c.retrying = false
		c.s.router.ReturnRetry()
	}
}
