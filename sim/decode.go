package sim

import (
	"context"
	"slices"
	"time"
)

// decode is the second leg, or a request that needs no other engine: queue,
// pull the KV or compute it, and generate.
func (g *generation) decode(ctx context.Context) {
	g.emit(PhaseDecodeReceived, 0)
	if g.r.stream && g.openStream() != nil { // the head goes out before the request is scheduled
		g.leaveQueue(nil)
		return
	}
	need := 0
	for _, u := range g.units {
		need += g.blocks(u)
	}
	r := g.c.ledger.reserve(len(g.units), need)
	if !g.awaitTurn(ctx, r) {
		g.leaveQueue(r)
		return
	}
	if g.pulls() && !g.load(ctx, r) || !g.pulls() && !g.compute(ctx, r) {
		return
	}
	g.c.metrics.started(g)
	if g.pulls() {
		g.emit(PhaseDecodeLoaded, 0)
	}
	err := g.generate(ctx)
	g.c.ledger.finish(r)
	if err != nil {
		g.fail()
		return
	}
	g.done()
	g.emit(PhaseStreamEnd, 0)
}

// awaitTurn waits until r may run. A request that has to queue keeps its
// handle's lease alive meanwhile.
func (g *generation) awaitTurn(ctx context.Context, r *reservation) bool {
	select {
	case <-r.ready:
		return ctx.Err() == nil
	default:
	}
	if g.pulls() && g.h.heartbeats() {
		stop := make(chan struct{})
		defer close(stop)
		g.c.spawn(func() { g.c.heartbeat(g.h, stop) })
	}
	select {
	case <-r.ready:
	case <-ctx.Done():
	}
	g.c.gate.wait()
	return ctx.Err() == nil
}

// leaveQueue ends a request whose client left before it was scheduled: its
// prefill engine is told so.
func (g *generation) leaveQueue(r *reservation) {
	if r != nil {
		g.c.ledger.finish(r)
	}
	if g.left() && g.pulls() {
		g.c.spawn(func() { g.c.notify(g.h, freedByAbort) })
	}
}

// compute prefills on this engine; false means that the request has ended.
func (g *generation) compute(ctx context.Context, r *reservation) bool {
	if g.c.pause(ctx, g.c.o.prefillTime(g.promptTokens())) {
		return true
	}
	g.c.ledger.finish(r)
	g.left()
	return false
}

// load pulls each unit's KV; false means that the request has ended.
func (g *generation) load(ctx context.Context, r *reservation) bool {
	for _, u := range g.units {
		switch g.h.judge(g.c.o.blocksFor(u.prompt.tokens)) {
		case verdictDie:
			g.die()
			return false
		case verdictHang:
			g.hang(ctx, r)
			return false
		}
		loaded := make(chan loadResult, 1)
		started := g.c.spawn(func() { loaded <- g.transfer(ctx, u) })
		if !started {
			g.left()
			return false
		}
		select {
		case result := <-loaded:
			if !g.digest(ctx, r, u, result) {
				return false
			}
		case <-ctx.Done():
			g.left()
			// The blocks stay in use until the transfer ends, whenever that is.
			g.c.spawn(func() { <-loaded; g.c.ledger.finish(r) })
			return false
		}
	}
	return true
}

// loadResult is what one transfer brought.
type loadResult struct {
	contents []uint64
	err      error
}

// transfer pulls u's KV and tells the prefill engine. It runs to its end even
// when the client leaves, and then the notification says abort.
func (g *generation) transfer(ctx context.Context, u *unit) loadResult {
	if g.faults.has(FaultKVFail) {
		return loadResult{err: errIncompatible}
	}
	begin := time.Now()
	need := g.c.o.blocksFor(u.prompt.tokens)
	contents, err := g.c.pull(g.h, need)
	if err != nil {
		g.c.metrics.failedTransfer()
		return loadResult{err: err}
	}
	g.c.metrics.transferred(need, time.Since(begin))
	by := freedByRead
	if ctx.Err() != nil {
		by = freedByAbort
	}
	g.c.notify(g.h, by)
	return loadResult{contents: contents}
}

// digest continues with what a transfer brought: right KV, wrong KV or none.
func (g *generation) digest(ctx context.Context, r *reservation, u *unit, result loadResult) bool {
	if result.err != nil && g.c.o.LoadFailure == "recompute" {
		return g.compute(ctx, r)
	}
	if result.err != nil {
		g.c.ledger.finish(r)
		g.loadFailed(ctx)
		return false
	}
	g.pulled = true
	if !g.faults.has(FaultCached) {
		g.cached = g.cachedElsewhere()
	}
	base := hashText(u.prompt.text)
	right := make([]uint64, len(result.contents))
	for i := range right {
		right[i] = mix(base, uint64(i))
	}
	if !slices.Equal(right, result.contents) {
		g.rec.WrongKV = true
		u.script = newWrongScript(u.prompt.text, u.choice, result.contents)
		u.write(g.r)
	}
	return true
}

// cachedElsewhere is what a decode engine reports as cached of KV that it pulled: since
// 0.32 what the prefill engine had cached, as the handle says; before, all of it.
func (g *generation) cachedElsewhere() int {
	if !g.c.o.since(32) {
		return g.promptTokens()
	}
	return g.h.cached
}

// loadFailed ends a request whose KV did not come: 500, or after the role chunk
// an error event and [DONE].
func (g *generation) loadFailed(ctx context.Context) {
	g.rec.Outcome = "kv_failed"
	g.c.metrics.finished(g, "error")
	if !g.r.stream {
		g.send(internalError())
		return
	}
	switch {
	case g.writeRoles(ctx) != nil:
	case g.c.o.tellsLoadFailure():
		g.endWithError(ctx)
	default:
		g.endStream(ctx)
	}
}

// hang keeps the request until its client leaves. After a missing engine id the
// engine dies of the clean-up.
func (g *generation) hang(ctx context.Context, r *reservation) {
	<-ctx.Done()
	g.c.gate.wait()
	g.c.ledger.finish(r)
	if g.left() && g.h.peer.engine == "" {
		g.die()
	}
	if g.rec.Outcome == "aborted" {
		g.rec.Outcome = "hung"
	}
}

// generate writes the answer, token by token or whole.
func (g *generation) generate(ctx context.Context) error {
	if g.r.stream {
		return g.writeStream(ctx, true)
	}
	if g.faultInstead(ctx) {
		return errFault
	}
	if !g.c.pause(ctx, timeFor(g.steps()-1, g.c.o.TokenLatency)) || g.x.gone() {
		return errClientGone
	}
	return g.answerWhole(ctx)
}

func timeFor(steps int, each time.Duration) time.Duration {
	return time.Duration(max(steps, 0)) * max(each, 0)
}
