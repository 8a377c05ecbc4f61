package proxy

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/valyala/fasthttp"
	"xpyd/kvparams"
	"xpyd/router"
	"xpyd/upstream"
)

// passOn relays a request that touches no KV blocks to one decode backend: tokenize,
// detokenize, version.
func (s *Server) passOn(ctx *fasthttp.RequestCtx, path string) {
	p := s.beginPassing(ctx)
	defer p.end(s)
	_, query := cutQuery(ctx.Request.Header.RequestURI())
	req := &upstream.Request{Method: "GET", Path: path + string(query), Fields: s.appendFields(nil, &ctx.Request.Header)}
	req.ID = requestID(ctx.Request.Header.Peek("X-Request-Id"))
	var parsed kvparams.Request
	if ctx.IsPost() {
		if err := s.readBody(ctx, p.conn, p.client, &p.stop, &p.body); err != nil {
			s.refuse(ctx, err)
			return
		}
		req.Method, req.Body = "POST", [][]byte{p.body.b}
		if s.router.Snapshot().Mixed(router.Decode) && parsed.Parse(kvparams.Completions, p.body.b) != nil {
			parsed.Reset() // for an engine to refuse
		}
	}
	if err := s.passToPool(ctx, req, p, parsed.Model()); err != nil {
		s.metrics.Error(err.Code)
		s.writeError(ctx, p.client, err)
	}
	ctx.Response.Header.Set("X-Request-Id", req.ID)
	if !ctx.IsPost() {
		closeUnread(ctx) // a GET may carry a body that nobody read
	}
}

// passToPool tries the decode backends of the model until one takes the request.
func (s *Server) passToPool(ctx *fasthttp.RequestCtx, req *upstream.Request, p *passing, model []byte) *apiError {
	var tried []*router.Backend
	for {
		var lease router.Lease
		want := router.Want{Role: router.Decode, Skip: tried, Model: model, Alone: true}
		if s.router.Snapshot().AcquireFor(want, &lease) != nil {
			return newError(fasthttp.StatusServiceUnavailable, codeDecodeUnavailable, "", "no decode backend accepts connections").retryAfter(1)
		}
		b := lease.Backend
		outcome, err := s.passTo(ctx, b, req, p)
		if outcome == router.OK {
			lease.Release(router.ClientGone) // says nothing about whether completions work
		} else {
			lease.Release(outcome)
		}
		if outcome != router.Refused {
			return err
		}
		s.probes.suspect(b)
		tried = append(tried, b)
	}
}

// passTimeout bounds a request that needs no GPU.
const passTimeout = 30 * time.Second

func (s *Server) passTo(ctx *fasthttp.RequestCtx, b *router.Backend, req *upstream.Request, p *passing) (router.Outcome, *apiError) {
	x := &upstream.Exchange{}
	defer func() {
		if x != nil {
			x.Finish()
		}
	}()
	var buf []byte
	err := x.Do(s.engines.client(b), req, time.Now().Add(passTimeout), true)
	if upstream.IsDial(err) && upstream.IsLocal(err) {
		return router.ClientGone, outOfDescriptors()
	}
	if upstream.IsDial(err) {
		return router.Refused, nil
	}
	if err == nil {
		buf, err = s.readHeld(x, nil, p.client, &p.held)
	}
	status := x.Head.Status
	switch {
	case errors.Is(err, upstream.ErrTooLarge) && (x.UntilClose() || x.Head.Length < 0 && !ctx.Request.Header.IsHTTP11()):
		return router.ClientFault, tooLargeToHold(err)
	case errors.Is(err, upstream.ErrTooLarge):
		p.answerLarge(ctx, s, x, buf)
		x = nil // the answer's writer ends it
		return router.OK, nil
	case err != nil:
		return router.Gateway, newError(fasthttp.StatusBadGateway, codeDecodeFailed, "", "decode backend did not answer")
	case s.authFailed(status):
		return router.Gateway, s.upstreamAuth(req.ID, b)
	case status >= 500:
		return router.Engine, s.relayed(x, buf, status, codeDecodeFailed, "decode backend failed")
	case status >= 400:
		return router.ClientFault, s.relayed(x, buf, status, codeUpstreamRejected, "decode backend refused the request")
	case status >= 300:
		return router.Gateway, newError(fasthttp.StatusBadGateway, codeDecodeFailed, "", "decode backend answered with an unexpected status")
	}
	ctx.SetStatusCode(status)
	ctx.Response.Header.SetContentTypeBytes(x.Head.ContentType)
	p.answer(ctx, s, buf)
	return router.OK, nil
}

// modelList is vLLM's /v1/models. Entries stay as the engine wrote them.
type modelList struct {
	Object string            `json:"object"`
	Data   []json.RawMessage `json:"data"`

	at time.Time // when the engine said so; zero in an answer of ours
}

func (l *modelList) ids() (ids []string) {
	for _, m := range l.Data {
		if id := modelID(m); id != "" {
			ids = append(ids, id)
		}
	}
	return ids
}

func modelID(raw json.RawMessage) string {
	var m struct {
		ID string `json:"id"`
	}
	_ = json.Unmarshal(raw, &m)
	return m.ID
}

// intersect keeps a's entries whose id stands in b too.
func intersect(a, b []json.RawMessage) []json.RawMessage {
	ids := map[string]bool{}
	for _, m := range b {
		ids[modelID(m)] = true
	}
	both := []json.RawMessage{}
	for _, m := range a {
		if ids[modelID(m)] {
			both = append(both, m)
		}
	}
	return both
}

// addModels adds to the list of one backend what others of the pool serve beside that.
func (s *Server) addModels(role router.Role, list []json.RawMessage) []json.RawMessage {
	snap := s.router.Snapshot()
	if !snap.Mixed(role) {
		return list
	}
	listed := map[string]bool{}
	for _, m := range list {
		listed[modelID(m)] = true
	}
	for _, b := range snap.Backends(role) {
		e := s.engines.get(b)
		if e == nil || e.models.Load() == nil || b.State() == router.Down {
			continue
		}
		for _, m := range e.models.Load().Data {
			if id := modelID(m); !listed[id] {
				listed[id] = true
				list = append(list, m)
			}
		}
	}
	return list
}
