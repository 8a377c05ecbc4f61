// Package trace makes OpenTelemetry's traces: a server span for each request, and a client span for
// each of its legs. It is the only importer of go.opentelemetry.io. A nil Tracer makes nothing, and then
// nothing here allocates.
package trace

import (
	"context"
	"encoding/hex"
	"net/netip"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Tracer starts traces and sends them in the background. It never waits for the collector: what finds
// no room in its queue is lost.
type Tracer struct {
	provider *sdk.TracerProvider
	spans    trace.Tracer
}

// closeTime is how long Close may take to send what is left.
const closeTime = 2 * time.Second

// Close sends what has not been sent. No span may end after it.
func (t *Tracer) Close() {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	_ = t.provider.Shutdown(ctx) // what failed has been reported
}

// Incoming is what a request brings along.
type Incoming struct {
	Traceparent, Tracestate []byte // fields of its head
	Host                    []byte
	Method, Route, Scheme   string
	Client                  netip.Addr
	RequestID               string
	Operation               string // of gen_ai; may be empty
	Start                   time.Time
}

// Get, Set and Keys make it the carrier that the SDK reads.
func (in *Incoming) Get(key string) string {
	switch key {
	case "traceparent":
		return string(in.Traceparent)
	case "tracestate":
		return string(in.Tracestate)
	}
	return ""
}

// Set does nothing. The SDK only reads.
func (in *Incoming) Set(string, string) {}

// Keys returns the fields that Get knows.
func (in *Incoming) Keys() []string { return []string{"traceparent", "tracestate"} }

// Request is the trace of one request. The zero value is none. Only Leg may be called by several
// goroutines at a time.
type Request struct{ on *request }

type request struct {
	tracer trace.Tracer
	ctx    context.Context // with the span, for its children
	span   trace.Span
	start  time.Time
	at     int // where the id of the span begins in what AppendFields wrote to
}

// Begin starts the trace of a request, as a part of its client's trace if it has one.
func (t *Tracer) Begin(in Incoming) Request {
	if t == nil {
		return Request{}
	}
	return t.begin(in)
}

// begin is apart, because in goes to the heap here.
func (t *Tracer) begin(in Incoming) Request {
	r := &request{tracer: t.spans, start: in.Start}
	parent := propagation.TraceContext{}.Extract(context.Background(), &in)
	r.ctx, r.span = t.spans.Start(parent, in.Method+" "+in.Route, trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(in.Start))
	if r.span.IsRecording() {
		r.span.SetAttributes(in.attributes()...)
	}
	return Request{r}
}

// AppendFields appends the header lines that tell an engine of the request's span. Without a trace
// it appends nothing.
func (r Request) AppendFields(dst []byte) []byte {
	if r.on == nil {
		return dst
	}
	sc := r.on.span.SpanContext()
	id, span := sc.TraceID(), sc.SpanID()
	dst = hex.AppendEncode(append(dst, "Traceparent: 00-"...), id[:])
	dst = append(dst, '-')
	r.on.at = len(dst)
	dst = hex.AppendEncode(dst, span[:])
	dst = hex.AppendEncode(append(dst, '-'), []byte{byte(sc.TraceFlags())})
	dst = append(dst, "\r\n"...)
	if state := sc.TraceState().String(); state != "" {
		dst = append(append(append(dst, "Tracestate: "...), state...), "\r\n"...)
	}
	return dst
}

// clock returns the time t by the clock of the request's start. The clock of the day may be set
// meanwhile, and a leg must not seem to begin before its request.
func (r *request) clock(t time.Time) trace.SpanEventOption {
	return trace.WithTimestamp(r.start.Add(t.Sub(r.start)))
}

// recording reports that the trace is sampled.
func (r Request) recording() bool { return r.on != nil && r.on.span.IsRecording() }

// ID returns the trace's id in hex, or "" if the trace is not sampled.
func (r Request) ID() string {
	if !r.recording() {
		return ""
	}
	return r.on.span.SpanContext().TraceID().String()
}

// longestModel is how much of a model's name a span shows, in bytes. The client gave it.
const longestModel = 256

// SetModel notes the model that the request names. Bytes that are no UTF-8 are replaced: a single one
// would cost all spans that are sent together with this one.
func (r Request) SetModel(model []byte) {
	if r.recording() && len(model) > 0 {
		r.on.span.SetAttributes(genAIModel.String(strings.ToValidUTF8(string(model[:min(len(model), longestModel)]), "\uFFFD")))
	}
}

// Leg is the span of one request to an engine. The zero value is none. One goroutine owns it.
type Leg struct {
	span   trace.Span // nil unless the leg runs and its trace is sampled
	fields []byte     // header lines of the request
}

// Leg starts a leg. fields are the lines to which AppendFields has added its own. The leg's request
// must be sent with those of Fields.
func (r Request) Leg(l *Leg, name, url, path string, round int, fields []byte) {
	if !r.recording() {
		return
	}
	_, l.span = r.on.tracer.Start(r.on.ctx, name, trace.WithSpanKind(trace.SpanKindClient), r.on.clock(time.Now()), trace.WithAttributes(legAttributes(url, path, round)...))
	l.fields = append(l.fields[:0], fields...)
	id := l.span.SpanContext().SpanID()
	hex.Encode(l.fields[r.on.at:], id[:])
}

// Fields returns the header lines of the leg's request, which are the usual ones if it has no span.
func (l *Leg) Fields(usual []byte) []byte {
	if l.span == nil {
		return usual
	}
	return l.fields
}

// LegEnd is how a leg ended. What is not known is empty or zero.
type LegEnd struct {
	ID           string // X-Request-Id of the leg
	Status       int    // of the engine's answer
	Outcome      string
	Code         string // of the error; empty is success
	PromptTokens int
	CachedTokens int
}

// End ends the leg's span. Later calls do nothing until the next leg.
func (l *Leg) End(e LegEnd) {
	if l.span == nil {
		return
	}
	l.span.SetAttributes(e.attributes()...)
	if e.Code != "" {
		l.span.SetStatus(codes.Error, e.Code)
	}
	l.span.End()
	l.span = nil
}

// End is how a request ended. What is not known is empty or zero.
type End struct {
	Status        int
	Outcome, Code string // Code: of the error
	Failed        bool   // it was not the client's fault
	Path, Reason  string // of the decision
	Rounds        int
	Input, Output int // tokens

	Start                    time.Time
	Queued                   time.Duration // in all
	Dequeued                 time.Time     // the last wait ended
	Prefilled, Handed, First time.Time     // the handle came, decode had the request, the client had a token
}

// End ends the request's span. No leg may run then.
func (r Request) End(e End) {
	if !r.recording() {
		return
	}
	span := r.on.span
	span.SetAttributes(e.attributes()...)
	if !e.Dequeued.IsZero() {
		span.AddEvent("queue", r.on.clock(e.Dequeued), trace.WithAttributes(attribute.Float64("xpyd.queue.duration", e.Queued.Seconds())))
	}
	if !e.Prefilled.IsZero() && e.Handed.After(e.Prefilled) {
		span.AddEvent("handoff", r.on.clock(e.Handed), trace.WithAttributes(attribute.Float64("xpyd.handoff.duration", e.Handed.Sub(e.Prefilled).Seconds())))
	}
	if !e.First.IsZero() {
		span.AddEvent("first_token", r.on.clock(e.First))
	}
	if e.Failed {
		span.SetStatus(codes.Error, e.Code)
	}
	span.End()
}
