package sim

import (
	"bytes"
	"context"
	"time"
)

// prefill is the first leg: compute, pin the blocks under a lease, answer one
// token and the handle.
//
// A client that leaves while it computes frees everything. One that leaves in the last AbortWindow
// strands the blocks. The engine has finished, but the handler is cancelled before it writes the
// answer that names them.
func (g *generation) prefill(ctx context.Context) {
	if !g.directed() {
		g.die("dead")
		return
	}
	l := g.c.ledger
	r := g.reserve()
	select {
	case <-r.ready:
	case <-ctx.Done():
	}
	g.c.gate.wait()
	if ctx.Err() != nil {
		l.finish(r)
		g.tellAborted()
		g.left()
		return
	}
	g.admitted(r)
	g.emit(PhasePrefillStart, 0)
	window, computed := g.computeForOther(ctx, r)
	if !computed || g.x.gone() {
		l.finish(r)
		g.tellAborted()
		g.left()
		return
	}
	l.endCompute(r)
	g.fileKV(r)
	g.pin(r)
	l.finish(r)
	g.emit(PhasePrefillEnding, 0)
	g.c.pause(g.c.life, window)
	if ctx.Err() != nil || g.x.gone() {
		g.strand()
		return
	}
	if !g.awaitSent(ctx) {
		return
	}
	g.c.metrics.started(g)
	g.answerPrefill(ctx)
}

// computeForOther computes r's prompts and the answer up to its last moments, the window in which a client
// that leaves strands the blocks. It returns false if ctx ended first.
func (g *generation) computeForOther(ctx context.Context, r *reservation) (window time.Duration, ok bool) {
	tokens := r.uncached(g.c.o.BlockSize)
	compute, more := g.c.o.prefillTime(tokens), timeFor(g.steps()-1, g.c.stepTime())
	window = max(0, min(g.c.o.AbortWindow, compute+more))
	if g.c.steps == nil {
		return window, g.c.spend(ctx, min(compute, compute+more-window)) && g.c.pause(ctx, more-window)
	}
	g.seq = g.c.steps.compute(r, tokens, g.promptTokens(), g.steps())
	if g.c.steps.awaitLast(ctx, g.seq, window) {
		return window, true
	}
	g.leaveSteps()
	return window, false
}

// pin puts every unit's blocks under a lease. Only the first unit's get a handle, below 0.33 only in an
// answer that is not streamed. The others wait for the lease to end.
func (g *generation) pin(r *reservation) {
	o := g.c.o
	if o.stores() || o.sends() && g.pinKey(g.units[0]) == "" {
		return
	}
	for i, u := range g.units {
		if g.faults.has(FaultNoHandle) {
			return
		}
		g.direct(u)
		blocks := g.c.ledger.pin(r, i, g.blocks(u), g.pinKey(u), o.Lease)
		if i > 0 || g.r.stream && !o.tellsHandleInStreams() || !o.handsOut() {
			continue
		}
		if o.Connector == ConnectorMoriio || o.Connector == ConnectorWrite {
			g.handle = g.c.appendMoriio(nil, g.pinKey(u), blocks)
		} else {
			g.handle = g.c.appendHandle(nil, u.internalID, blocks, u.prompt.tokens+max(len(u.tokens)-1, 0), g.cached)
		}
		if f, ok := g.faults.find(FaultBadHandle); ok {
			g.handle = spoilHandle(g.handle, f.Arg)
		}
		g.rec.BlockIDs, g.rec.RemoteRequestID, g.rec.RemoteEngineID = blocks, u.internalID, g.c.id
		g.rec.RemoteHost, g.rec.RemotePort = splitPort(g.c.side.Addr())
	}
}

// keepsOwn reports whether this engine keeps the blocks of its answer for the next turn.
func (g *generation) keepsOwn() bool { return g.c.o.Bidirectional && g.pulls() }

// describeOwn makes the handle of a decode engine's own blocks, the first unit's.
func (g *generation) describeOwn(r *reservation) {
	if !g.keepsOwn() {
		return
	}
	u := g.units[0]
	tokens := u.prompt.tokens + max(len(u.tokens)-1, 0)
	g.handle = g.c.appendHandle(nil, u.internalID, r.seats[0].blocks, tokens, g.cached)
	g.handle = bytes.Replace(g.handle, []byte(`"do_remote_prefill":true,"do_remote_decode":false`), []byte(`"do_remote_prefill":false,"do_remote_decode":true`), 1)
}

// pinOwn keeps the blocks of an answer that has ended.
func (g *generation) pinOwn(r *reservation) {
	if !g.keepsOwn() {
		return
	}
	for i, u := range g.units {
		g.c.ledger.pin(r, i, g.blocks(u), u.internalID, decoderTTL)
	}
}

func (g *generation) answerPrefill(ctx context.Context) {
	if g.r.stream {
		if g.openStream() != nil || g.writeStream(ctx, nil) != nil {
			g.strand()
			return
		}
	} else if g.faultInstead(ctx) {
		return
	} else if g.answerWhole(ctx) != nil {
		g.strand()
		return
	}
	g.done()
	g.emit(PhasePrefillAnswered, 0)
}

// pinsStill reports whether blocks wait for a reader. A decode engine may have had them already.
func (g *generation) pinsStill() bool {
	if o := g.c.o; o.stores() || o.sends() {
		return !o.stores() && g.c.ledger.holds(g.pinKey(g.units[0]))
	}
	return true
}

// strand ends a prefill whose blocks are pinned and whose answer went nowhere.
func (g *generation) strand() {
	g.x.last = true
	g.tellAborted()
	if g.rec.Outcome == "" && g.left() && g.pinsStill() {
		g.rec.Outcome = "stranded"
	}
}
