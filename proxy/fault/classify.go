package fault

import "xpyd/router"

// Classify judges a failed leg.
func Classify(f Fault) Verdict {
	switch {
	case f.Leg == Passed:
		return classifyPassed(f)
	case f.Leg == Prefill:
		v := classifyPrefill(f)
		v.Handle = prefillFate(f)
		return v
	case f.At == InStream:
		return classifyStream(f)
	}
	return classifyDecode(f)
}

// classifyShared judges what is no backend's failure, on any leg.
func classifyShared(f Fault) (v Verdict, ok bool) {
	v.Outcome = router.NoVerdict
	switch f.Cause {
	case Gone:
		v.Code, v.Outcome = CodeClientGone, router.ClientGone
	case Stopped:
		v.Code = CodeShuttingDown
	case Overdue:
		v.Code = CodeDeadline
	case Descriptors, Full:
		v.Code = CodeOverloaded
	}
	return v, v.Code != CodeNone
}

func classifyPrefill(f Fault) Verdict {
	v, shared := classifyShared(f)
	switch {
	case f.Cause == Full:
		v.Degrade = ReasonBusy
	case shared:
	case f.Cause == Flags:
		return Verdict{Code: CodeUpstreamRejected, Outcome: router.ClientFault, Degrade: ReasonRefused}
	case f.Cause == Unlisted:
		return Verdict{Code: CodeUpstreamRejected, Outcome: router.ClientFault, Retry: RetryPaid}
	case f.Cause == NoneUp:
		return Verdict{Code: CodePrefillUnavailable, Outcome: router.NoVerdict, Degrade: ReasonUnavailable}
	case f.Cause == Suspect:
		return Verdict{Code: CodeDecodeFailed, Outcome: router.NoVerdict, Degrade: ReasonSuspect}
	case f.Cause == Broke && f.At == AtDial:
		return Verdict{Code: CodePrefillUnavailable, Outcome: router.Refused, Retry: RetryFree, Degrade: ReasonUnavailable, Probe: true}
	case f.Cause == Broke:
		return Verdict{Code: CodePrefillFailed, Outcome: router.Gateway, Retry: RetryPaid, Degrade: ReasonFailed, Probe: true}
	case f.Cause == Down:
		return Verdict{Code: CodePrefillFailed, Outcome: router.Gateway, Retry: RetryPaid, Degrade: ReasonUnavailable}
	case f.Cause == Other:
		return Verdict{Code: CodePrefillFailed, Outcome: router.NoVerdict}
	case f.Cause == Timeout:
		// There is no second try, not on D either. Another engine would take as long, which
		// doubles the work.
		return Verdict{Code: CodePrefillTimeout, Outcome: router.Timeout}
	case f.Cause == TooLarge, f.Cause == LongHead:
		// No backend has failed. Another P would answer the same, but D alone may stream it.
		return Verdict{Code: CodePrefillFailed, Outcome: router.ClientFault, Degrade: ReasonFailed}
	case f.Cause == Unusable:
		return Verdict{Code: CodePrefillFailed, Outcome: router.Gateway, Retry: RetryPaid, Degrade: ReasonFailed, Died: true}
	case f.Cause == NoHandle:
		return Verdict{Code: CodeInvalidHandoff, Outcome: router.Engine, Retry: RetryPaid, Degrade: ReasonNoHandle}
	case f.Cause == Ended:
		// No backend has failed. Another P would most likely make the same token.
		return Verdict{Code: CodeInvalidHandoff, Outcome: router.ClientFault, Degrade: ReasonNoHandle}
	case f.Cause == Stale:
		return Verdict{Code: CodeHandleExpired, Outcome: router.Gateway, Retry: RetryPaid, Degrade: ReasonFailed}
	case f.Cause == BadHandle, f.Cause == Host:
		// Another P may give a handle that can be used. If the whole prefill pool does not fit, D
		// alone serves the request.
		return Verdict{Code: CodeInvalidHandoff, Outcome: router.Gateway, Retry: RetryPaid, Degrade: ReasonBadHandle}
	default:
		return classifyPrefillStatus(f)
	}
	return v
}

// classifyPrefillStatus judges an answer of P that is not a 200.
func classifyPrefillStatus(f Fault) Verdict {
	forced := f.Cause == Forced
	switch {
	case f.Cause == Auth:
		return Verdict{Code: CodeUpstreamAuth, Outcome: router.Auth, Retry: RetryFree, Degrade: ReasonFailed}
	case f.Status == 429: // for this client
		return Verdict{Code: CodePrefillUnavailable, Outcome: router.ClientFault, Retry: RetryPaid, Degrade: ReasonBusy}
	case f.Status == 503: // for everybody
		return Verdict{Code: CodePrefillUnavailable, Outcome: router.Engine, Retry: RetryPaid, Degrade: ReasonBusy}
	case f.Status >= 400 && f.Status < 500 && forced:
		return Verdict{Code: CodeUpstreamRejected, Outcome: router.ClientFault, Degrade: ReasonToolChoice}
	case f.Status >= 400 && f.Status < 500:
		return Verdict{Code: CodeUpstreamRejected, Outcome: router.ClientFault}
	case f.Status >= 500 && forced:
		return Verdict{Code: CodePrefillFailed, Outcome: router.Engine, Degrade: ReasonToolChoice, Died: true}
	case f.Status >= 500:
		return Verdict{Code: CodePrefillFailed, Outcome: router.Engine, Retry: RetryPaid, Degrade: ReasonFailed, Died: true}
	}
	return Verdict{Code: CodePrefillFailed, Outcome: router.Gateway, Retry: RetryPaid, Degrade: ReasonFailed}
}

// prefillFate says what happens to blocks that P may hold. If its answer was cut, or it hung up in
// place of one, their handle never comes. A P whose connection was half-closed hangs up after an
// abort.
func prefillFate(f Fault) Fate {
	switch {
	case f.At == AtLimit, f.Cause == LongHead, f.Cause == Unusable, f.Cause == BadHandle:
		return FateUnnamed
	case f.Cause == Host:
		return FateForbidden
	case f.At == AtHead && f.HungUp, f.At == AtBody && f.Status == 200:
		return FateUnheard
	case f.Cause == Stale, f.At == AtAnswer && f.givenUp():
		return FateBack
	}
	return FateKept
}

// givenUp reports that xpyd no longer waited for the answer.
func (f Fault) givenUp() bool {
	switch f.Cause {
	case Gone, Stopped, Overdue, Timeout, Down, Other:
		return true
	}
	return false
}

func classifyDecode(f Fault) Verdict {
	v, shared := classifyShared(f)
	switch {
	case f.Cause == Gone, f.Cause == Stopped, f.Cause == Overdue:
		v.Handle = cutFate(f)
	case f.Cause == Descriptors:
		v.Handle = FateBack
	case shared:
	case f.Cause == NoneUp:
		return Verdict{Code: CodeDecodeUnavailable, Outcome: router.NoVerdict}
	case f.Cause == Stale:
		return Verdict{Code: CodeHandleExpired, Outcome: router.NoVerdict, Retry: RetryPaid, Handle: FateBack}
	case f.Cause == Broke && f.At == AtDial:
		return Verdict{Code: CodeDecodeUnavailable, Outcome: router.Refused, Retry: RetryFree, Probe: true}
	case f.Cause == Broke:
		return Verdict{Code: CodeDecodeFailed, Outcome: router.Gateway, Retry: RetryPaid, Handle: FateSuspect, Probe: true}
	case f.Cause == Source:
		// D aborts the load when its connection closes, and tells P after P runs again.
		return Verdict{Code: CodeDecodeFailed, Outcome: router.NoVerdict, Retry: RetryPaid, Handle: cutFate(f)}
	case f.Cause == Other:
		return Verdict{Code: CodeDecodeFailed, Outcome: router.NoVerdict, Handle: cutFate(f)}
	case f.Cause == Down:
		return Verdict{Code: CodeDecodeFailed, Outcome: router.Gateway, Retry: RetryPaid, Handle: FateSuspect}
	case f.Cause == Timeout:
		return Verdict{Code: CodeDecodeTimeout, Outcome: router.Timeout, Handle: cutFate(f)}
	case f.Cause == TooLarge, f.Cause == LongHead:
		return Verdict{Code: CodeDecodeFailed, Outcome: router.ClientFault, Handle: FateBack}
	case f.Cause == NoRoom:
		return Verdict{Code: CodeOverloaded, Outcome: router.ClientFault, Handle: FateBack}
	default:
		return classifyDecodeAnswer(f)
	}
	return v
}

// cutFate is the fate of the handle after xpyd has cut a request to D, at a deadline too. A D that has the whole request
// may be reading P's blocks. It aborts, which frees them, and nobody else may do so before that. A request that was cut
// while it was written frees nothing, and neither does a D that broke off by itself.
func cutFate(f Fault) Fate {
	if f.At <= AtRequest || f.HungUp {
		return FateBack
	}
	return FateBurnt
}

// classifyDecodeAnswer judges D's own failure before its first token. A D that refuses the request
// as such has normally told P already. If its validation came first, it has not, and the blocks would
// wait for the lease. That D is alive, so it is asked to give them back.
func classifyDecodeAnswer(f Fault) Verdict {
	v := Verdict{Code: CodeDecodeFailed, Outcome: router.Engine, Retry: RetryPaid, Handle: FateSuspect, Died: true}
	switch {
	case f.Cause == Auth:
		return Verdict{Code: CodeUpstreamAuth, Outcome: router.Auth, Handle: FateElsewhere}
	case f.Cause == Unlisted:
		return Verdict{Code: CodeUpstreamRejected, Outcome: router.ClientFault, Retry: RetryPaid, Handle: FateElsewhere}
	case f.Cause != Status:
	case f.Status == 429:
		return Verdict{Code: CodeDecodeUnavailable, Outcome: router.ClientFault, Retry: RetryPaid, Handle: FateBack}
	case f.Status == 503:
		v.Code, v.Died = CodeDecodeUnavailable, false
	case f.Status >= 400 && f.Status < 500:
		return Verdict{Code: CodeUpstreamRejected, Outcome: router.ClientFault, Handle: FateBack}
	}
	if f.Handle {
		// An engine does not say that it could not load P's blocks, so a failure with a handle
		// counts against the pair. The router finds out which of the two also fails with others.
		v.Outcome = router.KVLoad
	}
	return v
}

// classifyStream judges a stream that has begun, after which nothing can be tried again.
func classifyStream(f Fault) Verdict {
	if v, shared := classifyShared(f); shared {
		return v
	}
	switch f.Cause {
	case TooLarge:
		return Verdict{Code: CodeDecodeFailed, Outcome: router.ClientFault}
	case NoRoom:
		return Verdict{Code: CodeOverloaded, Outcome: router.ClientFault}
	case Unusable, Reported:
		return Verdict{Code: CodeDecodeFailed, Outcome: router.Engine}
	case Timeout:
		return Verdict{Code: CodeDecodeStalled, Outcome: router.Timeout, Probe: true}
	}
	return Verdict{Code: CodeDecodeFailed, Outcome: router.Gateway, Probe: true}
}

// classifyPassed judges a request that needs no blocks. A second try costs the retry budget, and only a
// request that may be repeated gets one.
func classifyPassed(f Fault) Verdict {
	if v, shared := classifyShared(f); shared {
		return v
	}
	again := RetryNever
	if f.Repeats {
		again = RetryPaid
	}
	switch {
	case f.Cause == NoneUp:
		return Verdict{Code: CodeDecodeUnavailable, Outcome: router.NoVerdict}
	case f.Cause == Broke && f.At == AtDial:
		return Verdict{Code: CodeDecodeUnavailable, Outcome: router.Refused, Retry: RetryFree, Probe: true}
	case f.Cause == TooLarge, f.Cause == LongHead:
		return Verdict{Code: CodeDecodeFailed, Outcome: router.ClientFault}
	case f.Cause == NoRoom:
		return Verdict{Code: CodeOverloaded, Outcome: router.ClientFault}
	case f.Cause == Timeout:
		return Verdict{Code: CodeDecodeTimeout, Outcome: router.Timeout}
	case f.Cause == Auth:
		return Verdict{Code: CodeUpstreamAuth, Outcome: router.Gateway}
	case f.Cause == Status && f.Status >= 500:
		return Verdict{Code: CodeDecodeFailed, Outcome: router.Engine, Retry: again}
	case f.Cause == Status && f.Status >= 400:
		return Verdict{Code: CodeUpstreamRejected, Outcome: router.ClientFault}
	case f.Cause == Status:
		return Verdict{Code: CodeDecodeFailed, Outcome: router.Gateway}
	}
	return Verdict{Code: CodeDecodeFailed, Outcome: router.Gateway, Retry: again}
}
