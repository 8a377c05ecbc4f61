package fault

import (
	"testing"

	"xpyd/router"
)

// judged is a row: a fault, what follows from it, and what the client is told.
type judged struct {
	Fault
	Verdict
	status     int
	message    string
	noRetry    bool
	retryAfter bool
}

// failures is each way in which a leg may fail.
func failures() []judged {
	all := append(prefillFailures(), prefillAnswers()...)
	all = append(append(all, decodeFailures()...), decodeAnswers()...)
	return append(append(all, streamFailures()...), passedFailures()...)
}

const (
	gone    = "the client closed the connection or its sending side"
	stopped = "xpyd is shutting down"
	overdue = "the request took longer than timeouts.request, or than its X-Request-Timeout"
	noFiles = "xpyd has no file descriptor left; try again"
	noP     = "no prefill backend accepts connections"
	noD     = "no decode backend accepts connections"
)

func prefillFailures() []judged {
	broke := Verdict{CodePrefillFailed, router.Gateway, RetryPaid, ReasonFailed, FateKept, true, false}
	down := Verdict{CodePrefillFailed, router.Gateway, RetryPaid, ReasonUnavailable, FateKept, false, false}
	late := Verdict{Code: CodePrefillTimeout, Outcome: router.Timeout}
	left := Verdict{Code: CodeClientGone, Outcome: router.ClientGone}
	end := Verdict{Code: CodeShuttingDown, Outcome: router.NoVerdict}
	over := Verdict{Code: CodeDeadline, Outcome: router.NoVerdict}
	large := Verdict{CodePrefillFailed, router.ClientFault, RetryNever, ReasonFailed, FateUnnamed, false, false}
	const brokeOff, failed, slow = "prefill backend broke off the connection", "prefill backend failed its health checks or hangs", "prefill backend did not answer within timeouts.prefill"
	with := func(v Verdict, f Fate) Verdict { v.Handle = f; return v }
	at := func(at Progress, c Cause, status int, hungUp bool) Fault {
		return Fault{Leg: Prefill, At: at, Status: status, Cause: c, HungUp: hungUp}
	}
	return []judged{
		{at(AtPool, Full, 0, false), Verdict{CodeOverloaded, router.NoVerdict, RetryNever, ReasonBusy, FateKept, false, false}, 503, "every prefill backend has prefill_max_in_flight requests", false, true},
		{at(AtPool, NoneUp, 0, false), Verdict{CodePrefillUnavailable, router.NoVerdict, RetryNever, ReasonUnavailable, FateKept, false, false}, 503, noP, false, true},
		{at(AtPool, Suspect, 0, false), Verdict{CodeDecodeFailed, router.NoVerdict, RetryNever, ReasonSuspect, FateKept, false, false}, 502, "decode backend failed with the handle of the only prefill backend", true, false},
		{at(AtDial, Descriptors, 0, false), Verdict{Code: CodeOverloaded, Outcome: router.NoVerdict}, 503, noFiles, false, true},
		{at(AtDial, Gone, 0, false), left, 499, gone, false, false},
		{at(AtDial, Broke, 0, true), Verdict{CodePrefillUnavailable, router.Refused, RetryFree, ReasonUnavailable, FateKept, true, false}, 503, noP, false, true},
		{at(AtRequest, Gone, 0, false), left, 499, gone, false, false},
		{at(AtRequest, Down, 0, false), down, 502, failed, false, false},
		{at(AtRequest, Timeout, 0, false), late, 504, slow, false, false},
		{at(AtRequest, Broke, 0, true), broke, 502, brokeOff, false, false},
		{at(AtHead, Gone, 0, false), left, 499, gone, false, false},
		{at(AtHead, Stopped, 0, false), end, 503, stopped, false, true},
		{at(AtHead, Overdue, 0, false), over, 504, overdue, true, false},
		{at(AtHead, Timeout, 0, false), late, 504, slow, false, false},
		{at(AtHead, Other, 0, false), Verdict{Code: CodePrefillFailed, Outcome: router.NoVerdict}, 502, "decode ended before the prefill that began with it", false, false},
		{at(AtHead, Down, 0, false), down, 502, failed, false, false},
		{at(AtHead, Down, 0, true), with(down, FateUnheard), 502, failed, false, false},
		{at(AtHead, Broke, 0, true), with(broke, FateUnheard), 502, brokeOff, false, false},
		{at(AtBody, Gone, 200, false), with(left, FateUnheard), 499, gone, false, false},
		{at(AtBody, Gone, 500, false), left, 499, gone, false, false},
		{at(AtBody, Stopped, 200, false), with(end, FateUnheard), 503, stopped, false, true},
		{at(AtBody, Overdue, 200, false), with(over, FateUnheard), 504, overdue, true, false},
		{at(AtBody, Timeout, 200, false), with(late, FateUnheard), 504, slow, false, false},
		{at(AtBody, Down, 200, false), with(down, FateUnheard), 502, failed, false, false},
		{at(AtBody, Broke, 200, true), with(broke, FateUnheard), 502, brokeOff, false, false},
		{at(AtBody, Broke, 503, true), broke, 502, brokeOff, false, false},
		{at(AtLimit, TooLarge, 200, false), large, 502, "prefill backend's answer is larger than limits.answer", true, false},
		{at(AtHead, LongHead, 200, true), large, 502, "the head of the prefill backend's answer is larger than 32 KiB", true, false},
		{at(AtLimit, Gone, 200, false), with(left, FateUnnamed), 499, gone, false, false},
		// An answer that came when it was no longer wanted.
		{at(AtAnswer, Gone, 200, false), with(left, FateBack), 499, gone, false, false},
		{at(AtAnswer, Stopped, 200, false), with(end, FateBack), 503, stopped, false, true},
		{at(AtAnswer, Overdue, 200, false), with(over, FateBack), 504, overdue, true, false},
		{at(AtAnswer, Timeout, 200, false), with(late, FateBack), 504, slow, false, false},
		{at(AtAnswer, Down, 200, false), with(down, FateBack), 502, failed, false, false},
	}
}

func prefillAnswers() []judged {
	bad := Verdict{CodeInvalidHandoff, router.Gateway, RetryPaid, ReasonBadHandle, FateUnnamed, false, false}
	host := bad
	host.Handle = FateForbidden
	busy := Verdict{CodePrefillUnavailable, router.Engine, RetryPaid, ReasonBusy, FateKept, false, false}
	quota := busy
	quota.Outcome = router.ClientFault
	of := func(c Cause, status int) Fault { return Fault{Leg: Prefill, At: AtAnswer, Status: status, Cause: c} }
	return []judged{
		{of(Unusable, 200), Verdict{CodePrefillFailed, router.Gateway, RetryPaid, ReasonFailed, FateUnnamed, false, true}, 502, "prefill backend gave an answer that cannot be used", false, false},
		{of(NoHandle, 200), Verdict{CodeInvalidHandoff, router.Engine, RetryPaid, ReasonNoHandle, FateKept, false, false}, 502, "prefill backend gave no kv_transfer_params; is it started with --kv-transfer-config?", false, false},
		{of(Ended, 200), Verdict{Code: CodeInvalidHandoff, Outcome: router.ClientFault, Degrade: ReasonNoHandle}, 502, "the prefill backend's token ended the text, and the connector hands over no blocks then", false, false},
		{of(BadHandle, 200), bad, 502, "prefill backend gave unusable kv_transfer_params", false, false},
		{of(Host, 200), host, 502, "prefill backend named a host that is not in kv.allow_hosts", false, false},
		{of(Stale, 200), Verdict{CodeHandleExpired, router.Gateway, RetryPaid, ReasonFailed, FateBack, false, false}, 503, "prefill backend's answer took so long that its lease ran out", false, true},
		{of(Status, 204), Verdict{CodePrefillFailed, router.Gateway, RetryPaid, ReasonFailed, FateKept, false, false}, 502, "prefill backend answered with an unexpected status", false, false},
		{of(Status, 302), Verdict{CodePrefillFailed, router.Gateway, RetryPaid, ReasonFailed, FateKept, false, false}, 502, "prefill backend answered with an unexpected status", false, false},
		{of(Status, 400), Verdict{Code: CodeUpstreamRejected, Outcome: router.ClientFault}, 400, "prefill backend refused the request", true, false},
		{of(Flags, 400), Verdict{CodeUpstreamRejected, router.ClientFault, RetryNever, ReasonRefused, FateKept, false, false}, 400, "prefill backend refused the request", true, false},
		{of(Unlisted, 404), Verdict{Code: CodeUpstreamRejected, Outcome: router.ClientFault, Retry: RetryPaid}, 404, "prefill backend refused the request", true, false},
		{of(Forced, 400), Verdict{CodeUpstreamRejected, router.ClientFault, RetryNever, ReasonToolChoice, FateKept, false, false}, 400, "prefill backend refused the request", true, false},
		{of(Status, 401), Verdict{Code: CodeUpstreamRejected, Outcome: router.ClientFault}, 401, "prefill backend refused the request", true, false},
		{of(Auth, 401), Verdict{CodeUpstreamAuth, router.Auth, RetryFree, ReasonFailed, FateKept, false, false}, 502, "a backend refused the proxy's credentials", true, false},
		{of(Status, 429), quota, 429, "prefill backend is busy", false, true},
		{of(Forced, 429), quota, 429, "prefill backend is busy", false, true},
		{of(Status, 500), Verdict{CodePrefillFailed, router.Engine, RetryPaid, ReasonFailed, FateKept, false, true}, 500, "prefill backend failed", false, false},
		{of(Forced, 500), Verdict{CodePrefillFailed, router.Engine, RetryNever, ReasonToolChoice, FateKept, false, true}, 500, "prefill backend failed", false, false},
		{of(Status, 503), busy, 503, "prefill backend is busy", false, true},
		{of(Forced, 503), busy, 503, "prefill backend is busy", false, true},
		{of(Status, 504), Verdict{CodePrefillFailed, router.Engine, RetryPaid, ReasonFailed, FateKept, false, true}, 504, "prefill backend failed", false, false},
	}
}

func decodeFailures() []judged {
	left := Verdict{Code: CodeClientGone, Outcome: router.ClientGone}
	end := Verdict{Code: CodeShuttingDown, Outcome: router.NoVerdict}
	source := Verdict{CodeDecodeFailed, router.NoVerdict, RetryPaid, ReasonNone, FateBurnt, false, false}
	down := Verdict{CodeDecodeFailed, router.Gateway, RetryPaid, ReasonNone, FateSuspect, false, false}
	broke := Verdict{CodeDecodeFailed, router.Gateway, RetryPaid, ReasonNone, FateSuspect, true, false}
	over := Verdict{Code: CodeDeadline, Outcome: router.NoVerdict, Handle: FateBurnt}
	slow := Verdict{Code: CodeDecodeTimeout, Outcome: router.Timeout, Handle: FateBurnt}
	with := func(v Verdict, f Fate) Verdict { v.Handle = f; return v }
	at := func(at Progress, c Cause, hungUp bool) Fault {
		return Fault{Leg: Decode, At: at, Cause: c, HungUp: hungUp, Handle: true}
	}
	const sourceDown, failed, noEvent, brokeOff = "prefill backend failed its health checks, hung or restarted before its blocks were loaded", "decode backend failed its health checks or hangs",
		"decode backend sent no event within timeouts.first_event", "decode backend broke off before its first event"
	rows := []judged{
		{at(AtPool, NoneUp, false), Verdict{Code: CodeDecodeUnavailable, Outcome: router.NoVerdict}, 503, noD, false, true},
		{at(AtPool, Full, false), Verdict{Code: CodeOverloaded, Outcome: router.NoVerdict}, 503, "every decode backend has decode_max_in_flight requests", false, true},
		{at(AtPool, Stale, false), Verdict{CodeHandleExpired, router.NoVerdict, RetryPaid, ReasonNone, FateBack, false, false}, 503, "no decode backend took the prefill before its lease ran out", false, true},
		{at(AtDial, Gone, false), with(left, FateBack), 499, gone, false, false},
		{at(AtDial, Stopped, false), with(end, FateBack), 503, stopped, false, true},
		{at(AtDial, Descriptors, false), Verdict{Code: CodeOverloaded, Outcome: router.NoVerdict, Handle: FateBack}, 503, noFiles, false, true},
		{at(AtDial, Broke, false), Verdict{CodeDecodeUnavailable, router.Refused, RetryFree, ReasonNone, FateKept, true, false}, 503, noD, false, true},
		{at(AtRequest, Gone, false), with(left, FateBack), 499, gone, false, false},
		{at(AtRequest, Overdue, false), with(over, FateBack), 504, overdue, true, false},
		{at(AtRequest, Timeout, false), with(slow, FateBack), 504, noEvent, true, false},
		{at(AtRequest, Source, false), with(source, FateBack), 502, sourceDown, false, false},
		{at(AtRequest, Down, false), down, 502, failed, false, false},
		{at(AtRequest, Broke, false), broke, 502, brokeOff, false, false},
		{at(AtLimit, TooLarge, false), Verdict{Code: CodeDecodeFailed, Outcome: router.ClientFault, Handle: FateBack}, 0, "", false, false},
		{at(AtHead, LongHead, false), Verdict{Code: CodeDecodeFailed, Outcome: router.ClientFault, Handle: FateBack}, 502, "the head of the decode backend's answer is larger than 32 KiB", true, false},
		{at(AtLimit, NoRoom, false), Verdict{Code: CodeOverloaded, Outcome: router.ClientFault, Handle: FateBack}, 0, "", false, false},
	}
	for _, p := range []Progress{AtHead, AtBody} {
		rows = append(rows, []judged{
			{at(p, Gone, false), with(left, FateBurnt), 499, gone, false, false},
			{at(p, Gone, true), with(left, FateBack), 499, gone, false, false},
			{at(p, Stopped, false), with(end, FateBurnt), 503, stopped, false, true},
			{at(p, Stopped, true), with(end, FateBack), 503, stopped, false, true},
			{at(p, Source, false), source, 502, sourceDown, false, false},
			{at(p, Down, false), down, 502, failed, false, false},
			{at(p, Other, false), Verdict{Code: CodeDecodeFailed, Outcome: router.NoVerdict, Handle: FateBurnt}, 502, "the prefill that began with decode failed", false, false},
			{at(p, Overdue, false), over, 504, overdue, true, false},
			{at(p, Overdue, true), with(over, FateBack), 504, overdue, true, false},
			{at(p, Timeout, true), with(slow, FateBack), 504, noEvent, true, false},
			{at(p, Timeout, false), slow, 504, noEvent, true, false},
			{at(p, Broke, false), broke, 502, brokeOff, false, false},
		}...)
	}
	return rows
}

// decodeAnswers are D's own failures, each with a handle and without one.
func decodeAnswers() (rows []judged) {
	for _, handle := range []bool{true, false} {
		engine := router.Engine
		if handle {
			engine = router.KVLoad
		}
		failed := Verdict{CodeDecodeFailed, engine, RetryPaid, ReasonNone, FateSuspect, false, true}
		of := func(c Cause, status int) Fault {
			return Fault{Leg: Decode, At: AtAnswer, Status: status, Cause: c, Handle: handle}
		}
		rows = append(rows, []judged{
			{of(Unusable, 200), failed, 502, "decode backend gave an incomplete answer", false, false},
			{of(Reported, 200), failed, 502, "decode backend reported an error before its first token", false, false},
			{of(Tokenless, 200), failed, 502, "decode backend ended its stream without a token", false, false},
			{of(Cut, 200), failed, 502, "decode backend ended its stream before its first token", false, false},
			{of(Status, 302), failed, 502, "decode backend answered with an unexpected status", false, false},
			{of(Status, 400), Verdict{Code: CodeUpstreamRejected, Outcome: router.ClientFault, Handle: FateBack}, 400, "decode backend refused the request", true, false},
			{of(Status, 401), Verdict{Code: CodeUpstreamRejected, Outcome: router.ClientFault, Handle: FateBack}, 401, "decode backend refused the request", true, false},
			{of(Unlisted, 404), Verdict{Code: CodeUpstreamRejected, Outcome: router.ClientFault, Retry: RetryPaid, Handle: FateElsewhere}, 404, "decode backend refused the request", true, false},
			{of(Auth, 403), Verdict{Code: CodeUpstreamAuth, Outcome: router.Auth, Handle: FateElsewhere}, 502, "a backend refused the proxy's credentials", true, false},
			{of(Status, 429), Verdict{CodeDecodeUnavailable, router.ClientFault, RetryPaid, ReasonNone, FateBack, false, false}, 429, "decode backend is busy", false, true},
			{of(Status, 500), failed, 500, "decode backend failed", false, false},
			{of(Status, 503), Verdict{CodeDecodeUnavailable, engine, RetryPaid, ReasonNone, FateSuspect, false, false}, 503, "decode backend is busy", false, true},
			{of(Status, 504), failed, 504, "decode backend failed", false, false},
		}...)
	}
	return rows
}

func streamFailures() []judged {
	of := func(c Cause) Fault { return Fault{Leg: Decode, At: InStream, Status: 200, Cause: c} }
	return []judged{
		{of(Gone), Verdict{Code: CodeClientGone, Outcome: router.ClientGone}, 499, gone, false, false},
		{of(Stopped), Verdict{Code: CodeShuttingDown, Outcome: router.NoVerdict}, 503, stopped, false, true},
		{of(TooLarge), Verdict{Code: CodeDecodeFailed, Outcome: router.ClientFault}, 0, "", false, false},
		{of(NoRoom), Verdict{Code: CodeOverloaded, Outcome: router.ClientFault}, 0, "", false, false},
		{of(Unusable), Verdict{Code: CodeDecodeFailed, Outcome: router.Engine}, 502, "decode backend ended its stream without a finished answer", false, false},
		{of(Reported), Verdict{Code: CodeDecodeFailed, Outcome: router.Engine}, 502, "decode backend reported an error in its stream", false, false},
		{of(Overdue), Verdict{Code: CodeDeadline, Outcome: router.NoVerdict}, 504, overdue, true, false},
		{of(Timeout), Verdict{Code: CodeDecodeStalled, Outcome: router.Timeout, Probe: true}, 504, "decode backend sent nothing within timeouts.stream_idle", false, false},
		{of(Broke), Verdict{Code: CodeDecodeFailed, Outcome: router.Gateway, Probe: true}, 502, "decode backend broke off its stream", false, false},
	}
}

func passedFailures() []judged {
	of := func(at Progress, c Cause, status int) Fault {
		return Fault{Leg: Passed, At: at, Status: status, Cause: c}
	}
	failed := Verdict{Code: CodeDecodeFailed, Outcome: router.Engine}
	rejected := Verdict{Code: CodeUpstreamRejected, Outcome: router.ClientFault}
	odd := Verdict{Code: CodeDecodeFailed, Outcome: router.Gateway}
	again := func(at Progress, c Cause, status int) Fault {
		f := of(at, c, status)
		f.Repeats = true
		return f
	}
	with := func(v Verdict, r Retry) Verdict { v.Retry = r; return v }
	const down, late = "backend failed its health checks or hangs", "backend did not answer in time"
	return []judged{
		{of(AtPool, Full, 0), Verdict{Code: CodeOverloaded, Outcome: router.NoVerdict}, 503, "every backend has as many requests as its cap allows", false, true},
		{of(AtHead, Gone, 0), Verdict{Code: CodeClientGone, Outcome: router.ClientGone}, 499, gone, false, false},
		{of(AtHead, Stopped, 0), Verdict{Code: CodeShuttingDown, Outcome: router.NoVerdict}, 503, stopped, false, true},
		{of(AtBody, Overdue, 0), Verdict{Code: CodeDeadline, Outcome: router.NoVerdict}, 504, overdue, true, false},
		{of(AtBody, Timeout, 0), Verdict{Code: CodeDecodeTimeout, Outcome: router.Timeout}, 504, late, true, false},
		{again(AtBody, Timeout, 0), Verdict{Code: CodeDecodeTimeout, Outcome: router.Timeout}, 504, late, true, false},
		{of(AtBody, Down, 0), odd, 502, down, false, false},
		{again(AtBody, Down, 0), with(odd, RetryPaid), 502, down, false, false},
		{again(AtBody, Broke, 0), with(odd, RetryPaid), 502, "backend did not answer", false, false},
		{again(AtAnswer, Status, 500), with(failed, RetryPaid), 500, "backend failed", false, false},
		{again(AtAnswer, Status, 400), rejected, 400, "backend refused the request", true, false},
		{again(AtAnswer, Status, 429), rejected, 429, "backend refused the request", false, false},
		{of(AtPool, NoneUp, 0), Verdict{Code: CodeDecodeUnavailable, Outcome: router.NoVerdict}, 503, "no backend accepts connections", false, true},
		{of(AtDial, Descriptors, 0), Verdict{Code: CodeOverloaded, Outcome: router.NoVerdict}, 503, noFiles, false, true},
		{of(AtDial, Broke, 0), Verdict{Code: CodeDecodeUnavailable, Outcome: router.Refused, Retry: RetryFree, Probe: true}, 503, "no backend accepts connections", false, true},
		{of(AtBody, Broke, 0), odd, 502, "backend did not answer", false, false},
		{of(AtLimit, TooLarge, 200), Verdict{Code: CodeDecodeFailed, Outcome: router.ClientFault}, 0, "", false, false},
		{of(AtHead, LongHead, 200), Verdict{Code: CodeDecodeFailed, Outcome: router.ClientFault}, 502, "the head of the backend's answer is larger than 32 KiB", true, false},
		{of(AtLimit, NoRoom, 200), Verdict{Code: CodeOverloaded, Outcome: router.ClientFault}, 0, "", false, false},
		{of(AtAnswer, Status, 302), odd, 502, "backend answered with an unexpected status", false, false},
		{of(AtAnswer, Status, 400), rejected, 400, "backend refused the request", true, false},
		{of(AtAnswer, Auth, 401), Verdict{Code: CodeUpstreamAuth, Outcome: router.Gateway}, 502, "a backend refused the proxy's credentials", true, false},
		{of(AtAnswer, Status, 429), rejected, 429, "backend refused the request", false, false},
		{of(AtAnswer, Status, 500), failed, 500, "backend failed", false, false},
		{of(AtAnswer, Status, 503), failed, 503, "backend failed", false, false},
	}
}

// What follows from each failure, and what the client is told.
func TestFailures(t *testing.T) {
	seen := map[Cause]bool{}
	for _, row := range failures() {
		seen[row.Cause] = true
		if got := Classify(row.Fault); got != row.Verdict {
			t.Errorf("%+v:\n got %+v\nwant %+v", row.Fault, got, row.Verdict)
		}
		if row.message == "" { // what cannot be held has a text of its own
			continue
		}
		told := row.Tell(row.Code)
		if row.Fault.Status >= 400 && (row.Cause == Status || row.Cause == Forced || row.Cause == Flags || row.Cause == Unlisted) {
			told = row.Refusal(row.Code, 7)
		}
		if told.Code != row.Code || told.Status != row.status || told.Message != row.message || told.NoRetry != row.noRetry || row.retryAfter && told.RetryAfter == 0 {
			t.Errorf("%+v is told as %d %s %q, no retry %t, after %d s; want %d %s %q, %t, %t", row.Fault, told.Status, told.Code, told.Message, told.NoRetry, told.RetryAfter,
				row.status, row.Code, row.message, row.noRetry, row.retryAfter)
		}
	}
	for c := NoCause + 1; c < Causes; c++ {
		if !seen[c] {
			t.Errorf("no row has cause %d", c)
		}
	}
}

// Statuses without a row are judged like their neighbours, and the client is told the code of the
// leg.
func TestFailuresOfEveryStatus(t *testing.T) {
	for _, l := range []Leg{Prefill, Decode, Passed} {
		for status := 201; status < 600; status++ {
			f := Fault{Leg: l, At: AtAnswer, Status: status, Cause: Status}
			v := Classify(f)
			own := status >= 400 && status < 500
			if own != (v.Outcome == router.ClientFault) {
				t.Errorf("%v %d is counted as %v", l, status, v.Outcome)
			}
			if v.Retry != RetryNever && own && status != 429 {
				t.Errorf("%v %d is tried again", l, status)
			}
			if e := f.Tell(v.Code); e.Code != v.Code {
				t.Errorf("%v %d: %v is told as %v", l, status, v.Code, e.Code)
			}
		}
	}
}

// The log of a request that moves says what became of the engine, also where its metrics told of a restart.
func TestMovedLog(t *testing.T) {
	for cause, want := range map[Cause]string{
		Down: "moved: its health checks failed, or it hangs", Source: "moved: the prefill engine failed its health checks, hangs or restarted", Broke: "",
	} {
		if e := (Fault{Leg: Decode, At: AtBody, Cause: cause}).Tell(CodeDecodeFailed); e.Log != want {
			t.Errorf("%v: %q, want %q", cause, e.Log, want)
		}
	}
}
