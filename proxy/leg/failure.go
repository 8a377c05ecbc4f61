package leg

import (
	"time"

	"xpyd/proxy/fault"
	"xpyd/router"
)

// Failure is a leg that failed, or the reason why it could not begin. It never changes.
type Failure struct {
	fault.Verdict
	Told *fault.Error // what the client gets if nothing else is tried
	// Asked is how long the backend wants to be left alone (its Retry-After).
	Asked time.Duration
	Moved bool // health checks took a backend down
	Spare bool // the outcome counts as one of its kind, but not against the backend
}

// Error makes Failure an error type.
func (f *Failure) Error() string { return f.Told.Error() }

// Then returns the failure with another answer to what may be tried next.
func (f *Failure) Then(r fault.Retry) *Failure {
	g := *f
	g.Retry = r
	return &g
}

// Final returns the failure as one after which nothing is tried.
func (f *Failure) Final() *Failure { return f.Then(fault.RetryNever) }

// Ends returns a failure after which nothing is tried, and which counts against no backend.
func Ends(e *fault.Error) *Failure {
	v := fault.Verdict{Code: e.Code, Outcome: router.NoVerdict}
	if e.Code == fault.CodeClientGone {
		v.Outcome = router.ClientGone
	}
	return &Failure{Verdict: v, Told: e}
}
