package proxy

import (
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"xpyd/kvparams"
	"xpyd/router"
)

// passOn relays a request that touches no KV blocks to one decode backend: tokenize,
// detokenize, version.
func (s *Server) passOn(ctx *fasthttp.RequestCtx, path string) {
	var body bodyBuffer
	defer func() { body.free(&s.budget) }()
	req := &upstreamRequest{method: "GET", path: path, fields: s.appendFields(nil, &ctx.Request.Header)}
	req.id = requestID(ctx.Request.Header.Peek("X-Request-Id"))
	var parsed kvparams.Request
	if ctx.IsPost() {
		if err := s.readBody(ctx, ctx.Conn().(*clientConn), &body); err != nil {
			s.refuse(ctx, err)
			return
		}
		req.method, req.body = "POST", [][]byte{body.b}
		if s.router.Snapshot().Mixed(router.Decode) && parsed.Parse(kvparams.Completions, body.b) != nil {
			parsed.Reset() // for an engine to refuse
		}
	}
	if err := s.passToPool(ctx, req, parsed.Model()); err != nil {
		s.metrics.Error(err.Code)
		err.write(ctx)
	}
	ctx.Response.Header.Set("X-Request-Id", req.id)
	if !ctx.IsPost() {
		closeUnread(ctx) // a GET may carry a body that nobody read
	}
}

// passToPool tries the decode backends of the model until one takes the request.
func (s *Server) passToPool(ctx *fasthttp.RequestCtx, req *upstreamRequest, model []byte) *apiError {
	var tried []*router.Backend
	for {
		var lease router.Lease
		want := router.Want{Role: router.Decode, Skip: tried, Model: model, Alone: true}
		if s.router.Snapshot().AcquireFor(want, &lease) != nil {
			return newError(fasthttp.StatusServiceUnavailable, codeDecodeUnavailable, "", "no decode backend accepts connections").retryAfter(1)
		}
		b := lease.Backend
		outcome, err := s.passTo(ctx, b, req)
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

func (s *Server) passTo(ctx *fasthttp.RequestCtx, b *router.Backend, req *upstreamRequest) (router.Outcome, *apiError) {
	var x exchange
	defer x.finish()
	var buf []byte
	err := x.do(s.upstreams.get(b), req, time.Now().Add(passTimeout), true)
	if isDial(err) && isOurs(err) {
		return router.ClientGone, outOfDescriptors()
	}
	if isDial(err) {
		return router.Refused, nil
	}
	if err == nil {
		buf, err = x.readAll(nil, s.cfg.Limits.Answer)
	}
	status := x.head.status
	switch {
	case err != nil:
		return router.Gateway, newError(fasthttp.StatusBadGateway, codeDecodeFailed, "", "decode backend did not answer")
	case s.authFailed(status):
		return router.Gateway, s.upstreamAuth(req.id, b)
	case status >= 500:
		return router.Engine, s.relayed(&x, buf, status, codeDecodeFailed, "decode backend failed")
	case status >= 400:
		return router.ClientFault, s.relayed(&x, buf, status, codeUpstreamRejected, "decode backend refused the request")
	case status >= 300:
		return router.Gateway, newError(fasthttp.StatusBadGateway, codeDecodeFailed, "", "decode backend answered with an unexpected status")
	}
	ctx.SetStatusCode(status)
	ctx.Response.Header.SetContentTypeBytes(x.head.contentType)
	ctx.Response.SetBodyRaw(buf)
	return router.OK, nil
}

// modelCache holds the merged answer of /v1/models for a short while.
type modelCache struct {
	mu    sync.Mutex
	body  []byte
	err   *apiError // remembered too, but not for as long
	until time.Time
}

const (
	modelsFor      = 5 * time.Second
	modelsErrorFor = time.Second
)

// serveModels answers with the models that both pools serve.
func (s *Server) serveModels(ctx *fasthttp.RequestCtx) {
	auth := string(ctx.Request.Header.Peek("Authorization"))
	switch {
	case len(s.backendAuth) > 0:
		auth = string(s.backendAuth)
	case s.keys.required():
		auth = ""
	}
	body, err := s.mergedModels(auth, auth == "" || len(s.backendAuth) > 0)
	if err != nil {
		s.metrics.Error(err.Code)
		err.write(ctx)
	} else {
		ctx.SetContentType("application/json")
		ctx.Response.SetBodyRaw(body)
	}
	closeUnread(ctx)
}

// mergedModels asks both pools, or the cache where every client gets the same answer.
func (s *Server) mergedModels(auth string, shared bool) ([]byte, *apiError) {
	if !shared {
		return s.askModels(auth)
	}
	m := &s.models
	m.mu.Lock()
	body, err, fresh := m.body, m.err, time.Now().Before(m.until)
	m.mu.Unlock()
	if fresh {
		return body, err
	}
	body, err = s.askModels(auth) // not under the lock: a backend may be slow
	m.mu.Lock()
	defer m.mu.Unlock()
	m.body, m.err, m.until = body, err, time.Now().Add(modelsFor)
	if err != nil {
		m.until = time.Now().Add(modelsErrorFor)
	}
	return body, err
}

func (s *Server) askModels(auth string) ([]byte, *apiError) {
	decode, err := s.poolModels(router.Decode, auth)
	if err != nil {
		return nil, err
	}
	if len(s.router.Snapshot().Backends(router.Prefill)) > 0 {
		prefill, err := s.poolModels(router.Prefill, auth)
		switch {
		case err == nil:
			decode = intersect(decode, prefill)
		case !s.cfg.DecodeOnly.Enabled:
			return nil, err
		}
	}
	body, jsonErr := json.Marshal(modelList{Object: "list", Data: decode})
	if jsonErr != nil {
		return nil, newError(fasthttp.StatusBadGateway, codeDecodeFailed, "", "a backend's model list cannot be used")
	}
	return body, nil
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

// poolModels is the list of the first backend of the pool that answers, and what others
// are known to serve beside that.
func (s *Server) poolModels(role router.Role, auth string) ([]json.RawMessage, *apiError) {
	failure := newError(fasthttp.StatusServiceUnavailable, codeDecodeUnavailable, "", "no "+role.String()+" backend answers /v1/models").retryAfter(1)
	if role == router.Prefill {
		failure.Code = codePrefillUnavailable
	}
	for _, b := range s.router.Snapshot().Backends(role) {
		status, body, err := s.probes.get(b, "/v1/models", auth)
		if err != nil {
			continue
		}
		if status == http.StatusUnauthorized && len(s.backendAuth) == 0 {
			e := newError(status, codeInvalidAPIKey, "", "the backends ask for another API key")
			e.Header = [][2]string{{"WWW-Authenticate", "Bearer"}}
			return nil, e
		}
		var list modelList
		if status == http.StatusOK && json.Unmarshal(body, &list) == nil {
			return s.addModels(role, list.Data), nil
		}
	}
	return nil, failure
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
		u := s.upstreams.get(b)
		if u == nil || u.models.Load() == nil || b.State() == router.Down {
			continue
		}
		for _, m := range u.models.Load().Data {
			if id := modelID(m); !listed[id] {
				listed[id] = true
				list = append(list, m)
			}
		}
	}
	return list
}
