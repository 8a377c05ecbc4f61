package proxy

import (
	"testing"
	"time"

	"xpyd/router"
	"xpyd/upstream"
)

// judged is a row: a fault, what follows from it, and what the client is told.
type judged struct {
	fault
	verdict
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
	overdue = "the request took longer than timeouts.request"
	noFiles = "xpyd has no file descriptor left; try again"
	noP     = "no prefill backend accepts connections"
	noD     = "no decode backend accepts connections"
)

func prefillFailures() []judged {
	broke := verdict{codePrefillFailed, router.Gateway, retryPaid, reasonFailed, fateKept, true, false}
	down := verdict{codePrefillFailed, router.Gateway, retryPaid, reasonUnavailable, fateKept, false, false}
	late := verdict{code: codePrefillTimeout, outcome: router.Timeout}
	left := verdict{code: codeClientGone, outcome: router.ClientGone}
	end := verdict{code: codeShuttingDown, outcome: router.ClientGone}
	over := verdict{code: codeDeadline, outcome: router.ClientGone}
	large := verdict{codePrefillFailed, router.ClientFault, retryNever, reasonFailed, fateUnnamed, false, false}
	const brokeOff, failed, slow = "prefill backend broke off the connection", "prefill backend failed its health checks", "prefill backend did not answer within timeouts.prefill"
	with := func(v verdict, f fate) verdict { v.handle = f; return v }
	at := func(at progress, c cause, status int, hungUp bool) fault {
		return fault{leg: legPrefill, at: at, status: status, cause: c, hungUp: hungUp}
	}
	return []judged{
		{at(atPool, causeFull, 0, false), verdict{codeOverloaded, router.ClientGone, retryNever, reasonBusy, fateKept, false, false}, 503, "every prefill backend has prefill_max_in_flight requests", false, true},
		{at(atPool, causeNoneUp, 0, false), verdict{codePrefillUnavailable, router.ClientGone, retryNever, reasonUnavailable, fateKept, false, false}, 503, noP, false, true},
		{at(atPool, causeSuspect, 0, false), verdict{codeDecodeFailed, router.ClientGone, retryNever, reasonSuspect, fateKept, false, false}, 502, "decode backend failed with the handle of the only prefill backend", true, false},
		{at(atDial, causeDescriptors, 0, false), verdict{code: codeOverloaded, outcome: router.ClientGone}, 503, noFiles, false, true},
		{at(atDial, causeGone, 0, false), left, 499, gone, false, false},
		{at(atDial, causeBroke, 0, true), verdict{codePrefillUnavailable, router.Refused, retryFree, reasonUnavailable, fateKept, true, false}, 503, noP, false, true},
		{at(atRequest, causeGone, 0, false), left, 499, gone, false, false},
		{at(atRequest, causeDown, 0, false), down, 502, failed, false, false},
		{at(atRequest, causeTimeout, 0, false), late, 504, slow, false, false},
		{at(atRequest, causeBroke, 0, true), broke, 502, brokeOff, false, false},
		{at(atHead, causeGone, 0, false), left, 499, gone, false, false},
		{at(atHead, causeStopped, 0, false), end, 503, stopped, false, true},
		{at(atHead, causeOverdue, 0, false), over, 504, overdue, true, false},
		{at(atHead, causeTimeout, 0, false), late, 504, slow, false, false},
		{at(atHead, causeOther, 0, false), verdict{code: codePrefillFailed, outcome: router.ClientGone}, 502, "decode ended before the prefill that began with it", false, false},
		{at(atHead, causeDown, 0, false), down, 502, failed, false, false},
		{at(atHead, causeDown, 0, true), with(down, fateUnheard), 502, failed, false, false},
		{at(atHead, causeBroke, 0, true), with(broke, fateUnheard), 502, brokeOff, false, false},
		{at(atBody, causeGone, 200, false), with(left, fateUnheard), 499, gone, false, false},
		{at(atBody, causeGone, 500, false), left, 499, gone, false, false},
		{at(atBody, causeStopped, 200, false), with(end, fateUnheard), 503, stopped, false, true},
		{at(atBody, causeOverdue, 200, false), with(over, fateUnheard), 504, overdue, true, false},
		{at(atBody, causeTimeout, 200, false), with(late, fateUnheard), 504, slow, false, false},
		{at(atBody, causeDown, 200, false), with(down, fateUnheard), 502, failed, false, false},
		{at(atBody, causeBroke, 200, true), with(broke, fateUnheard), 502, brokeOff, false, false},
		{at(atBody, causeBroke, 503, true), broke, 502, brokeOff, false, false},
		{at(atLimit, causeTooLarge, 200, false), large, 502, "prefill backend's answer is larger than limits.answer", true, false},
		{at(atLimit, causeGone, 200, false), with(left, fateUnnamed), 499, gone, false, false},
		// An answer that came when it was no longer wanted.
		{at(atAnswer, causeGone, 200, false), with(left, fateBack), 499, gone, false, false},
		{at(atAnswer, causeStopped, 200, false), with(end, fateBack), 503, stopped, false, true},
		{at(atAnswer, causeOverdue, 200, false), with(over, fateBack), 504, overdue, true, false},
		{at(atAnswer, causeTimeout, 200, false), with(late, fateBack), 504, slow, false, false},
		{at(atAnswer, causeDown, 200, false), with(down, fateBack), 502, failed, false, false},
	}
}

func prefillAnswers() []judged {
	bad := verdict{codeInvalidHandoff, router.Gateway, retryPaid, reasonBadHandle, fateUnnamed, false, false}
	host := bad
	host.handle = fateForbidden
	busy := verdict{codePrefillUnavailable, router.Engine, retryPaid, reasonBusy, fateKept, false, false}
	quota := busy
	quota.outcome = router.ClientFault
	of := func(c cause, status int) fault { return fault{leg: legPrefill, at: atAnswer, status: status, cause: c} }
	return []judged{
		{of(causeUnusable, 200), verdict{codePrefillFailed, router.Gateway, retryPaid, reasonFailed, fateUnnamed, false, true}, 502, "prefill backend gave an answer that cannot be used", false, false},
		{of(causeNoHandle, 200), verdict{codeInvalidHandoff, router.Engine, retryPaid, reasonNoHandle, fateKept, false, false}, 502, "prefill backend gave no kv_transfer_params; is it started with --kv-transfer-config?", false, false},
		{of(causeBadHandle, 200), bad, 502, "prefill backend gave unusable kv_transfer_params", false, false},
		{of(causeHost, 200), host, 502, "prefill backend named a host that is not in kv.allow_hosts", false, false},
		{of(causeStatus, 204), verdict{codePrefillFailed, router.Gateway, retryPaid, reasonFailed, fateKept, false, false}, 502, "prefill backend answered with an unexpected status", false, false},
		{of(causeStatus, 302), verdict{codePrefillFailed, router.Gateway, retryPaid, reasonFailed, fateKept, false, false}, 502, "prefill backend answered with an unexpected status", false, false},
		{of(causeStatus, 400), verdict{code: codeUpstreamRejected, outcome: router.ClientFault}, 400, "prefill backend refused the request", true, false},
		{of(causeForced, 400), verdict{codeUpstreamRejected, router.ClientFault, retryNever, reasonToolChoice, fateKept, false, false}, 400, "prefill backend refused the request", true, false},
		{of(causeStatus, 401), verdict{code: codeUpstreamRejected, outcome: router.ClientFault}, 401, "prefill backend refused the request", true, false},
		{of(causeAuth, 401), verdict{codeUpstreamAuth, router.Auth, retryFree, reasonFailed, fateKept, false, false}, 502, "a backend refused the proxy's credentials", true, false},
		{of(causeStatus, 429), quota, 429, "prefill backend is busy", false, true},
		{of(causeForced, 429), quota, 429, "prefill backend is busy", false, true},
		{of(causeStatus, 500), verdict{codePrefillFailed, router.Engine, retryPaid, reasonFailed, fateKept, false, true}, 500, "prefill backend failed", false, false},
		{of(causeForced, 500), verdict{codePrefillFailed, router.Engine, retryNever, reasonToolChoice, fateKept, false, true}, 500, "prefill backend failed", false, false},
		{of(causeStatus, 503), busy, 503, "prefill backend is busy", false, true},
		{of(causeForced, 503), busy, 503, "prefill backend is busy", false, true},
		{of(causeStatus, 504), verdict{codePrefillFailed, router.Engine, retryPaid, reasonFailed, fateKept, false, true}, 504, "prefill backend failed", false, false},
	}
}

func decodeFailures() []judged {
	left := verdict{code: codeClientGone, outcome: router.ClientGone}
	end := verdict{code: codeShuttingDown, outcome: router.ClientGone}
	source := verdict{codeDecodeFailed, router.ClientGone, retryPaid, reasonNone, fateBurnt, false, false}
	down := verdict{codeDecodeFailed, router.Gateway, retryPaid, reasonNone, fateSuspect, false, false}
	broke := verdict{codeDecodeFailed, router.Gateway, retryPaid, reasonNone, fateSuspect, true, false}
	over := verdict{code: codeDeadline, outcome: router.ClientGone, handle: fateSuspect}
	slow := verdict{code: codeDecodeTimeout, outcome: router.Timeout, handle: fateSuspect}
	with := func(v verdict, f fate) verdict { v.handle = f; return v }
	at := func(at progress, c cause, hungUp bool) fault {
		return fault{leg: legDecode, at: at, cause: c, hungUp: hungUp, handle: true}
	}
	const sourceDown, failed, noEvent, brokeOff = "prefill backend failed its health checks before its blocks were loaded", "decode backend failed its health checks",
		"decode backend sent no event within timeouts.first_event", "decode backend broke off before its first event"
	rows := []judged{
		{at(atPool, causeNoneUp, false), verdict{code: codeDecodeUnavailable, outcome: router.ClientGone}, 503, noD, false, true},
		{at(atPool, causeFull, false), verdict{code: codeOverloaded, outcome: router.ClientGone}, 503, "every decode backend has decode_max_in_flight requests", false, true},
		{at(atPool, causeStale, false), verdict{codeHandleExpired, router.ClientGone, retryPaid, reasonNone, fateBack, false, false}, 503, "no decode backend took the prefill before its lease ran out", false, true},
		{at(atDial, causeGone, false), with(left, fateBack), 499, gone, false, false},
		{at(atDial, causeStopped, false), with(end, fateBack), 503, stopped, false, true},
		{at(atDial, causeDescriptors, false), verdict{code: codeOverloaded, outcome: router.ClientGone, handle: fateBack}, 503, noFiles, false, true},
		{at(atDial, causeBroke, false), verdict{codeDecodeUnavailable, router.Refused, retryFree, reasonNone, fateKept, true, false}, 503, noD, false, true},
		{at(atRequest, causeGone, false), with(left, fateBack), 499, gone, false, false},
		{at(atRequest, causeSource, false), with(source, fateBack), 502, sourceDown, false, false},
		{at(atRequest, causeDown, false), down, 502, failed, false, false},
		{at(atRequest, causeBroke, false), broke, 502, brokeOff, false, false},
		{at(atLimit, causeTooLarge, false), verdict{code: codeDecodeFailed, outcome: router.ClientFault, handle: fateBack}, 0, "", false, false},
		{at(atLimit, causeNoRoom, false), verdict{code: codeOverloaded, outcome: router.ClientFault, handle: fateBack}, 0, "", false, false},
	}
	for _, p := range []progress{atHead, atBody} {
		rows = append(rows, []judged{
			{at(p, causeGone, false), with(left, fateBurnt), 499, gone, false, false},
			{at(p, causeGone, true), with(left, fateBack), 499, gone, false, false},
			{at(p, causeStopped, false), with(end, fateBurnt), 503, stopped, false, true},
			{at(p, causeStopped, true), with(end, fateBack), 503, stopped, false, true},
			{at(p, causeSource, false), source, 502, sourceDown, false, false},
			{at(p, causeDown, false), down, 502, failed, false, false},
			{at(p, causeOther, false), verdict{code: codeDecodeFailed, outcome: router.ClientGone, handle: fateBurnt}, 502, "the prefill that began with decode failed", false, false},
			{at(p, causeOverdue, false), over, 504, overdue, true, false},
			{at(p, causeTimeout, false), slow, 504, noEvent, true, false},
			{at(p, causeBroke, false), broke, 502, brokeOff, false, false},
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
		failed := verdict{codeDecodeFailed, engine, retryPaid, reasonNone, fateSuspect, false, true}
		of := func(c cause, status int) fault {
			return fault{leg: legDecode, at: atAnswer, status: status, cause: c, handle: handle}
		}
		rows = append(rows, []judged{
			{of(causeUnusable, 200), failed, 502, "decode backend gave an incomplete answer", false, false},
			{of(causeReported, 200), failed, 502, "decode backend reported an error before its first token", false, false},
			{of(causeTokenless, 200), failed, 502, "decode backend ended its stream without a token", false, false},
			{of(causeCut, 200), failed, 502, "decode backend ended its stream before its first token", false, false},
			{of(causeStatus, 302), failed, 502, "decode backend answered with an unexpected status", false, false},
			{of(causeStatus, 400), verdict{code: codeUpstreamRejected, outcome: router.ClientFault, handle: fateBack}, 400, "decode backend refused the request", true, false},
			{of(causeStatus, 401), verdict{code: codeUpstreamRejected, outcome: router.ClientFault, handle: fateBack}, 401, "decode backend refused the request", true, false},
			{of(causeAuth, 403), verdict{code: codeUpstreamAuth, outcome: router.Auth, handle: fateElsewhere}, 502, "a backend refused the proxy's credentials", true, false},
			{of(causeStatus, 429), verdict{codeDecodeUnavailable, router.ClientFault, retryPaid, reasonNone, fateBack, false, false}, 429, "decode backend is busy", false, true},
			{of(causeStatus, 500), failed, 500, "decode backend failed", false, false},
			{of(causeStatus, 503), verdict{codeDecodeUnavailable, engine, retryPaid, reasonNone, fateSuspect, false, false}, 503, "decode backend is busy", false, true},
			{of(causeStatus, 504), failed, 504, "decode backend failed", false, false},
		}...)
	}
	return rows
}

func streamFailures() []judged {
	of := func(c cause) fault { return fault{leg: legDecode, at: inStream, status: 200, cause: c} }
	return []judged{
		{of(causeGone), verdict{code: codeClientGone, outcome: router.ClientGone}, 499, gone, false, false},
		{of(causeStopped), verdict{code: codeShuttingDown, outcome: router.ClientGone}, 503, stopped, false, true},
		{of(causeTooLarge), verdict{code: codeDecodeFailed, outcome: router.ClientFault}, 0, "", false, false},
		{of(causeUnusable), verdict{code: codeDecodeFailed, outcome: router.Engine}, 502, "decode backend ended its stream without a finished answer", false, false},
		{of(causeReported), verdict{code: codeDecodeFailed, outcome: router.Engine}, 502, "decode backend reported an error in its stream", false, false},
		{of(causeOverdue), verdict{code: codeDeadline, outcome: router.ClientGone}, 504, overdue, true, false},
		{of(causeTimeout), verdict{code: codeDecodeStalled, outcome: router.Timeout, probe: true}, 504, "decode backend sent nothing within timeouts.stream_idle", false, false},
		{of(causeBroke), verdict{code: codeDecodeFailed, outcome: router.Gateway, probe: true}, 502, "decode backend broke off its stream", false, false},
	}
}

func passedFailures() []judged {
	of := func(at progress, c cause, status int) fault {
		return fault{leg: legPassed, at: at, status: status, cause: c}
	}
	failed := verdict{code: codeDecodeFailed, outcome: router.Engine}
	rejected := verdict{code: codeUpstreamRejected, outcome: router.ClientFault}
	odd := verdict{code: codeDecodeFailed, outcome: router.Gateway}
	again := func(at progress, c cause, status int) fault {
		f := of(at, c, status)
		f.repeats = true
		return f
	}
	with := func(v verdict, r retry) verdict { v.retry = r; return v }
	const down, late = "backend failed its health checks", "backend did not answer in time"
	return []judged{
		{of(atPool, causeFull, 0), verdict{code: codeOverloaded, outcome: router.ClientGone}, 503, "every backend has as many requests as its cap allows", false, true},
		{of(atHead, causeGone, 0), verdict{code: codeClientGone, outcome: router.ClientGone}, 499, gone, false, false},
		{of(atHead, causeStopped, 0), verdict{code: codeShuttingDown, outcome: router.ClientGone}, 503, stopped, false, true},
		{of(atBody, causeOverdue, 0), verdict{code: codeDeadline, outcome: router.ClientGone}, 504, overdue, true, false},
		{of(atBody, causeTimeout, 0), verdict{code: codeDecodeTimeout, outcome: router.Timeout}, 504, late, true, false},
		{again(atBody, causeTimeout, 0), verdict{code: codeDecodeTimeout, outcome: router.Timeout}, 504, late, true, false},
		{of(atBody, causeDown, 0), odd, 502, down, false, false},
		{again(atBody, causeDown, 0), with(odd, retryPaid), 502, down, false, false},
		{again(atBody, causeBroke, 0), with(odd, retryPaid), 502, "backend did not answer", false, false},
		{again(atAnswer, causeStatus, 500), with(failed, retryPaid), 500, "backend failed", false, false},
		{again(atAnswer, causeStatus, 400), rejected, 400, "backend refused the request", true, false},
		{again(atAnswer, causeStatus, 429), rejected, 429, "backend refused the request", false, false},
		{of(atPool, causeNoneUp, 0), verdict{code: codeDecodeUnavailable, outcome: router.ClientGone}, 503, "no backend accepts connections", false, true},
		{of(atDial, causeDescriptors, 0), verdict{code: codeOverloaded, outcome: router.ClientGone}, 503, noFiles, false, true},
		{of(atDial, causeBroke, 0), verdict{code: codeDecodeUnavailable, outcome: router.Refused, retry: retryFree, probe: true}, 503, "no backend accepts connections", false, true},
		{of(atBody, causeBroke, 0), odd, 502, "backend did not answer", false, false},
		{of(atLimit, causeTooLarge, 200), verdict{code: codeDecodeFailed, outcome: router.ClientFault}, 0, "", false, false},
		{of(atLimit, causeNoRoom, 200), verdict{code: codeOverloaded, outcome: router.ClientFault}, 0, "", false, false},
		{of(atAnswer, causeStatus, 302), odd, 502, "backend answered with an unexpected status", false, false},
		{of(atAnswer, causeStatus, 400), rejected, 400, "backend refused the request", true, false},
		{of(atAnswer, causeAuth, 401), verdict{code: codeUpstreamAuth, outcome: router.Gateway}, 502, "a backend refused the proxy's credentials", true, false},
		{of(atAnswer, causeStatus, 429), rejected, 429, "backend refused the request", false, false},
		{of(atAnswer, causeStatus, 500), failed, 500, "backend failed", false, false},
		{of(atAnswer, causeStatus, 503), failed, 503, "backend failed", false, false},
	}
}

// What follows from each failure, and what the client is told.
func TestFailures(t *testing.T) {
	s := &Server{}
	pools := router.DefaultConfig()
	pools.Decode = []string{"http://127.0.0.1:1"}
	rt, err := router.New(pools, 1, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	b := rt.Snapshot().Backends(router.Decode)[0]
	seen := map[cause]bool{}
	for _, row := range failures() {
		seen[row.cause] = true
		if got := classify(row.fault); got != row.verdict {
			t.Errorf("%+v:\n got %+v\nwant %+v", row.fault, got, row.verdict)
		}
		if row.message == "" { // what cannot be held has a text of its own
			continue
		}
		told := row.tell(row.code)
		if row.cause == causeStatus || row.cause == causeForced || row.cause == causeAuth {
			var asked int
			told, asked = tellRefusal(s, row.fault, b)
			if busy := row.retryAfter; busy != (asked > 0) {
				t.Errorf("%+v: asked to be left alone for %d s, want some: %t", row.fault, asked, busy)
			}
		}
		if told.Code != row.code || told.Status != row.status || told.Message != row.message || told.NoRetry != row.noRetry || row.retryAfter && told.RetryAfter == 0 {
			t.Errorf("%+v is told as %d %s %q, no retry %t, after %d s; want %d %s %q, %t, %t", row.fault, told.Status, told.Code, told.Message, told.NoRetry, told.RetryAfter,
				row.status, row.code, row.message, row.noRetry, row.retryAfter)
		}
	}
	for c := causeNone + 1; c < causes; c++ {
		if !seen[c] {
			t.Errorf("no row has cause %d", c)
		}
	}
}

// tellRefusal is s's with an answer that names a Retry-After.
func tellRefusal(s *Server, f fault, b *router.Backend) (*apiError, int) {
	x := &upstream.Exchange{Head: upstream.Head{RetryAfter: []byte("7")}}
	told, asked := s.tellRefusal(f, "id", b, x, nil)
	return told, int(asked.Seconds())
}

// Statuses without a row are judged like their neighbours, and the client is told the code of the
// leg.
func TestFailuresOfEveryStatus(t *testing.T) {
	for _, l := range []leg{legPrefill, legDecode, legPassed} {
		for status := 201; status < 600; status++ {
			f := fault{leg: l, at: atAnswer, status: status, cause: causeStatus}
			v := classify(f)
			own := status >= 400 && status < 500
			if own != (v.outcome == router.ClientFault) {
				t.Errorf("%v %d is counted as %v", l, status, v.outcome)
			}
			if v.retry != retryNever && own && status != 429 {
				t.Errorf("%v %d is tried again", l, status)
			}
			if e := f.tell(v.code); e.Code != v.code {
				t.Errorf("%v %d: %v is told as %v", l, status, v.code, e.Code)
			}
		}
	}
}
