package proxy

import (
	"bytes"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"xpyd/router"
	"xpyd/upstream"
)

// This file says what a client is told about a leg that failed. classify says what may be tried
// instead.

// tell returns the error that a client gets for the fault. c is the code that classify gave it.
func (f fault) tell(c code) *apiError {
	switch f.cause {
	case causeGone:
		return errGone()
	case causeStopped:
		return shuttingDown()
	case causeOverdue:
		return deadlineError()
	case causeDescriptors:
		return outOfDescriptors()
	}
	e := newError(legStatus(c), c, "", f.message())
	if e.Status == fasthttp.StatusServiceUnavailable {
		e.RetryAfter = 1
	}
	e.NoRetry = f.cause == causeTooLarge || f.cause == causeSuspect || f.cause == causeTimeout && c == codeDecodeTimeout
	switch f.cause {
	case causeDown:
		e.cause = "moved: its health checks failed"
	case causeSource:
		e.cause = "moved: the prefill backend's health checks failed"
	}
	return e
}

// legStatus returns the HTTP status of xpyd's own errors about a leg.
func legStatus(c code) int {
	switch c {
	case codeOverloaded, codePrefillUnavailable, codeDecodeUnavailable, codeHandleExpired:
		return fasthttp.StatusServiceUnavailable
	case codePrefillTimeout, codeDecodeTimeout, codeDecodeStalled:
		return fasthttp.StatusGatewayTimeout
	}
	return fasthttp.StatusBadGateway
}

func (f fault) message() string {
	switch {
	case f.cause == causeStatus || f.cause == causeForced:
		return f.role() + f.statusMessage()
	case f.at == inStream:
		return f.streamMessage()
	case f.leg == legPrefill:
		return f.prefillMessage()
	case f.leg == legPassed:
		return f.passedMessage()
	}
	return f.decodeMessage()
}

func (f fault) role() string {
	return [...]string{"prefill backend ", "decode backend ", "backend "}[f.leg]
}

// passedMessage does not say which role the backend has, because that does not matter to the request.
func (f fault) passedMessage() string {
	switch f.cause {
	case causeFull:
		return "every backend has as many requests as its cap allows"
	case causeDown:
		return "backend failed its health checks"
	case causeTimeout:
		return "backend did not answer in time"
	case causeBroke:
		if f.at > atDial {
			return "backend did not answer"
		}
	}
	return "no backend accepts connections"
}

func (f fault) statusMessage() string {
	switch {
	case f.leg != legPassed && (f.status == fasthttp.StatusTooManyRequests || f.status == fasthttp.StatusServiceUnavailable):
		return "is busy"
	case f.status >= 500:
		return "failed"
	case f.status >= 400:
		return "refused the request"
	}
	return "answered with an unexpected status"
}

func (f fault) prefillMessage() string {
	switch f.cause {
	case causeFull:
		return "every prefill backend has prefill_max_in_flight requests"
	case causeSuspect:
		return "decode backend failed with the handle of the only prefill backend"
	case causeDown:
		return "prefill backend failed its health checks"
	case causeOther:
		return "decode ended before the prefill that began with it"
	case causeTimeout:
		return "prefill backend did not answer within timeouts.prefill"
	case causeTooLarge:
		return "prefill backend's answer is larger than limits.answer"
	case causeUnusable:
		return "prefill backend gave an answer that cannot be used"
	case causeNoHandle:
		return "prefill backend gave no kv_transfer_params; is it started with --kv-transfer-config?"
	case causeBadHandle:
		return "prefill backend gave unusable kv_transfer_params"
	case causeHost:
		return "prefill backend named a host that is not in kv.allow_hosts"
	case causeBroke:
		if f.at > atDial {
			return "prefill backend broke off the connection"
		}
	}
	return "no prefill backend accepts connections"
}

func (f fault) decodeMessage() string {
	switch f.cause {
	case causeFull:
		return "every decode backend has decode_max_in_flight requests"
	case causeStale:
		return "no decode backend took the prefill before its lease ran out"
	case causeDown:
		return "decode backend failed its health checks"
	case causeOther:
		return "the prefill that began with decode failed"
	case causeSource:
		return "prefill backend failed its health checks before its blocks were loaded"
	case causeTimeout:
		return "decode backend sent no event within timeouts.first_event"
	case causeUnusable:
		return "decode backend gave an incomplete answer"
	case causeReported:
		return "decode backend reported an error before its first token"
	case causeTokenless:
		return "decode backend ended its stream without a token"
	case causeCut:
		return "decode backend ended its stream before its first token"
	case causeBroke:
		if f.at > atDial {
			return "decode backend broke off before its first event"
		}
	}
	return "no decode backend accepts connections"
}

func (f fault) streamMessage() string {
	switch f.cause {
	case causeTimeout:
		return "decode backend sent nothing within timeouts.stream_idle"
	case causeUnusable:
		return "decode backend ended its stream without a finished answer"
	case causeReported:
		return "decode backend reported an error in its stream"
	}
	return "decode backend broke off its stream"
}

func deadlineError() *apiError {
	return newError(fasthttp.StatusGatewayTimeout, codeDeadline, "", "the request took longer than timeouts.request").noRetry()
}

func shuttingDown() *apiError {
	return newError(fasthttp.StatusServiceUnavailable, codeShuttingDown, "", "xpyd is shutting down").retryAfter(1)
}

// refused returns the fault of an answer whose status is not 200.
func (s *Server) refused(l leg, status int) fault {
	f := fault{leg: l, at: atAnswer, status: status, cause: causeStatus}
	if s.authFailed(status) {
		f.cause = causeAuth
	}
	return f
}

// authFailed reports whether a 401 or 403 is about xpyd's own key. It is if xpyd sends a key of its
// own or checks the clients' keys itself. Otherwise the backend refuses the client's key.
func (s *Server) authFailed(status int) bool {
	return (status == fasthttp.StatusUnauthorized || status == fasthttp.StatusForbidden) && (len(s.forward.Auth) > 0 || s.keys.Required())
}

// tellRefusal returns the client's error for an answer with which backend b refused the request.
// The answer is in x, and body is its body. The client gets b's own error if it may see that. asked
// is how long the backend wants to be left alone.
func (s *Server) tellRefusal(f fault, id string, b *router.Backend, x *upstream.Exchange, body []byte) (told *apiError, asked time.Duration) {
	c := classify(f).code
	switch {
	case f.cause == causeAuth:
		return s.upstreamAuth(id, b), 0
	case f.status < 400:
		return f.tell(c), 0
	}
	told = s.relayed(x, body, f.status, c, f.message())
	if f.leg != legPassed && (f.status == fasthttp.StatusTooManyRequests || f.status == fasthttp.StatusServiceUnavailable) {
		asked = askedToWait(b, told)
	}
	return told, asked
}

// relayed returns a backend's error for the client. A 4xx goes on as it is. A 5xx has xpyd's text
// unless errors.expose_upstream is set, as the engine's own may hold addresses or prompts.
func (s *Server) relayed(x *upstream.Exchange, body []byte, status int, c code, message string) *apiError {
	e := newError(status, c, "", message)
	e.cause = "status " + strconv.Itoa(status)
	switch {
	case x.TooLarge:
		e.Message += "; its own answer is larger than limits.answer"
	case status < 500 || s.cfg.Errors.ExposeUpstream:
		e.Raw = bytes.Clone(body)
		e.ContentType = string(x.Head.ContentType)
	}
	e.RetryAfter = seconds(x.Head.RetryAfter)
	e.NoRetry = status >= 400 && status < 500 && status != fasthttp.StatusTooManyRequests
	return e
}

func (s *Server) upstreamAuth(id string, b *router.Backend) *apiError {
	s.log.Error().Str("request_id", id).Str("role", b.Role.String()).Str("backend", b.URL).
		Msg("the backend refuses xpyd's key; check backend_api_key or backend_api_key_file")
	return newError(fasthttp.StatusBadGateway, codeUpstreamAuth, "", "a backend refused the proxy's credentials").noRetry()
}

// askedToWait returns how long a busy backend wants to be left alone. After a 503 the router passes
// the backend over for that time. A 429 is only about this client, so others may still use the
// backend.
func askedToWait(b *router.Backend, e *apiError) time.Duration {
	asked := time.Duration(e.RetryAfter) * time.Second
	if asked > 0 && e.Status == fasthttp.StatusServiceUnavailable {
		b.Defer(asked)
	}
	e.RetryAfter = max(e.RetryAfter, 1)
	return asked
}
