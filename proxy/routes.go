package proxy

import (
	"github.com/valyala/fasthttp"

	"xpyd/intake/gate"
	"xpyd/intake/heads"
	"xpyd/intake/limits"
	"xpyd/intake/routes"
	"xpyd/kvparams"
	"xpyd/proxy/fault"
)

// handle is the entry point of every request that was read as HTTP.
func (s *Server) handle(ctx *fasthttp.RequestCtx) {
	defer s.cors.Mark(ctx)
	defer func() {
		if p := recover(); p != nil {
			s.panicked(p)
			fault.ErrInternal().Write(ctx)
			ctx.SetConnectionClose()
		}
	}()
	route, account, err := s.admitHead(ctx)
	if err != nil {
		s.refuse(ctx, err)
		return
	}
	s.serve(ctx, route, account)
	if heads.ConnectionLists(&ctx.Request.Header, "close") {
		ctx.SetConnectionClose()
	}
	if s.retiring.Load() || s.draining.Load() {
		ctx.SetConnectionClose() // the client's next request goes to another process
	}
}

// serve handles a request to a route that its head may use.
func (s *Server) serve(ctx *fasthttp.RequestCtx, r routes.Route, of *limits.Account) {
	if ctx.IsOptions() {
		s.cors.Options(ctx, r.Methods())
		closeUnread(ctx)
		return
	}
	switch r.Kind {
	case routes.Chat:
		s.complete(ctx, kvparams.Chat, of)
	case routes.Completions:
		s.complete(ctx, kvparams.Completions, of)
	case routes.Messages:
		s.complete(ctx, kvparams.Messages, of)
	case routes.Responses:
		s.complete(ctx, kvparams.Responses, of)
	case routes.Generate:
		s.complete(ctx, kvparams.Generate, of)
	case routes.Models:
		s.serveModels(ctx, of)
	case routes.Live:
		text(ctx, fasthttp.StatusOK, "ok\n")
	case routes.Ready:
		s.serveReady(ctx)
	default:
		s.passOn(ctx, r, of)
	}
}

// admitHead checks a parsed head before any work is done for it. The checks are the strict gate,
// the route table, the key and the headers about the body. The account is that of the key.
func (s *Server) admitHead(ctx *fasthttp.RequestCtx) (r routes.Route, of *limits.Account, err *fault.Error) {
	h := &ctx.Request.Header
	path, _ := heads.CutQuery(h.RequestURI())
	r, ok := s.routes.Find(path)
	if err = fault.OfGate(gate.CheckRequest(h)); err != nil {
		if err.Code == fault.CodeMethod {
			err.Header = [][2]string{{"Allow", s.routes.Methods(path)}}
		}
		return routes.Route{}, nil, err
	}
	if !ok && h.IsOptions() && string(path) == "*" {
		return routes.Route{Kind: routes.Whole}, nil, nil
	}
	if !ok {
		return r, nil, fault.NewError(fasthttp.StatusNotFound, fault.CodeUnknownRoute, "", "no such route; xpyd serves "+s.routes.List())
	}
	if h.IsOptions() { // browsers ask without a key
		return r, nil, nil
	}
	post := r.Body != routes.None
	if post != h.IsPost() || !post && !h.IsGet() && !h.IsHead() {
		err = fault.NewError(fasthttp.StatusMethodNotAllowed, fault.CodeMethod, "", "method not allowed on this route")
		err.Header = [][2]string{{"Allow", r.Methods()}}
		return r, nil, err
	}
	if r.APIKey {
		heads.TakeAPIKey(h)
	}
	if !r.Open {
		if of, ok = s.keys.Holder(h.Peek("Authorization")); !ok {
			err = fault.NewError(fasthttp.StatusUnauthorized, fault.CodeInvalidAPIKey, "", "missing or wrong API key; send "+map[bool]string{true: "X-Api-Key: KEY or "}[r.APIKey]+"Authorization: Bearer KEY")
			err.Header = [][2]string{{"WWW-Authenticate", "Bearer"}}
			return r, nil, err
		}
	}
	if post {
		if err = fault.OfGate(gate.CheckBodyHeaders(h, media(r.Body), s.bound().Limits.RequireContentLength)); err != nil {
			return r, of, err
		}
		if int64(h.ContentLength()) > s.bound().Limits.Body {
			return r, of, fault.ErrBodyTooLarge(s.bound().Limits.Body)
		}
	}
	return r, of, nil
}

func media(b routes.Body) gate.Media {
	switch b {
	case routes.Form:
		return gate.Form
	case routes.Either:
		return gate.JSON | gate.Form
	}
	return gate.JSON
}

// readiness returns what /readyz answers. ready is whether a completion could be served now. line
// says why not, or what is wrong although it could.
func (s *Server) readiness() (ready bool, line string) {
	if s.draining.Load() {
		return false, "not ready: this process is about to end\n"
	}
	return s.engines.Readiness()
}

func (s *Server) serveReady(ctx *fasthttp.RequestCtx) {
	ready, line := s.readiness()
	if ready {
		text(ctx, fasthttp.StatusOK, line)
		return
	}
	ctx.Response.Header.Set("Retry-After", "1")
	text(ctx, fasthttp.StatusServiceUnavailable, line)
}

func text(ctx *fasthttp.RequestCtx, status int, body string) {
	ctx.SetStatusCode(status)
	ctx.SetContentType("text/plain; charset=utf-8")
	ctx.SetBodyString(body)
	closeUnread(ctx)
}

// closeUnread closes the connection after the answer if the request has an unread body, because
// fasthttp would take that for the next request.
func closeUnread(ctx *fasthttp.RequestCtx) {
	if ctx.Request.IsBodyStream() {
		ctx.SetConnectionClose()
		leaveUnread(ctx)
	}
}
