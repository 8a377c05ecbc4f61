package sim

import (
	"context"
	"strings"
	"time"
)

// decode is the second leg, or a request that needs no other engine. It queues, pulls the KV or
// computes it, and generates.
func (g *generation) decode(ctx context.Context) {
	g.emit(PhaseDecodeReceived, 0)
	if g.r.stream && g.openStream() != nil { // the head goes out before the request is scheduled
		g.leaveQueue(nil)
		return
	}
	r := g.reserve()
	if !g.awaitTurn(ctx, r) {
		g.leaveQueue(r)
		return
	}
	g.admitted(r)
	if g.pulls() && !g.load(ctx, r) || !g.pulls() && !g.compute(ctx, r) {
		return
	}
	g.c.metrics.started(g)
	if g.pulls() {
		g.emit(PhaseDecodeLoaded, 0)
	}
	g.describeOwn(r)
	err := g.generate(ctx, r)
	if err == nil {
		g.pinOwn(r)
	}
	g.c.ledger.finish(r)
	if err != nil {
		g.fail()
		return
	}
	g.done()
	g.emit(PhaseStreamEnd, 0)
}

// awaitTurn waits until r may run. A request that queues keeps the lease of its handle alive.
func (g *generation) awaitTurn(ctx context.Context, r *reservation) bool {
	select {
	case <-r.ready:
		return ctx.Err() == nil && !g.x.gone()
	default:
	}
	if g.pulls() && g.h.heartbeats() && g.c.o.Connector != ConnectorMoriio && g.c.o.Connector != ConnectorWrite { // MoRIIO has no lease to renew
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

// leaveQueue ends a request whose client left before it was scheduled, and tells its prefill
// engine.
func (g *generation) leaveQueue(r *reservation) {
	if r != nil {
		g.c.ledger.finish(r)
	}
	if g.left() && g.pulls() && g.c.o.tellsUnread() {
		g.c.spawn(func() { g.c.notify(g.h, freedByAbort) })
	}
}

// keepAnswer leaves the full blocks of the answers in the cache for the next turn. The last token
// has no KV. It comes before the last bytes of the answer, because the client's next turn may come at once after them.
func (g *generation) keepAnswer(r *reservation) {
	if g.rec.WrongKV || g.c.o.NoPrefixCaching {
		return
	}
	for i, u := range g.units {
		full := (u.prompt.tokens + max(len(u.tokens)-1, 0)) / g.c.o.BlockSize
		answer := strings.Join(u.tokens, "")
		g.c.ledger.answered(r, i, u.kv.withAnswer(u.prompt, answer, full, g.c.o.BlockSize), u.prompt.answered(answer).idsFrom(0))
	}
}

// compute prefills on this engine. It returns false if the request has ended.
func (g *generation) compute(ctx context.Context, r *reservation) bool {
	if !g.fetch(ctx, r) {
		return false
	}
	if g.prefillHere(ctx, r, r.uncached(g.c.o.BlockSize)) {
		g.c.ledger.endCompute(r)
		g.fileKV(r)
		if g.decodesUnloaded() {
			for _, u := range g.units {
				g.checkKV(u, make([]uint64, len(u.kv.contents)))
			}
		}
		return true
	}
	g.c.ledger.finish(r)
	g.left()
	return false
}

// prefillHere takes the time of so many tokens of prompts. It returns false if ctx ended first.
func (g *generation) prefillHere(ctx context.Context, r *reservation, tokens int) bool {
	if g.c.steps == nil {
		return g.c.spend(ctx, g.c.o.prefillTime(tokens))
	}
	g.leaveSteps() // of a unit before
	g.seq = g.c.steps.compute(r, tokens, g.promptTokens(), g.steps())
	if g.c.steps.await(ctx, g.seq, 1) {
		return true
	}
	g.leaveSteps()
	return false
}

// leaveSteps takes the answer out of the engine's steps.
func (g *generation) leaveSteps() {
	if g.seq != nil {
		g.c.steps.leave(g.seq)
	}
}

// recompute prefills u after its KV did not come. It queues once more.
func (g *generation) recompute(ctx context.Context, r *reservation, u *unit) bool {
	turn := &reservation{computes: true}
	g.c.ledger.reserve(turn)
	defer g.c.ledger.finish(turn)
	s := r.seats[u.index]
	if !g.awaitTurn(ctx, turn) || !g.prefillHere(ctx, turn, s.uncached(g.c.o.BlockSize)) {
		g.c.ledger.finish(r)
		g.left()
		return false
	}
	g.c.ledger.pulled(r, u.index, u.kv.contents[s.hits:])
	return true
}

// load pulls the KV of each unit. It returns false if the request has ended.
func (g *generation) load(ctx context.Context, r *reservation) bool {
	g.c.ledger.beginLoad(r)
	defer g.c.ledger.endLoad(r)
	for i, u := range g.units {
		s := r.seats[i]
		switch g.h.judge(len(u.kv.contents), s.hits) {
		case verdictDie:
			g.die("dead")
			return false
		case verdictHang:
			g.hang(ctx, r)
			return false
		}
		loaded := make(chan loadResult, 1)
		started := g.c.spawn(func() { loaded <- g.transfer(ctx, s.hits, len(u.kv.contents)) })
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
			g.stopFetch()
			// The blocks stay in use until the transfer ends, whenever that is, or for good.
			g.c.spawn(func() { g.endAborted(r, <-loaded) })
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

// transfer brings the blocks after the first hits of the need of a prompt, and tells the prefill
// engine. It runs to its end even if the client leaves. The notification then says abort.
func (g *generation) transfer(ctx context.Context, hits, need int) loadResult {
	if g.faults.has(FaultKVFail) {
		return loadResult{err: errIncompatible}
	}
	begin := time.Now()
	var contents []uint64
	var err error
	if g.h.sent {
		contents, err = g.c.receive(g.h, hits, need)
	} else {
		contents, err = g.c.pull(g.h, g.h.rest(need, hits))
	}
	if err != nil {
		g.c.metrics.failedTransfer()
		return loadResult{err: err}
	}
	g.c.metrics.transferred(len(contents), time.Since(begin))
	if g.h.sent {
		return loadResult{contents: contents} // the prefill engine has freed them
	}
	by := freedByRead
	if ctx.Err() != nil {
		by = freedByAbort
	}
	g.c.notify(g.h, by)
	return loadResult{contents: contents}
}

// digest uses what a transfer brought: right KV, wrong KV or none.
func (g *generation) digest(ctx context.Context, r *reservation, u *unit, result loadResult) bool {
	if result.err != nil && g.c.o.recomputes() {
		return g.recompute(ctx, r, u)
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
	s := r.seats[u.index]
	g.c.ledger.pulled(r, u.index, result.contents)
	g.checkKV(u, append(s.held[:len(s.held):len(s.held)], result.contents...))
	return true
}

// cachedElsewhere is what a decode engine reports as cached of KV that it pulled. Since 0.32 it
// is what the prefill engine had cached, if the handle says so. Otherwise it is all of it.
func (g *generation) cachedElsewhere() int {
	if !g.c.o.since(32) || g.h.cached < 0 {
		return g.promptTokens()
	}
	return g.h.cached
}

// loadFailed ends a request whose KV did not come. It answers 500, or after the role chunk an error
// event and [DONE].
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

// hang keeps the request until its client leaves. Without an engine id the clean-up then kills the
// engine.
func (g *generation) hang(ctx context.Context, r *reservation) {
	<-ctx.Done()
	g.c.gate.wait()
	g.c.ledger.finish(r)
	if g.left() && g.h.peer.engine == "" {
		g.die("dead")
	}
	if g.rec.Outcome == "aborted" {
		g.rec.Outcome = "hung"
	}
}

// generate writes the answer, whole or token by token.
func (g *generation) generate(ctx context.Context, r *reservation) error {
	if g.c.steps == nil {
		leave := g.c.pace.join(g.rec.PromptTokens)
		defer leave()
	} else {
		if g.seq == nil {
			g.seq = g.c.steps.join(g.promptTokens(), g.steps())
		}
		defer g.leaveSteps()
	}
	if g.r.stream {
		return g.writeStream(ctx, r)
	}
	if g.faultInstead(ctx) {
		return errFault
	}
	if !g.awaitTokens(ctx, g.c.pace.now(), g.steps()-1) || g.x.gone() {
		return errClientGone
	}
	g.keepAnswer(r)
	return g.answerWhole(ctx)
}

// awaitTokens waits for the decode steps of count tokens since begin, which is a value of the pace.
func (g *generation) awaitTokens(ctx context.Context, begin time.Duration, count int) bool {
	if g.seq != nil {
		return g.c.steps.await(ctx, g.seq, count+1)
	}
	return g.c.awaitStep(ctx, begin+timeFor(count, g.c.stepTime()))
}

func timeFor(steps int, each time.Duration) time.Duration {
	return time.Duration(max(steps, 0)) * max(each, 0)
}
