package router

import "sync/atomic"

// Outcome is how a leg ended, in words that a backend's health is fed with.
type Outcome uint8

// Outcomes of a leg. Refused, Gateway, Engine and Timeout are failures of the
// backend: health.eject_after in a row eject it, an OK ends the row.
const (
	OK          Outcome = iota // complete answer, or a stream that ended well
	ClientGone                 // the client left; says nothing about the backend
	ClientFault                // the backend answered 4xx: the request's fault
	Refused                    // no connection: refused, unreachable, dial timeout
	Gateway                    // connected, then reset, closed, garbage or 5xx of a gateway
	Engine                     // the engine reported an error of its own
	Timeout                    // no answer in time
	Auth                       // 401 or 403 with a key of ours: ejects at once
	KVLoad                     // D could not load P's blocks: the pair's fault, see Pairs.Failed
)

var outcomeNames = [...]string{"ok", "client_gone", "client_fault", "refused", "gateway", "engine", "timeout", "auth", "kv_load"}

// String is the label and log value of the outcome.
func (o Outcome) String() string { return outcomeNames[o] }

// Lease is one reservation on one backend: what keeps its in-flight count right.
// The zero value holds nothing. A Lease belongs to one completion and is not copied.
type Lease struct {
	Backend *Backend

	tokens   int64
	cached   int
	ahead    int64 // tokens that the backend had to compute before this one
	computes int64 // of decode: tokens that it computes for this one, see Compute
	degraded bool
	held     atomic.Bool
	watch    Watch // of Backend, see OnDown
}

// Held reports whether the lease still counts on its backend.
func (l *Lease) Held() bool { return l.held.Load() }

// Release ends the reservation and feeds the outcome into the backend's health. Only
// the first call after an acquisition counts, so every exit of a completion may call
// it. A slot that comes free goes to whoever has waited longest for it.
func (l *Lease) Release(o Outcome) {
	if !l.held.CompareAndSwap(true, false) {
		return
	}
	// OnDown sets watch.on before it reads held: it sees this end, or is seen here.
	l.OnDown(nil)
	b := l.Backend
	if l.degraded {
		b.router.degraded.Add(-1)
		l.degraded = false
	}
	b.record(o)
	l.endLocal()
	b.dequeue(l.tokens, o)
	b.inflight.Add(-1)
	b.router.serve(b.Role)
}

// Cached is how many tokens of the prompt were to be expected in the backend's prefix
// cache when the lease was taken. Of the last lease once that is released.
func (l *Lease) Cached() int { return l.cached }

// hold makes l the lease of a slot that has been reserved on b, which has so many of the
// prompt's tokens in its cache. A prefill's work are the others; a decode holds all.
func (l *Lease) hold(b *Backend, w *Want, cached int) {
	l.Backend, l.tokens, l.cached = b, int64(w.Tokens), cached
	if b.Role == Prefill {
		l.tokens -= int64(cached)
	}
	b.router.prompts[b.Role].Add(l.tokens)
	l.ahead = b.enqueue(l.tokens)
	if b.external.Load() > 0 { // what the leg takes must not be put down to fewer tokens
		l.ahead += int64(b.externalTokens(b.router.now()))
	}
	l.held.Store(true)
}

// Tokens are those that the lease was taken for, Ahead those that its backend had to
// compute before. Valid after Release, too.
func (l *Lease) Tokens() int { return int(l.tokens) }

// Ahead: see Tokens.
func (l *Lease) Ahead() int { return int(l.ahead) }

// Compute notes that the decode backend is about to compute so many tokens of the prompt
// itself, and returns how many it is computing already. Until Computed or Release where
// the answer streams; one that comes whole does not show when its prompt was done, so that
// it counts for as long as it is expected to take.
func (l *Lease) Compute(tokens int, streams bool) (ahead int) {
	l.endLocal()
	if tokens > 0 && streams { // of nothing Computed could not tell that it was counted in
		l.computes = int64(tokens)
	}
	return int(l.Backend.enqueueLocal(int64(tokens), streams))
}

// Computed ends what Compute began, if it did: the prompt has been computed.
func (l *Lease) Computed() {
	if l.endLocal() {
		l.Backend.nextLocal()
	}
}

// endLocal ends what Compute began, if it did, whatever has become of the prompt.
func (l *Lease) endLocal() bool {
	if l.computes == 0 {
		return false
	}
	l.Backend.computing.Add(-l.computes)
	l.Backend.computers.Add(-1)
	l.computes = 0
	return true
}
