package sim

import (
	"bytes"
	"context"
	"net/http"
	"slices"
	"time"
)

// eventStream writes the events of one answer and counts them.
type eventStream struct {
	next    int // index of the next event
	payload []byte
	crlf    bool // [[text:crlf]]
	comment bool // [[text:comments]]
	// sequence is the number of the next event, for the API that numbers them.
	sequence int
}

// openStream writes the head of the event stream.
func (g *generation) openStream() error {
	style := textStyle(g.r.prompts[0].text)
	g.events = &eventStream{crlf: style == "crlf", comment: style == "comments"}
	if err := g.x.stream(); err != nil {
		return err
	}
	g.rec.Status = http.StatusOK
	return nil
}

// writeStream writes the role chunks, the tokens, the usage and the end. Each token of the request in r comes in its
// time. The answer of a prefill has no r, and comes at once.
func (g *generation) writeStream(ctx context.Context, r *reservation) error {
	if g.faults.has(FaultZero) {
		g.rec.Outcome = "fault:" + FaultZero
		return g.endStream(ctx)
	}
	if g.faults.has(FaultErrFirst) {
		g.rec.Outcome = "fault:" + FaultErrFirst
		return g.endWithError(ctx)
	}
	if err := g.writeRoles(ctx); err != nil {
		return err
	}
	if g.faults.has(FaultRoleError) {
		g.rec.Outcome = "fault:" + FaultRoleError
		return g.endWithError(ctx)
	}
	due := g.c.pace.now()
	for step := range g.steps() {
		if r != nil && !g.awaitToken(ctx, step, due) {
			return errClientGone
		}
		due += g.c.stepTime()
		for _, u := range g.units {
			if step >= len(u.tokens) {
				continue
			}
			if err := g.writeToken(ctx, u, step); err != nil {
				return err
			}
		}
	}
	if g.r.includeUsage {
		if payload := g.api.appendUsageEvent(g.begin(), g); payload != nil {
			if err := g.writeEvents(ctx, payload); err != nil {
				return err
			}
		}
	}
	if r != nil {
		g.keepAnswer(r)
	}
	return g.endStream(ctx)
}

// awaitToken waits until the engine has token number step, which is due at that value of the pace.
func (g *generation) awaitToken(ctx context.Context, step int, due time.Duration) bool {
	if g.seq != nil {
		return g.c.steps.await(ctx, g.seq, step+1)
	}
	return g.c.awaitStep(ctx, due)
}

// writeToken writes the event of one token, if it has one.
func (g *generation) writeToken(ctx context.Context, u *unit, step int) error {
	if payload := g.api.appendToken(g.begin(), g, u, step); payload != nil {
		if err := g.writeEvents(ctx, payload); err != nil {
			return err
		}
	}
	g.rec.Tokens++
	g.c.metrics.streamed(g)
	return nil
}

func (g *generation) writeRoles(ctx context.Context) error {
	for _, u := range g.units {
		payload := g.api.appendRole(g.begin(), g, u)
		if payload == nil {
			return nil // completions have none
		}
		if err := g.writeEvents(ctx, payload); err != nil {
			return err
		}
	}
	return nil
}

// endStream writes [DONE] and the chunk that ends the body.
func (g *generation) endStream(ctx context.Context) error {
	g.rec.Events++ // [DONE], which is counted as written with the record
	g.file("ok")
	g.rec.Events--
	if !g.faults.has(FaultNoDone) {
		if err := g.event(ctx, g.api.appendDone(g.begin(), g)); err != nil {
			return err
		}
	}
	_ = g.x.endStream() // after [DONE] the answer is whole, whether or not the client is there
	return nil
}

func (g *generation) endWithError(ctx context.Context) error {
	if err := g.event(ctx, append(g.events.payload[:0], g.api.streamError(g.c.o)...)); err != nil {
		return err
	}
	return g.endStream(ctx)
}

// begin starts an event's payload in the stream's own buffer.
func (g *generation) begin() []byte { return append(g.events.payload[:0], g.api.lead()...) }

// betweenEvents separates the events that an API has for one step.
var betweenEvents = []byte("\n\n")

// writeEvents writes the events of one step, each in a chunk of its own.
func (g *generation) writeEvents(ctx context.Context, payload []byte) error {
	for {
		one, rest, more := bytes.Cut(payload, betweenEvents)
		if !more {
			return g.event(ctx, one)
		}
		if err := g.event(ctx, slices.Clone(one)); err != nil {
			return err
		}
		payload = rest
	}
}

// event writes one event in one chunk and one write, unless a fault replaces it.
func (g *generation) event(ctx context.Context, payload []byte) error {
	s := g.events
	if s.crlf {
		payload = append(payload, "\r\n\r\n"...)
	} else {
		payload = append(payload, "\n\n"...)
	}
	s.payload = payload
	if s.comment {
		if err := g.x.write(g.x.frame([]byte(": keep-alive\n\n"))); err != nil {
			return err
		}
	}
	if err := g.faultAtEvent(ctx, payload); err != nil {
		return err
	}
	if err := g.writeDripping(ctx, g.x.frame(payload)); err != nil {
		return err
	}
	g.emit(PhaseStreamEvent, s.next)
	s.next++
	g.rec.Events++
	return nil
}

// faultAtEvent plays the fault that is due in place of the next event.
func (g *generation) faultAtEvent(ctx context.Context, payload []byte) error {
	for _, f := range g.faults {
		if f.At != g.events.next || g.rec.Outcome != "" {
			continue
		}
		switch f.Kind {
		case FaultDie:
			return g.breakOff(f)
		case FaultCut:
			_ = g.x.write(g.x.frame(payload)[:len(payload)/2]) // broken off in any case
			return g.breakOff(f)
		case FaultStall:
			g.stall(ctx)
		case FaultKill:
			g.die("fault:" + f.Kind)
		case FaultErrDone:
			g.rec.Outcome = "fault:" + f.Kind
			_ = g.endWithError(ctx) // the request ends in any case
		case FaultErrCut:
			_ = g.x.write(g.x.frame([]byte(g.api.streamError(g.c.o) + "\n\n")))
			return g.breakOff(f)
		case FaultCorrupt:
			g.rec.Outcome = "fault:" + f.Kind
			spoil(payload)
			return nil
		default:
			continue
		}
		g.rec.Outcome = "fault:" + f.Kind
		return errFault
	}
	return nil
}
