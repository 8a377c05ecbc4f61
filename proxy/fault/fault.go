// Package fault has the words for what goes wrong: how far a leg came, what it failed of, what follows
// from it, and what the client is told. It judges and does nothing.
//
// Only Classify decides whom a failure is counted against, what may be tried next, and what happens to
// the handle. message.go and error.go hold what the client is told. Package proxy does what Classify
// says.
package fault

import (
	"errors"

	"xpyd/kvparams"
	"xpyd/router"
)

// Progress is how far a leg had come when it failed.
type Progress uint8

const (
	AtPool    Progress = iota // no backend of the pool gave a lease
	AtDial                    // no connection was made, so the backend has seen nothing
	AtRequest                 // at least some of the request may have been written
	AtHead                    // the request was written, but no whole head of an answer has come
	AtBody                    // inside the answer
	AtLimit                   // inside an answer that is larger than limits.answer
	AtAnswer                  // the answer was read
	InStream                  // the client has the first token
)

// Cause is what a leg failed of.
type Cause uint8

const (
	NoCause  Cause = iota
	Status         // what the status of its answer says
	Forced         // likewise, for a prefill whose one token cannot hold the tool call that the client insists on
	Flags          // likewise, for a request with tools or media, or of which P says that a flag forbids it
	Unlisted       // likewise, for a model that other backends list
	Auth           // the backend refuses xpyd's own key

	Full        // every backend of the pool is at its cap
	NoneUp      // no backend of the pool may be asked
	Suspect     // likewise, except one whose handle a decode engine has died with
	Stale       // the handle is too old: its answer took too long to come, or it has waited for a decode backend
	Descriptors // xpyd has no file descriptor left

	Gone    // the client has left
	Stopped // the process ends
	Overdue // timeouts.request is over
	Timeout // the leg's own time is over
	Down    // health checks took the backend down
	Source  // the prefill backend whose blocks decode loads has gone down or restarted
	Other   // the other leg, which began together with this one, has failed or is over
	Broke   // the connection could not be made, broke, or carried no HTTP

	TooLarge  // limits.answer
	LongHead  // the head of the answer is larger than 32 KiB
	NoRoom    // limits.answer_budget
	Unusable  // the answer cannot be read, or is incomplete
	NoHandle  // the prefill answer names no blocks
	Ended     // or says that its token ended the text, so that the engine hands over none
	BadHandle // or names them in a way that a decode engine would hang or die of
	Host      // or on a host that is not in kv.allow_hosts
	Reported  // an error event came
	Tokenless // the stream ended properly, without a token
	Cut       // the stream ended before a token
	Causes
)

// OfAnswer is the cause of a prefill leg whose answer is of no use. NoCause is for a nil err.
func OfAnswer(err error) Cause {
	var ae *kvparams.AnswerError
	switch {
	case err == nil:
		return NoCause
	case !errors.As(err, &ae):
	case ae.Code == kvparams.CodeHandoff:
		return BadHandle
	case ae.Code == kvparams.CodeEnded:
		return Ended
	}
	return Unusable
}

// Fault is what is known of a leg that failed.
type Fault struct {
	Leg    Leg
	At     Progress
	Status int // of the answer, if its head has come
	Cause  Cause
	// Handle says that decode had a handle, and may have failed of it.
	Handle bool
	// HungUp says that the backend ended the exchange, and not xpyd.
	HungUp bool
	// Repeats says that a request without blocks may be sent to another backend after this one may
	// have worked on it.
	Repeats bool
}

// Retry is what may be tried next.
type Retry uint8

const (
	RetryNever Retry = iota
	RetryFree        // another backend at once, as this one has done nothing for the request
	RetryPaid        // another backend, or a new round, at the cost of the retry budget
)

// Fate is what happens to the handle, or to blocks that a failed prefill may have pinned.
type Fate uint8

const (
	FateKept      Fate = iota // there is none, or another decode backend may have it
	FateBack                  // given back
	FateElsewhere             // given back by another decode backend than the one that failed
	FateSuspect               // likewise, and the handle may be what that backend failed of
	FateBurnt                 // decode aborts when its connection closes, which frees the blocks
	FateForbidden             // lost, because its host may not be asked
	FateUnnamed               // lost, because it is unknown which blocks it names
	FateUnheard               // lost, because its answer did not come
)

// Verdict is what follows from a fault.
type Verdict struct {
	Code    Code
	Outcome router.Outcome // for the lease, and says whom the failure is counted against
	Retry   Retry
	Degrade Reason // to go without a prefill; ReasonNone if that would not help or would double the work
	Handle  Fate
	// Probe has the active check ask the backend at once.
	Probe bool
	// Died says that the backend, if it is gone now, may have died of the request.
	Died bool
}
