package router

import (
	"sync/atomic"
	"time"

	"xpyd/router/price"
	"xpyd/router/way"
)

// Outcome is how a leg ended, as far as this matters for the health of its backend.
type Outcome uint8

// Outcomes of a leg. Refused, Gateway, Engine and Timeout are failures of the backend. After
// health.eject_after of them in a row, the router ejects it. An OK ends the row.
const (
	OK          Outcome = iota // a complete answer, or a stream that ended well
	ClientGone                 // the client left, which says nothing about the backend
	NoVerdict                  // neither does how it ended, or it has not begun: xpyd gave it up by itself
	ClientFault                // the backend answered 4xx, which is the request's fault
	Refused                    // no connection: refused, unreachable, dial timeout
	Gateway                    // connected, then a reset, a close, garbage, or a 5xx of a gateway
	Engine                     // the engine reported an error of its own
	Timeout                    // no answer in time
	Auth                       // 401 or 403 to xpyd's own key; the backend is ejected at once
	KVLoad                     // D could not load P's blocks, a fault of the pair; see Pairs.Failed
)

var outcomeNames = [...]string{
	"ok", "client_gone", "no_verdict", "client_fault", "refused", "gateway", "engine", "timeout", "auth", "kv_load",
}

// String is the outcome in labels and logs.
func (o Outcome) String() string { return outcomeNames[o] }

// Lease is a reservation on one backend, which keeps its in-flight count right. The zero value
// holds nothing. A Lease belongs to one completion and is never copied.
type Lease struct {
	Backend *Backend

	tokens   int64
	cached   int
	ahead    int64 // tokens that the backend had to compute before those of this lease
	computes int64 // for decode: tokens of this prompt that it computes itself, see Compute
	pulls    bool  // for decode: it waits for blocks, see Pull
	pull     pull
	beside   int64 // see Beside
	waits    bool  // for decode: for a prefill, see Expect
	expects  int64 // tokens of blocks that will come then
	degraded bool
	due      atomic.Int64 // for prefill: when the prompt should be computed, by the router's clock; 0: not known
	held     atomic.Bool
	watch    Watch   // of Backend, see OnDown
	errand   *Errand // for decode, see Follow
}

// Held reports whether the lease still counts on its backend.
func (l *Lease) Held() bool { return l.held.Load() }

// Release ends the reservation and feeds the outcome into the backend's health. Only the first call
// after an acquisition counts, so every exit of a completion may call it. The slot goes to the request
// that has waited longest for it.
func (l *Lease) Release(o Outcome) {
	if !l.held.CompareAndSwap(true, false) {
		return
	}
	// OnDown sets watch.on before it reads held. So either it sees the end of the lease, or this
	// call sees the watch.
	l.OnDown(nil)
	b := l.Backend
	if l.degraded {
		b.router.degraded.Add(-1)
		l.degraded = false
	}
	b.record(o)
	l.endLocal()
	l.endPull(false)
	l.endErrand(0)
	b.dequeue(l.tokens, o)
	b.inflight.Add(-1)
	b.router.serve(b.Role)
	if b.Role == Prefill && b.Twin() != nil {
		b.router.serve(Decode) // see occupied
	}
}

// Cached is how many tokens of the prompt the router expected in the backend's prefix cache when it
// gave the lease. It stays valid after Release.
func (l *Lease) Cached() int { return l.cached }

// Told notes what the backend has said of the prompt: its tokens, and those of them that it had in its cache, or −1.
func (l *Lease) Told(prefix []uint64, tokens, cached int) {
	l.Backend.cache.Tell(prefix, l.cached, tokens, cached)
}

// hold makes l the lease of a slot that was reserved on b. cached is the tokens of the prompt in
// b's cache. Only the other tokens are work for a prefill. A decode backend holds them all.
func (l *Lease) hold(b *Backend, w *Want, cached int) {
	l.Backend, l.tokens, l.cached = b, int64(w.Tokens), cached
	if b.Role == Prefill {
		l.tokens -= int64(cached)
	}
	b.router.prompts[b.Role].Add(l.tokens)
	l.ahead = b.enqueue(l.tokens)
	if b.external.Load() > 0 { // otherwise the time of the leg would count for too few tokens
		l.ahead += int64(b.externalTokens(b.router.now()))
	}
	if b.Role == Prefill {
		l.due.Store(b.router.due(l.ahead + l.tokens))
	}
	l.held.Store(true)
}

// due is when a prefill backend should have computed that many tokens from now on, or 0 if no price is known.
func (r *Router) due(tokens int64) int64 {
	if !r.prices.Known(price.Prefill) {
		return 0
	}
	return r.now() + int64(r.prices.Cost(price.Prefill, float64(tokens))*1e9)
}

// AbortAt is when the prefill of a lease ends whose client has just left: grace from now, unless the prompt should be
// computed within grace of that time. An abort that reaches the engine as it ends a prompt strands the blocks until their
// lease ends, because nobody gets their handle. So in that case the prefill has grace from when it should end. A prompt that
// should take longer has the grace too: in a burst the estimate may be seconds too long, and an abort at once would meet
// prompts as they end. AbortAt may be called while other goroutines use the lease.
func (r *Router) AbortAt(l *Lease, now time.Time, grace time.Duration) time.Time {
	at := now.Add(grace)
	due := l.due.Load()
	if due == 0 {
		return at
	}
	if left := time.Duration(due) - now.Sub(r.epoch); (left - grace).Abs() < grace {
		at = now.Add(left + grace)
	}
	return at
}

// Tokens is the number of tokens that the lease was taken for. It stays valid after Release.
func (l *Lease) Tokens() int { return int(l.tokens) }

// Ahead is the number of tokens that the backend had to compute first. It stays valid after Release.
func (l *Lease) Ahead() int { return int(l.ahead) }

// Compute notes that the decode backend is about to compute that many tokens of the prompt itself. It
// returns how many tokens the backend is already computing. If the answer streams, the tokens count
// until Computed or Release. An answer that comes whole does not show when its prompt was computed, so
// its tokens count for the time that they should take.
func (l *Lease) Compute(tokens int, streams bool) (ahead int) {
	l.endLocal()
	l.endPull(false) // what Expect began
	l.goes(func(f *way.Fleet, now float64, t *way.Trip) { f.Whole(now, t, tokens) })
	if tokens > 0 && streams { // Computed could not tell that 0 tokens were counted
		l.computes = int64(tokens)
	}
	return int(l.Backend.enqueueLocal(int64(tokens), streams))
}

// Computed notes that the backend has computed the prompt, or that its blocks have arrived. It ends
// what Compute or Pull began.
func (l *Lease) Computed() {
	l.endPull(true)
	l.goes((*way.Fleet).First)
	if l.endLocal() {
		l.Backend.nextLocal()
	}
}

// endLocal ends what Compute began, whatever happened to the prompt. It returns false if nothing
// was begun.
func (l *Lease) endLocal() bool {
	if l.computes == 0 {
		return false
	}
	l.Backend.computing.Add(-l.computes)
	l.Backend.computers.Add(-1)
	l.computes = 0
	return true
}
