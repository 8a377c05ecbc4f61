package proxy

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"xpyd/netio"
	"xpyd/router"
)

const (
	modelsFor      = 5 * time.Second // how long an answer of /v1/models is kept
	modelsErrorFor = time.Second     // and an error
	modelsWithin   = 3 * time.Second // all asking for one answer
	modelsAtOnce   = 3               // backends asked at a time for one answer

	// Of answers that only one key gets no more are kept, and none larger.
	maxModelKeys   = 256
	maxModelAnswer = 64 << 10
)

// modelKey is the hash of the Authorization that the backends are shown; zero where all
// clients get the same answer.
type modelKey [sha256.Size]byte

// modelCache holds answers of /v1/models: those that were given a short while ago, and those
// that callers wait for.
type modelCache struct {
	within time.Duration

	mu sync.Mutex
	by map[modelKey]*modelAnswer
}

// modelAnswer is asked for once by all who come at a time.
type modelAnswer struct {
	done   chan struct{} // closed when body or err stands
	cancel context.CancelFunc
	body   []byte
	err    *apiError
	// Guarded by the cache's mu.
	until   time.Time // zero: not there yet
	waiting int       // callers; without any the asking ends
}

// serveModels answers with the models that both pools serve.
func (s *Server) serveModels(ctx *fasthttp.RequestCtx) {
	auth := string(ctx.Request.Header.Peek("Authorization"))
	switch {
	case len(s.backendAuth) > 0:
		auth = string(s.backendAuth)
	case s.keys.required():
		auth = ""
	}
	var key modelKey
	if len(s.backendAuth) == 0 && auth != "" {
		if s.modelsForAll() {
			auth = "" // what one key gets must not become everybody's
		} else {
			key = sha256.Sum256([]byte(auth))
		}
	}
	a := s.models.answer(s.probes.ctx, key, func(c context.Context) (body []byte, err *apiError) {
		err = internalError()
		s.guard(func() { body, err = s.askModels(c, auth) })
		return body, err
	})
	err := s.awaitModels(ctx.Conn().(*netio.Conn), key, a)
	if err == nil {
		err = a.err
	}
	if err != nil {
		s.metrics.Error(err.Code)
		err.write(ctx)
		if err.Code == codeClientGone {
			ctx.SetConnectionClose()
		}
	} else {
		ctx.SetContentType("application/json")
		ctx.Response.SetBodyRaw(a.body)
	}
	closeUnread(ctx)
}

// answer returns the answer for the key, which may not stand yet. The caller must call left once.
func (m *modelCache) answer(parent context.Context, key modelKey, ask func(context.Context) ([]byte, *apiError)) *modelAnswer {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if a := m.by[key]; a != nil && (a.until.IsZero() || now.Before(a.until)) {
		a.waiting++
		return a
	}
	ctx, cancel := context.WithTimeout(parent, m.within)
	a := &modelAnswer{done: make(chan struct{}), cancel: cancel, waiting: 1}
	if m.room(now) {
		m.by[key] = a
	}
	go func() {
		body, err := ask(ctx)
		m.deliver(key, a, body, err)
	}()
	return a
}

// room makes the place of one more answer, unless all are waited for. m.mu is held.
func (m *modelCache) room(now time.Time) bool {
	if m.by == nil {
		m.by = map[modelKey]*modelAnswer{}
	}
	for key, a := range m.by {
		if len(m.by) < maxModelKeys {
			break
		}
		if !a.until.IsZero() {
			delete(m.by, key)
		}
	}
	return len(m.by) < maxModelKeys
}

// deliver lets the callers have the answer.
func (m *modelCache) deliver(key modelKey, a *modelAnswer, body []byte, err *apiError) {
	a.cancel()
	m.mu.Lock()
	defer m.mu.Unlock()
	a.body, a.err, a.until = body, err, time.Now().Add(modelsFor)
	if err != nil {
		a.until = time.Now().Add(modelsErrorFor)
	}
	if key != (modelKey{}) && len(body) > maxModelAnswer && m.by[key] == a {
		delete(m.by, key)
	}
	close(a.done)
}

// left ends one caller's interest.
func (m *modelCache) left(key modelKey, a *modelAnswer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if a.waiting--; a.waiting > 0 || !a.until.IsZero() {
		return
	}
	a.cancel()
	if m.by[key] == a {
		delete(m.by, key) // whoever comes next asks anew
	}
}

// modelWait is a client that waits for an answer.
type modelWait struct {
	watch netio.Watch
	once  sync.Once
	over  chan struct{} // closed when it is not to wait any more
	stop  atomic.Bool   // because the process ends
}

func (w *modelWait) ClientGone() { w.once.Do(func() { close(w.over) }) }

func (w *modelWait) ServerStopping() {
	w.stop.Store(true)
	w.ClientGone()
}

// awaitModels waits until the answer stands, its client has left or the process ends.
func (s *Server) awaitModels(conn *netio.Conn, key modelKey, a *modelAnswer) *apiError {
	defer s.models.left(key, a)
	select {
	case <-a.done:
		return nil
	default:
	}
	w := modelWait{over: make(chan struct{})}
	s.watch.Add(&w.watch, conn, &w)
	defer s.watch.Remove(&w.watch)
	select {
	case <-a.done:
		return nil
	case <-w.over:
	}
	if w.stop.Load() {
		return shuttingDown()
	}
	return errGone()
}

// askModels makes the answer. auth is shown where the checks know of no list.
func (s *Server) askModels(ctx context.Context, auth string) ([]byte, *apiError) {
	decode, err := s.poolModels(ctx, router.Decode, auth)
	if err != nil {
		return nil, err
	}
	if len(s.router.Snapshot().Backends(router.Prefill)) > 0 {
		prefill, err := s.poolModels(ctx, router.Prefill, auth)
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

// modelsForAll: no pool needs a client's key to know its models.
func (s *Server) modelsForAll() bool {
	snap := s.router.Snapshot()
	for _, role := range []router.Role{router.Prefill, router.Decode} {
		if list, up := s.knownModels(snap, role); list == nil && len(up) > 0 {
			return false
		}
	}
	return true
}

// knownModels is the list that the checks read from a backend of the pool that is not down,
// nil where there is none, and all backends that are not.
func (s *Server) knownModels(snap *router.Snapshot, role router.Role) (list *modelList, up []*router.Backend) {
	for _, b := range snap.Backends(role) {
		if b.State() == router.Down {
			continue
		}
		up = append(up, b)
		if e := s.engines.get(b); e != nil && list == nil {
			list = e.models.Load()
		}
	}
	return list, up
}

// poolModels is what the checks know of the pool, else the list of the first of its backends
// that answers; and what others are known to serve beside that.
func (s *Server) poolModels(ctx context.Context, role router.Role, auth string) ([]json.RawMessage, *apiError) {
	known, up := s.knownModels(s.router.Snapshot(), role)
	if known != nil {
		return s.addModels(role, known.Data), nil
	}
	list, refused := s.firstList(ctx, up, auth)
	switch {
	case list != nil:
		return s.addModels(role, list.Data), nil
	case refused && len(s.backendAuth) == 0:
		e := newError(http.StatusUnauthorized, codeInvalidAPIKey, "", "the backends ask for another API key")
		e.Header = [][2]string{{"WWW-Authenticate", "Bearer"}}
		return nil, e
	}
	failure := newError(fasthttp.StatusServiceUnavailable, codeDecodeUnavailable, "", "no "+role.String()+" backend answers /v1/models").retryAfter(1)
	if role == router.Prefill {
		failure.Code = codePrefillUnavailable
	}
	return nil, failure
}

// firstList asks some backends at a time, from anywhere in the pool, until one has given its
// list or refused the key.
func (s *Server) firstList(ctx context.Context, backends []*router.Backend, auth string) (list *modelList, refused bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		list    *modelList
		refused bool
	}
	answers := make(chan answer, modelsAtOnce) // so that nobody waits who is not listened to any more
	first := 0
	if len(backends) > 0 {
		first = rand.IntN(len(backends))
	}
	for asked, open := 0, 0; open > 0 || asked < len(backends) && ctx.Err() == nil; {
		if asked < len(backends) && open < modelsAtOnce && ctx.Err() == nil {
			b := backends[(first+asked)%len(backends)]
			asked, open = asked+1, open+1
			go func() {
				var a answer
				defer func() { answers <- a }()
				s.guard(func() { a.list, a.refused = s.listOf(ctx, b, auth) })
			}()
			continue
		}
		a := <-answers
		if open--; a.list != nil || a.refused {
			return a.list, a.refused
		}
	}
	return nil, false
}

// listOf asks one backend.
func (s *Server) listOf(ctx context.Context, b *router.Backend, auth string) (list *modelList, refused bool) {
	status, body, err := s.probes.getWithin(ctx, b, "/v1/models", auth)
	if err != nil || status != http.StatusOK {
		return nil, err == nil && status == http.StatusUnauthorized && len(s.backendAuth) == 0
	}
	list = &modelList{}
	if json.Unmarshal(body, list) != nil {
		return nil, false
	}
	return list, false
}
