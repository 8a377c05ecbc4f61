package proxy

import (
	"bytes"
	"time"

	"github.com/valyala/fasthttp"

	"xpyd/netio/upstream"
	"xpyd/proxy/fault"
	"xpyd/router"
)

// refused returns the fault of an answer whose status is not 200.
func (s *Server) refused(l fault.Leg, status int) fault.Fault {
	f := fault.Fault{Leg: l, At: fault.AtAnswer, Status: status, Cause: fault.Status}
	if s.engines.AuthFailed(status) {
		f.Cause = fault.Auth
	}
	return f
}

// tellRefusal returns the client's error for an answer with which backend b refused the request.
// The answer is in x, and body is its body. The client gets b's own error if it may see that. asked
// is how long the backend wants to be left alone.
func (s *Server) tellRefusal(f fault.Fault, id string, b *router.Backend, x *upstream.Exchange, body []byte) (told *fault.Error, asked time.Duration) {
	if f.Status == fasthttp.StatusNotFound {
		s.engines.ModelMissed() // the next request for an adapter that was loaded or unloaded finds it
	}
	c := fault.Classify(f).Code
	switch {
	case f.Cause == fault.Auth:
		return s.upstreamAuth(id, b), 0
	case f.Status < 400:
		return f.Tell(c), 0
	}
	told = f.Refusal(c, x.Head.Wait())
	s.quote(told, x, body)
	if f.Leg != fault.Passed && (f.Status == fasthttp.StatusTooManyRequests || f.Status == fasthttp.StatusServiceUnavailable) {
		asked = askedToWait(b, told)
	}
	return told, asked
}

// quote puts a backend's own error into e, whose status it has. A 4xx goes on as it is. A 5xx has
// xpyd's text unless errors.expose_upstream is set, because the engine's may hold addresses or prompts.
func (s *Server) quote(e *fault.Error, x *upstream.Exchange, body []byte) {
	switch {
	case x.TooLarge:
		e.Message += "; its own answer is larger than limits.answer"
	case len(x.Head.Coding) > 0, cutShort(x, body): // nobody could read it
	case e.Status < 500 || s.cfg.Errors.ExposeUpstream:
		e.Raw = bytes.Clone(body)
		e.ContentType = string(x.Head.ContentType)
	}
}

func (s *Server) upstreamAuth(id string, b *router.Backend) *fault.Error {
	s.log.Error().Str("request_id", id).Str("role", b.Role.String()).Str("backend", b.URL).
		Msg("the backend refuses xpyd's key; check backend_api_key or backend_api_key_file")
	return fault.ErrAuth()
}

// askedToWait returns how long a busy backend wants to be left alone. After a 503 the router passes
// the backend over for that time. A 429 is only about this client, so others may still use the
// backend.
func askedToWait(b *router.Backend, e *fault.Error) time.Duration {
	asked := time.Duration(e.RetryAfter) * time.Second
	if asked > 0 && e.Status == fasthttp.StatusServiceUnavailable {
		b.Defer(asked)
	}
	e.RetryAfter = max(e.RetryAfter, 1)
	return asked
}
