// Package leg has one attempt at a leg: one backend's turn with a request. Prefill, decode, encode and relayed requests
// are all made of attempts, so that a lease, a connection, a span and a count have one beginning and one end. What is
// asked, and what follows from a failure, is the business of those who own the attempts.
package leg

import (
	"errors"
	"time"

	"xpyd/metrics/trace"
	"xpyd/netio/upstream"
	"xpyd/proxy/fault"
	"xpyd/router"
)

// Attempt is one backend's turn at a leg. Its steps, in order:
//
//	Acquire  takes a lease, and waits in the queue for one if it must
//	Run      watches the backend while a function sends the request, reads the answer and judges it
//	Fault    turns an error of the exchange into what Classify judges
//	End      gives the connection back, counts, ends the span and releases the lease
//
// A failure ends within Run. An answer that is good ends when its reader calls End. Free is the end of a lease that
// nothing was asked with. One goroutine owns an attempt, and others may only cut X. After its end, an attempt is ready
// for the next backend.
type Attempt struct {
	Of    fault.Leg
	Meter Meter // nil: the leg does not count as one

	Lease   router.Lease
	X       upstream.Exchange
	Started time.Time     // the last wait for a lease was over, and then: Run was called
	Took    time.Duration // what Run ran took

	span trace.Leg
	id   string // X-Request-Id of the span
}

// Meter counts attempts that have ended. c is CodeNone if there is no failure to report.
type Meter interface {
	Leg(of fault.Leg, b *router.Backend, o router.Outcome, c fault.Code, took time.Duration)
}

// Waiter is a request that may have to wait for a lease.
type Waiter interface {
	// Line puts the turn of the request into w. It returns until when the request waits at most, where the zero time is
	// no bound of its own, and what ends its wait earlier.
	Line(w *router.Want) (until time.Time, ended <-chan struct{})
	// Waited is told of each wait that is over.
	Waited(role router.Role, d time.Duration)
}

// Take takes a lease if it can have one at once.
func (a *Attempt) Take(snap *router.Snapshot, want router.Want) error {
	err := snap.AcquireFor(want, &a.Lease)
	if err == nil {
		a.Started = time.Now()
	}
	return err
}

// Acquire takes a lease. If all backends are full, it waits in the queue for one.
func (a *Attempt) Acquire(snap *router.Snapshot, want router.Want, by Waiter) error {
	err := a.Take(snap, want)
	if line := snap.Queue(); line.Length > 0 && errors.Is(err, router.ErrBusy) {
		begun, turn := time.Now(), want // turn escapes, want does not
		until, ended := by.Line(&turn)
		if !until.IsZero() {
			line.Wait = min(line.Wait, until.Sub(begun))
		}
		err = snap.AcquireWait(turn, &a.Lease, line, ended)
		a.Started = time.Now()
		by.Waited(want.Role, a.Started.Sub(begun))
	}
	return err
}

// Call is what the trace says of an attempt, and whom it is for.
type Call struct {
	Trace  trace.Request
	ID     string
	Path   string
	Fields []byte // header lines of the request, see trace.Leg.Fields
	Round  int
	Down   func() // is called if health checks take the backend down
}

// Run has exchange send the request to the backend of the lease and read its answer as far as the leg waits for it.
// exchange returns its judgement of a failure, or nil, and a failure ends the attempt.
func (a *Attempt) Run(c *Call, exchange func(*router.Backend) *Failure) *Failure {
	b := a.Lease.Backend
	a.Started, a.id = time.Now(), c.ID
	a.Lease.OnDown(c.Down)
	c.Trace.Leg(&a.span, a.name(), b.URL, c.Path, c.Round, c.Fields)
	f := exchange(b)
	a.Took = time.Since(a.Started)
	a.Lease.OnDown(nil)
	a.X.Uncut(CutDown, CutSource, CutLate) // they do not hold for the rest of the answer, or for the next backend
	if f != nil {
		a.End(End{Outcome: f.Outcome, Code: f.Code, Spare: f.Spare})
	}
	return f
}

// Fields returns the header lines with which the request must be sent. usual are those of the Call.
func (a *Attempt) Fields(usual []byte) []byte { return a.span.Fields(usual) }

func (a *Attempt) name() string {
	if a.Of == fault.Passed {
		return "relay"
	}
	return a.Of.String()
}

// End is how an attempt ended.
type End struct {
	Outcome router.Outcome
	Code    fault.Code
	// Spare says that the outcome is counted, but not held against the backend.
	Spare bool
	// Said is the outcome as the trace has it, where that is not the backend's.
	Said string
	// These are the engine's figures for the trace.
	PromptTokens, CachedTokens int
}

// End ends an attempt. The lease is the last to go, because a backend that has left the pools is forgotten without
// one, and its series with it. What has ended does not end again.
func (a *Attempt) End(e End) {
	if e.Outcome == router.OK || a.Of == fault.Passed { // the connection of a refusal that was read can be used again
		a.X.Finish()
	} else {
		a.X.Drop()
	}
	code, named := e.Code, e.Code.String()
	if a.Of == fault.Encode && e.Outcome != router.OK { // it is judged as a prefill leg, and has no code of its own
		code, named = fault.CodeNone, e.Outcome.String()
	}
	if a.Meter != nil && a.Lease.Held() {
		a.Meter.Leg(a.Of, a.Lease.Backend, e.Outcome, code, time.Since(a.Started))
	}
	if e.Said == "" {
		e.Said = e.Outcome.String()
	}
	a.span.End(trace.LegEnd{ID: a.id, Status: a.X.Head.Status, Outcome: e.Said, Code: named, PromptTokens: e.PromptTokens, CachedTokens: e.CachedTokens})
	if e.Spare {
		e.Outcome = router.NoVerdict
	}
	a.Lease.Release(e.Outcome)
}

// Free gives back a lease of which nothing came: nothing was asked, or the leg panicked.
func (a *Attempt) Free() {
	a.X.Drop()
	a.Lease.Release(router.NoVerdict)
}

// Reset leaves nothing to the next request. The attempt must hold no lease. A span still runs only after a panic.
func (a *Attempt) Reset() {
	a.span.End(trace.LegEnd{ID: a.id, Code: fault.CodeInternal.String()})
	a.X.Reset()
	a.X.Forget()
	a.Lease, a.id, a.Started, a.Took = router.Lease{}, "", time.Time{}, 0
}
