package proxy

import (
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"xpyd/kvparams"
	"xpyd/metrics/trace"
)

// This file is what clients and operators learn of where a request was, and for how long: its trace,
// Server-Timing and the engines' names.

// openTracer starts to send traces, if they go anywhere. If it fails, it closes what is open.
func (s *Server) openTracer(version string) (err error) {
	// An export follows another after 5 s or 512 spans, so these lines need no bound.
	lost := func(err error) { s.log.Warn().Err(err).Msg("traces not sent") }
	if s.tracer, err = trace.New(s.cfg.Tracing, version, lost); err != nil {
		s.watch.Close() // the certificates are not followed yet
	}
	s.forward.Traced = s.tracer != nil
	return err
}

// incoming gathers what a span says of a request's head. It is called only if there are traces.
func (s *Server) incoming(h *fasthttp.RequestHeader) trace.Incoming {
	scheme := "http"
	if s.cfg.TLS.On() {
		scheme = "https"
	}
	return trace.Incoming{
		Traceparent: h.Peek("Traceparent"), Tracestate: h.Peek("Tracestate"), Host: h.Host(), Method: string(h.Method()), Scheme: scheme,
	}
}

// beginTrace starts the request's span, and tells the engines of it in c.fields.
func (c *completion) beginTrace() {
	if c.s.tracer == nil {
		return
	}
	in := c.s.incoming(&c.ctx.Request.Header)
	in.Route, in.Client, in.RequestID, in.Start = c.api.Path(), c.conn.IP(), c.id, c.times.start
	in.Operation = "chat"
	if c.api == kvparams.Completions || c.api == kvparams.Generate {
		in.Operation = "text_completion"
	}
	c.trace = c.s.tracer.Begin(in)
	c.fields = c.trace.AppendFields(c.fields)
}

// endTrace ends the request's span. Its legs have ended.
func (c record) endTrace(o outcome) {
	if c.s.tracer == nil {
		return
	}
	t := &c.times
	e := trace.End{
		Status: c.status(), Outcome: o.String(), Failed: o == outcomeError || o == outcomeBroken, Rounds: c.round.n,
		Start: t.start, Queued: t.queued, Dequeued: t.dequeued, First: t.first,
	}
	if c.failure != nil {
		e.Code = c.failure.Code.String()
	}
	e.Input, e.Output = c.spent()
	if c.reached {
		e.Path, e.Reason = c.path.String(), c.reason.String()
	}
	if c.path == pathDisaggregated {
		e.Prefilled, e.Handed = t.prefilled, t.handed
	}
	c.trace.End(e)
}

// beginTrace starts the span of a request that is relayed.
func (p *passing) beginTrace(h *fasthttp.RequestHeader) {
	if p.s.tracer == nil {
		return
	}
	in := p.s.incoming(h)
	in.Route, in.Client, in.RequestID, in.Start = p.route.Path, p.conn.IP(), p.id, p.start
	if p.route.Path == "/v1/embeddings" {
		in.Operation = "embeddings"
	}
	p.trace = p.s.tracer.Begin(in)
	p.fields = p.trace.AppendFields(p.fields)
}

// endTrace ends the span of the request. Its leg has ended.
func (p *passing) endTrace(o outcome) {
	if p.s.tracer == nil {
		return
	}
	e := trace.End{Status: p.X.Head.Status, Outcome: o.String(), Failed: o == outcomeError || o == outcomeBroken, Start: p.start}
	if f := p.failed; f != nil {
		e.Code = f.Code.String()
		if !p.kept {
			e.Status = f.Status
		}
	}
	p.trace.End(e)
}

// tellLegs adds what a client may learn of its legs to the head of the answer.
func (c reply) tellLegs(h *fasthttp.ResponseHeader) {
	if c.s.cfg.Headers.Timing {
		var room [128]byte
		h.SetBytesV("Server-Timing", c.appendTiming(room[:0]))
	}
	if !c.s.cfg.Headers.Backends {
		return
	}
	if b := c.p.Lease.Backend; b != nil && c.path == pathDisaggregated {
		h.Set("X-Xpyd-Prefill", b.URL)
	}
	if b := c.d.Lease.Backend; b != nil {
		h.Set("X-Xpyd-Decode", b.URL)
	}
}

// appendTiming appends the phases that are over, as Server-Timing lists them.
func (c reply) appendTiming(dst []byte) []byte {
	t := &c.times
	dst = appendPhase(dst, "queue", t.queued)
	if !c.p.beside.running() && !t.prefilled.IsZero() {
		dst = appendPhase(dst, ", prefill", t.prefill)
		if c.path == pathDisaggregated && t.handed.After(t.prefilled) {
			dst = appendPhase(dst, ", handoff", t.handed.Sub(t.prefilled))
		}
	}
	if c.d.streamed && c.state.get() == stateCommitted {
		dst = appendPhase(dst, ", first-token", time.Since(t.start))
	}
	return dst
}

func appendPhase(dst []byte, name string, took time.Duration) []byte {
	dst = append(append(dst, name...), ";dur="...)
	return strconv.AppendFloat(dst, ms(took), 'f', -1, 64)
}
