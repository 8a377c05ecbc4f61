package fault

import (
	"strconv"

	"github.com/valyala/fasthttp"

	"xpyd/router"
)

// This file says what a client is told about a leg that failed. Classify says what may be tried
// instead.

// Tell returns the error that a client gets for the fault. c is the code that Classify gave it.
func (f Fault) Tell(c Code) *Error {
	switch f.Cause {
	case Gone:
		return ErrGone()
	case Stopped:
		return ErrStopped()
	case Overdue:
		return ErrDeadline()
	case Descriptors:
		return ErrDescriptors()
	case Auth:
		return ErrAuth()
	}
	e := NewError(legStatus(c), c, "", f.Message())
	if e.Status == fasthttp.StatusServiceUnavailable {
		e.RetryAfter = 1
	}
	e.NoRetry = f.Cause == TooLarge || f.Cause == LongHead || f.Cause == Suspect || f.Cause == Timeout && c == CodeDecodeTimeout
	switch f.Cause {
	case Down:
		e.Log = "moved: its health checks failed, or it hangs"
	case Source:
		e.Log = "moved: the prefill engine failed its health checks, hangs or restarted"
	}
	return e
}

// Refusal returns the client's error for an answer with f's status, 400 or above. c is the code that
// Classify gave the fault, and retryAfter is what the backend asks for, or 0.
func (f Fault) Refusal(c Code, retryAfter int) *Error {
	e := NewError(f.Status, c, "", f.Message())
	e.Log = "status " + strconv.Itoa(f.Status)
	e.RetryAfter = retryAfter
	e.NoRetry = f.Status < 500 && f.Status != fasthttp.StatusTooManyRequests
	return e
}

// legStatus returns the HTTP status of xpyd's own errors about a leg.
func legStatus(c Code) int {
	switch c {
	case CodeOverloaded, CodePrefillUnavailable, CodeDecodeUnavailable, CodeHandleExpired:
		return fasthttp.StatusServiceUnavailable
	case CodePrefillTimeout, CodeDecodeTimeout, CodeDecodeStalled:
		return fasthttp.StatusGatewayTimeout
	}
	return fasthttp.StatusBadGateway
}

func (f Fault) Message() string {
	switch {
	case f.Cause == Status || f.Cause == Forced || f.Cause == Flags || f.Cause == Unlisted:
		return f.role() + f.statusMessage()
	case f.At == InStream:
		return f.streamMessage()
	case f.Leg == Prefill:
		return f.prefillMessage()
	case f.Leg == Passed:
		return f.passedMessage()
	}
	return f.decodeMessage()
}

// Blame says for operators what the fault tells against its backend. It is empty if that is nothing.
func (f Fault) Blame(o router.Outcome) string {
	switch {
	case o == router.OK || o == router.ClientGone || o == router.NoVerdict || o == router.ClientFault, f.Cause == Down: // whoever took it down has said why
		return ""
	case o == router.Auth:
		return "it refused xpyd's key"
	case f.Cause == Broke && f.At == AtDial:
		return "a leg could not connect"
	case f.Status >= 400 && f.Cause != Broke:
		return "a leg got status " + strconv.Itoa(f.Status)
	}
	return "a leg failed: " + f.Message()
}

func (f Fault) role() string {
	return [...]string{Prefill: "prefill backend ", Decode: "decode backend ", Passed: "backend "}[f.Leg]
}

// passedMessage does not say which role the backend has, because that does not matter to the request.
func (f Fault) passedMessage() string {
	switch f.Cause {
	case Full:
		return "every backend has as many requests as its cap allows"
	case Down:
		return "backend failed its health checks or hangs"
	case Timeout:
		return "backend did not answer in time"
	case LongHead:
		return "the head of the backend's answer is larger than 32 KiB"
	case Broke:
		if f.At > AtDial {
			return "backend did not answer"
		}
	}
	return "no backend accepts connections"
}

func (f Fault) statusMessage() string {
	switch {
	case f.Leg != Passed && (f.Status == fasthttp.StatusTooManyRequests || f.Status == fasthttp.StatusServiceUnavailable):
		return "is busy"
	case f.Status >= 500:
		return "failed"
	case f.Status >= 400:
		return "refused the request"
	}
	return "answered with an unexpected status"
}

func (f Fault) prefillMessage() string {
	switch f.Cause {
	case Full:
		return "every prefill backend has prefill_max_in_flight requests"
	case Suspect:
		return "decode backend failed with the handle of the only prefill backend"
	case Down:
		return "prefill backend failed its health checks or hangs"
	case Other:
		return "decode ended before the prefill that began with it"
	case Timeout:
		return "prefill backend did not answer within timeouts.prefill"
	case TooLarge:
		return "prefill backend's answer is larger than limits.answer"
	case LongHead:
		return "the head of the prefill backend's answer is larger than 32 KiB"
	case Unusable:
		return "prefill backend gave an answer that cannot be used"
	case NoHandle:
		return "prefill backend gave no kv_transfer_params; is it started with --kv-transfer-config?"
	case Ended:
		return "the prefill backend's token ended the text, and the connector hands over no blocks then"
	case BadHandle:
		return "prefill backend gave unusable kv_transfer_params"
	case Stale:
		return "prefill backend's answer took so long that its lease ran out"
	case Host:
		return "prefill backend named a host that is not in kv.allow_hosts"
	case Broke:
		if f.At > AtDial {
			return "prefill backend broke off the connection"
		}
	}
	return "no prefill backend accepts connections"
}

func (f Fault) decodeMessage() string {
	switch f.Cause {
	case Full:
		return "every decode backend has decode_max_in_flight requests"
	case Stale:
		return "no decode backend took the prefill before its lease ran out"
	case Down:
		return "decode backend failed its health checks or hangs"
	case Other:
		return "the prefill that began with decode failed"
	case Source:
		return "prefill backend failed its health checks, hung or restarted before its blocks were loaded"
	case Timeout:
		return "decode backend sent no event within timeouts.first_event"
	case LongHead:
		return "the head of the decode backend's answer is larger than 32 KiB"
	case Unusable:
		return "decode backend gave an incomplete answer"
	case Reported:
		return "decode backend reported an error before its first token"
	case Tokenless:
		return "decode backend ended its stream without a token"
	case Cut:
		return "decode backend ended its stream before its first token"
	case Broke:
		if f.At > AtDial {
			return "decode backend broke off before its first event"
		}
	}
	return "no decode backend accepts connections"
}

func (f Fault) streamMessage() string {
	switch f.Cause {
	case Down:
		return "decode backend hangs, and its streams have ended"
	case Timeout:
		return "decode backend sent nothing within timeouts.stream_idle"
	case Unusable:
		return "decode backend ended its stream without a finished answer"
	case Reported:
		return "decode backend reported an error in its stream"
	}
	return "decode backend broke off its stream"
}

func ErrDeadline() *Error {
	return NewError(fasthttp.StatusGatewayTimeout, CodeDeadline, "", "the request took longer than timeouts.request, or than its X-Request-Timeout").Final()
}

func ErrStopped() *Error {
	return NewError(fasthttp.StatusServiceUnavailable, CodeShuttingDown, "", "xpyd is shutting down").After(1)
}

// statusClientGone is nginx's status for a client that left.
const statusClientGone = 499

// ErrGone is the error of a client that left before its answer was complete. It is for the metrics
// and the log, as usually no client is left to read it.
func ErrGone() *Error {
	return NewError(statusClientGone, CodeClientGone, "", "the client closed the connection or its sending side")
}

// ErrDescriptors is the refusal when the process, and not a backend, is at its limit.
func ErrDescriptors() *Error {
	return NewError(fasthttp.StatusServiceUnavailable, CodeOverloaded, "", "xpyd has no file descriptor left; try again").After(1)
}

// ErrUnsplit is the refusal of a request that two legs cannot serve, where the connector's decode
// engines take none without a prefill.
func ErrUnsplit(why Reason) *Error {
	return NewError(fasthttp.StatusBadRequest, CodeUnsupported, "", "two legs cannot serve this request ("+why.String()+
		"), and the decode engines serve none without a prefill").Final()
}

// ErrAuth is for a backend that refuses xpyd's own key.
func ErrAuth() *Error {
	return NewError(fasthttp.StatusBadGateway, CodeUpstreamAuth, "", "a backend refused the proxy's credentials").Final()
}

// ErrClientLimit is for a client that has all the requests that it may have at a time.
func ErrClientLimit() *Error {
	return NewError(fasthttp.StatusTooManyRequests, CodeClientLimit, "", "this client already has as many requests in flight as limits.client_in_flight, or the in_flight of its key, allows; wait for one to end").After(1)
}

// ErrShareSpent is for a request without the prefill that it should have had, while others have their part.
func ErrShareSpent() *Error {
	e := NewError(fasthttp.StatusServiceUnavailable, CodePrefillUnavailable, "", "no prefill can be had, and decode_only.max_share is spent").After(1)
	e.Blameless = true
	return e
}

// ErrInternal is for a panic.
func ErrInternal() *Error {
	return NewError(fasthttp.StatusInternalServerError, CodeInternal, "", "internal error of the proxy")
}

// ErrEventTooLarge refuses an event that is too large. No backend has failed, and another round would
// end the same way.
func ErrEventTooLarge() *Error {
	e := NewError(fasthttp.StatusBadGateway, CodeDecodeFailed, "", "decode backend sent an event larger than limits.answer").Final()
	e.Blameless = true
	return e
}
