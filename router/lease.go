package router

import (
	"sync/atomic"
	"time"
)

// Outcome is how a leg ended, in words that health and breakers can be fed with.
type Outcome uint8

// Outcomes of a leg.
const (
	OK          Outcome = iota // complete answer, or a stream that ended well
	ClientGone                 // the client left; says nothing about the backend
	ClientFault                // the backend answered 4xx: the request's fault
	Refused                    // no connection: refused, unreachable, dial timeout
	Gateway                    // connected, then reset, closed, garbage or 5xx of a gateway
	Engine                     // the engine reported an error of its own
	Timeout                    // no answer in time
)

var outcomeNames = [...]string{"ok", "client_gone", "client_fault", "refused", "gateway", "engine", "timeout"}

// String is the label and log value of the outcome.
func (o Outcome) String() string { return outcomeNames[o] }

// Outcomes lists every label value of Outcome.
func Outcomes() []string { return outcomeNames[:] }

// Lease is one reservation on one backend: what keeps its in-flight count right.
// The zero value holds nothing. A Lease belongs to one completion and is not copied.
type Lease struct {
	Backend *Backend

	router   *Router
	tokens   int64
	degraded bool
	held     atomic.Bool
}

// Held reports whether the lease still counts on its backend.
func (l *Lease) Held() bool { return l.held.Load() }

// Release ends the reservation. Only the first call after an acquisition counts, so
// every exit of a completion may call it.
func (l *Lease) Release(o Outcome) {
	if !l.held.CompareAndSwap(true, false) {
		return
	}
	l.Backend.inflight.Add(-1)
	l.Backend.tokens.Add(-l.tokens)
	if l.degraded {
		l.router.degraded.Add(-1)
		l.degraded = false
	}
	if o == Refused {
		l.Backend.refusedUntil.Store(l.router.now() + int64(refusedFor))
	}
}

func (l *Lease) hold(r *Router, b *Backend, tokens int) {
	if l.held.Load() {
		panic("BUG: lease acquired twice")
	}
	l.Backend, l.router, l.tokens = b, r, int64(tokens)
	b.inflight.Add(1)
	b.tokens.Add(l.tokens)
	l.held.Store(true)
}

// Clock tells the time. Injected, so that cool-downs are tested without sleeping.
type Clock func() time.Time
