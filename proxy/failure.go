package proxy

import (
	"errors"

	"xpyd/router"
	"xpyd/upstream"
)

// How a leg failed, and what follows from it. Only classify decides whom a failure is counted
// against, what may be tried next, and what happens to the handle. told.go holds what the client is
// told, and settle.go does what classify says.

// progress is how far a leg had come when it failed.
type progress uint8

const (
	atPool    progress = iota // no backend of the pool gave a lease
	atDial                    // no connection was made, so the backend has seen nothing
	atRequest                 // at least some of the request may have been written
	atHead                    // the request was written, but no whole head of an answer has come
	atBody                    // inside the answer
	atLimit                   // inside an answer that is larger than limits.answer
	atAnswer                  // the answer was read
	inStream                  // the client has the first token
)

// reachedBy says how far an exchange had come.
func reachedBy(ue *upstream.Error) progress {
	switch ue.Stage {
	case upstream.StageDial:
		return atDial
	case upstream.StageWrite:
		return atRequest
	case upstream.StageHead:
		return atHead
	}
	return atBody
}

// cause is what a leg failed of.
type cause uint8

const (
	causeNone   cause = iota
	causeStatus       // what the status of its answer says
	causeForced       // likewise, for a prefill whose one token cannot hold the tool call that the client insists on
	causeAuth         // the backend refuses xpyd's own key

	causeFull        // every backend of the pool is at its cap
	causeNoneUp      // no backend of the pool may be asked
	causeSuspect     // likewise, except one whose handle a decode engine has died with
	causeStale       // the handle has waited too long for a decode backend
	causeDescriptors // xpyd has no file descriptor left

	causeGone    // the client has left
	causeStopped // the process ends
	causeOverdue // timeouts.request is over
	causeTimeout // the leg's own time is over
	causeDown    // health checks took the backend down
	causeSource  // health checks took down the prefill backend whose blocks decode loads
	causeOther   // the other leg, which began together with this one, has failed or is over
	causeBroke   // the connection could not be made, broke, or carried no HTTP

	causeTooLarge  // limits.answer
	causeNoRoom    // limits.answer_budget
	causeUnusable  // the answer cannot be read, or is incomplete
	causeNoHandle  // the prefill answer names no blocks
	causeBadHandle // or names them in a way that a decode engine would hang or die of
	causeHost      // or on a host that is not in kv.allow_hosts
	causeReported  // an error event came
	causeTokenless // the stream ended properly, without a token
	causeCut       // the stream ended before a token
	causes
)

// tooLarge turns readHeld's error into the cause of an answer that cannot be held.
func tooLarge(err error) cause {
	if errors.Is(err, errNoRoom) {
		return causeNoRoom
	}
	return causeTooLarge
}

// fault is what is known of a leg that failed.
type fault struct {
	leg    leg
	at     progress
	status int // of the answer, if its head has come
	cause  cause
	// handle says that decode had a handle, and may have failed of it.
	handle bool
	// hungUp says that the backend ended the exchange, and not xpyd.
	hungUp bool
	// repeats says that a request without blocks may be sent to another backend after this one may
	// have worked on it.
	repeats bool
}

// retry is what may be tried next.
type retry uint8

const (
	retryNever retry = iota
	retryFree        // another backend at once, as this one has done nothing for the request
	retryPaid        // another backend, or a new round, at the cost of the retry budget
)

// fate is what happens to the handle, or to blocks that a failed prefill may have pinned.
type fate uint8

const (
	fateKept      fate = iota // there is none, or another decode backend may have it
	fateBack                  // given back
	fateElsewhere             // given back by another decode backend than the one that failed
	fateSuspect               // likewise, and the handle may be what that backend failed of
	fateBurnt                 // decode aborts when its connection closes, which frees the blocks
	fateForbidden             // lost, because its host may not be asked
	fateUnnamed               // lost, because it is unknown which blocks it names
	fateUnheard               // lost, because its answer did not come
)

// verdict is what follows from a fault.
type verdict struct {
	code    code
	outcome router.Outcome // for the lease, and says whom the failure is counted against
	retry   retry
	degrade reason // to go without a prefill; reasonNone if that would not help or would double the work
	handle  fate
	// probe has the active check ask the backend at once.
	probe bool
	// died says that the backend, if it is gone now, may have died of the request.
	died bool
}

// classify judges a failed leg.
func classify(f fault) verdict {
	switch {
	case f.leg == legPassed:
		return classifyPassed(f)
	case f.leg == legPrefill:
		v := classifyPrefill(f)
		v.handle = prefillFate(f)
		return v
	case f.at == inStream:
		return classifyStream(f)
	}
	return classifyDecode(f)
}

// classifyShared judges what is no backend's failure, on any leg.
func classifyShared(f fault) (v verdict, ok bool) {
	v.outcome = router.ClientGone
	switch f.cause {
	case causeGone:
		v.code = codeClientGone
	case causeStopped:
		v.code = codeShuttingDown
	case causeOverdue:
		v.code = codeDeadline
	case causeDescriptors, causeFull:
		v.code = codeOverloaded
	}
	return v, v.code != codeNone
}

func classifyPrefill(f fault) verdict {
	v, shared := classifyShared(f)
	switch {
	case f.cause == causeFull:
		v.degrade = reasonBusy
	case shared:
	case f.cause == causeNoneUp:
		return verdict{code: codePrefillUnavailable, outcome: router.ClientGone, degrade: reasonUnavailable}
	case f.cause == causeSuspect:
		return verdict{code: codeDecodeFailed, outcome: router.ClientGone, degrade: reasonSuspect}
	case f.cause == causeBroke && f.at == atDial:
		return verdict{code: codePrefillUnavailable, outcome: router.Refused, retry: retryFree, degrade: reasonUnavailable, probe: true}
	case f.cause == causeBroke:
		return verdict{code: codePrefillFailed, outcome: router.Gateway, retry: retryPaid, degrade: reasonFailed, probe: true}
	case f.cause == causeDown:
		return verdict{code: codePrefillFailed, outcome: router.Gateway, retry: retryPaid, degrade: reasonUnavailable}
	case f.cause == causeOther:
		return verdict{code: codePrefillFailed, outcome: router.ClientGone}
	case f.cause == causeTimeout:
		// There is no second try, not on D either. Another engine would take as long, which
		// doubles the work.
		return verdict{code: codePrefillTimeout, outcome: router.Timeout}
	case f.cause == causeTooLarge:
		// No backend has failed. Another P would answer the same, but D alone may stream it.
		return verdict{code: codePrefillFailed, outcome: router.ClientFault, degrade: reasonFailed}
	case f.cause == causeUnusable:
		return verdict{code: codePrefillFailed, outcome: router.Gateway, retry: retryPaid, degrade: reasonFailed, died: true}
	case f.cause == causeNoHandle:
		return verdict{code: codeInvalidHandoff, outcome: router.Engine, retry: retryPaid, degrade: reasonNoHandle}
	case f.cause == causeBadHandle, f.cause == causeHost:
		// Another P may give a handle that can be used. If the whole prefill pool does not fit, D
		// alone serves the request.
		return verdict{code: codeInvalidHandoff, outcome: router.Gateway, retry: retryPaid, degrade: reasonBadHandle}
	default:
		return classifyPrefillStatus(f)
	}
	return v
}

// classifyPrefillStatus judges an answer of P that is not a 200.
func classifyPrefillStatus(f fault) verdict {
	forced := f.cause == causeForced
	switch {
	case f.cause == causeAuth:
		return verdict{code: codeUpstreamAuth, outcome: router.Auth, retry: retryFree, degrade: reasonFailed}
	case f.status == 429: // for this client
		return verdict{code: codePrefillUnavailable, outcome: router.ClientFault, retry: retryPaid, degrade: reasonBusy}
	case f.status == 503: // for everybody
		return verdict{code: codePrefillUnavailable, outcome: router.Engine, retry: retryPaid, degrade: reasonBusy}
	case f.status >= 400 && f.status < 500 && forced:
		return verdict{code: codeUpstreamRejected, outcome: router.ClientFault, degrade: reasonToolChoice}
	case f.status >= 400 && f.status < 500:
		return verdict{code: codeUpstreamRejected, outcome: router.ClientFault}
	case f.status >= 500 && forced:
		return verdict{code: codePrefillFailed, outcome: router.Engine, degrade: reasonToolChoice, died: true}
	case f.status >= 500:
		return verdict{code: codePrefillFailed, outcome: router.Engine, retry: retryPaid, degrade: reasonFailed, died: true}
	}
	return verdict{code: codePrefillFailed, outcome: router.Gateway, retry: retryPaid, degrade: reasonFailed}
}

// prefillFate says what happens to blocks that P may hold. If its answer was cut, or it hung up in
// place of one, their handle never comes. A P whose connection was half-closed hangs up after an
// abort.
func prefillFate(f fault) fate {
	switch {
	case f.at == atLimit, f.cause == causeUnusable, f.cause == causeBadHandle:
		return fateUnnamed
	case f.cause == causeHost:
		return fateForbidden
	case f.at == atHead && f.hungUp, f.at == atBody && f.status == 200:
		return fateUnheard
	case f.at == atAnswer && f.givenUp():
		return fateBack
	}
	return fateKept
}

// givenUp reports that xpyd no longer waited for the answer.
func (f fault) givenUp() bool {
	switch f.cause {
	case causeGone, causeStopped, causeOverdue, causeTimeout, causeDown, causeOther:
		return true
	}
	return false
}

func classifyDecode(f fault) verdict {
	v, shared := classifyShared(f)
	switch {
	case f.cause == causeGone, f.cause == causeStopped:
		v.handle = cutFate(f)
	case f.cause == causeOverdue:
		v.handle = fateSuspect
	case f.cause == causeDescriptors:
		v.handle = fateBack
	case shared:
	case f.cause == causeNoneUp:
		return verdict{code: codeDecodeUnavailable, outcome: router.ClientGone}
	case f.cause == causeStale:
		return verdict{code: codeHandleExpired, outcome: router.ClientGone, retry: retryPaid, handle: fateBack}
	case f.cause == causeBroke && f.at == atDial:
		return verdict{code: codeDecodeUnavailable, outcome: router.Refused, retry: retryFree, probe: true}
	case f.cause == causeBroke:
		return verdict{code: codeDecodeFailed, outcome: router.Gateway, retry: retryPaid, handle: fateSuspect, probe: true}
	case f.cause == causeSource:
		// D aborts the load when its connection closes, and tells P after P runs again.
		return verdict{code: codeDecodeFailed, outcome: router.ClientGone, retry: retryPaid, handle: cutFate(f)}
	case f.cause == causeOther:
		return verdict{code: codeDecodeFailed, outcome: router.ClientGone, handle: cutFate(f)}
	case f.cause == causeDown:
		return verdict{code: codeDecodeFailed, outcome: router.Gateway, retry: retryPaid, handle: fateSuspect}
	case f.cause == causeTimeout:
		return verdict{code: codeDecodeTimeout, outcome: router.Timeout, handle: fateSuspect}
	case f.cause == causeTooLarge:
		return verdict{code: codeDecodeFailed, outcome: router.ClientFault, handle: fateBack}
	case f.cause == causeNoRoom:
		return verdict{code: codeOverloaded, outcome: router.ClientFault, handle: fateBack}
	default:
		return classifyDecodeAnswer(f)
	}
	return v
}

// cutFate is the fate of the handle after xpyd has cut a request to D. A D that has the whole request
// aborts, which frees P's blocks. A request that was cut while it was written frees nothing, and
// neither does a D that broke off by itself.
func cutFate(f fault) fate {
	if f.at <= atRequest || f.hungUp {
		return fateBack
	}
	return fateBurnt
}

// classifyDecodeAnswer judges D's own failure before its first token. A D that refuses the request
// as such has normally told P already. If its validation came first, it has not, and the blocks would
// wait for the lease. That D is alive, so it is asked to give them back.
func classifyDecodeAnswer(f fault) verdict {
	v := verdict{code: codeDecodeFailed, outcome: router.Engine, retry: retryPaid, handle: fateSuspect, died: true}
	switch {
	case f.cause == causeAuth:
		return verdict{code: codeUpstreamAuth, outcome: router.Auth, handle: fateElsewhere}
	case f.cause != causeStatus:
	case f.status == 429:
		return verdict{code: codeDecodeUnavailable, outcome: router.ClientFault, retry: retryPaid, handle: fateBack}
	case f.status == 503:
		v.code, v.died = codeDecodeUnavailable, false
	case f.status >= 400 && f.status < 500:
		return verdict{code: codeUpstreamRejected, outcome: router.ClientFault, handle: fateBack}
	}
	if f.handle {
		// An engine does not say that it could not load P's blocks, so a failure with a handle
		// counts against the pair. The router finds out which of the two also fails with others.
		v.outcome = router.KVLoad
	}
	return v
}

// classifyStream judges a stream that has begun, after which nothing can be tried again.
func classifyStream(f fault) verdict {
	if v, shared := classifyShared(f); shared {
		return v
	}
	switch f.cause {
	case causeTooLarge:
		return verdict{code: codeDecodeFailed, outcome: router.ClientFault}
	case causeUnusable, causeReported:
		return verdict{code: codeDecodeFailed, outcome: router.Engine}
	case causeTimeout:
		return verdict{code: codeDecodeStalled, outcome: router.Timeout, probe: true}
	}
	return verdict{code: codeDecodeFailed, outcome: router.Gateway, probe: true}
}

// classifyPassed judges a request that needs no blocks. A second try costs the retry budget, and only a
// request that may be repeated gets one.
func classifyPassed(f fault) verdict {
	if v, shared := classifyShared(f); shared {
		return v
	}
	again := retryNever
	if f.repeats {
		again = retryPaid
	}
	switch {
	case f.cause == causeNoneUp:
		return verdict{code: codeDecodeUnavailable, outcome: router.ClientGone}
	case f.cause == causeBroke && f.at == atDial:
		return verdict{code: codeDecodeUnavailable, outcome: router.Refused, retry: retryFree, probe: true}
	case f.cause == causeTooLarge:
		return verdict{code: codeDecodeFailed, outcome: router.ClientFault}
	case f.cause == causeNoRoom:
		return verdict{code: codeOverloaded, outcome: router.ClientFault}
	case f.cause == causeTimeout:
		return verdict{code: codeDecodeTimeout, outcome: router.Timeout}
	case f.cause == causeAuth:
		return verdict{code: codeUpstreamAuth, outcome: router.Gateway}
	case f.cause == causeStatus && f.status >= 500:
		return verdict{code: codeDecodeFailed, outcome: router.Engine, retry: again}
	case f.cause == causeStatus && f.status >= 400:
		return verdict{code: codeUpstreamRejected, outcome: router.ClientFault}
	case f.cause == causeStatus:
		return verdict{code: codeDecodeFailed, outcome: router.Gateway}
	}
	return verdict{code: codeDecodeFailed, outcome: router.Gateway, retry: again}
}
