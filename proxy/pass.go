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
			f := fault{leg: legPassed, at: atPool, cause: causeNoneUp}
			return f.tell(classify(f).code)
		}
		b := lease.Backend
		failed := s.passTo(ctx, b, req, p)
		if failed == nil {
			lease.Release(router.ClientGone) // says nothing about whether completions work
			return nil
		}
		lease.Release(failed.outcome)
		if failed.retry == retryNever {
			return failed.told
		}
		tried = append(tried, b)
	}
}

// passTimeout bounds a request that needs no GPU.
const passTimeout = 30 * time.Second

// passTo has b answer.
func (s *Server) passTo(ctx *fasthttp.RequestCtx, b *router.Backend, req *upstream.Request, p *passing) *failure {
	x := &upstream.Exchange{}
	defer func() {
		if x != nil {
			x.Finish()
		}
	}()
	var buf []byte
	err := x.Do(s.engines.client(b), req, time.Now().Add(passTimeout), true)
	if upstream.IsDial(err) {
		return s.passBroke(b, atDial, err)
	}
	if err == nil {
		buf, err = s.readHeld(x, nil, p.client, &p.held)
	}
	status := x.Head.Status
	switch {
	case errors.Is(err, upstream.ErrTooLarge) && (x.UntilClose() || x.Head.Length < 0 && !ctx.Request.Header.IsHTTP11()):
		return s.passFailed(b, fault{leg: legPassed, at: atLimit, status: status, cause: tooLarge(err)}, tooLargeToHold(err))
	case errors.Is(err, upstream.ErrTooLarge):
		p.answerLarge(ctx, s, x, buf)
		x = nil // the answer's writer ends it
		return nil
	case err != nil:
		return s.passBroke(b, atBody, err)
	case status >= 300:
		f := s.refused(legPassed, status)
		told, _ := s.tellRefusal(f, req.ID, b, x, buf)
		return s.passFailed(b, f, told)
	}
	ctx.SetStatusCode(status)
	ctx.Response.Header.SetContentTypeBytes(x.Head.ContentType)
	p.answer(ctx, s, buf)
	return nil
}

func (s *Server) passBroke(b *router.Backend, at progress, err error) *failure {
	f := fault{leg: legPassed, at: at, cause: causeBroke}
	if at == atDial && upstream.IsLocal(err) {
		f.cause = causeDescriptors
	}
	return s.passFailed(b, f, f.tell(classify(f).code))
}

func (s *Server) passFailed(b *router.Backend, f fault, told *apiError) *failure {
	v := classify(f)
	if v.probe {
		s.probes.suspect(b)
	}
	return &failure{verdict: v, told: told}
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
