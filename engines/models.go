package engines

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"xpyd/router"
)

const (
	modelsFor      = 5 * time.Second // how long an answer of /v1/models is kept
	modelsErrorFor = time.Second     // how long an error is kept
	modelsWithin   = 3 * time.Second // for all requests that make up one answer
	modelsAtOnce   = 3               // backends asked at the same time for one answer

	// MaxModelKeys bounds how many answers a Models keeps or makes at a time. It does not keep an
	// answer for a single key that is larger than maxModelAnswer bytes.
	MaxModelKeys   = 256
	maxModelAnswer = 64 << 10
)

// These errors say why there is no list of models.
var (
	ErrKeyRefused   = errors.New("the engines refuse the API key")
	ErrUnusableList = errors.New("a backend's model list cannot be used")
	ErrNoList       = errors.New("no decode backend answers /v1/models")
	errListPanic    = errors.New("panic")
)

// modelKey is the hash of the Authorization that the backends are shown. It is zero if all clients
// get the same answer.
type modelKey [sha256.Size]byte

// Models holds answers of /v1/models, both recent ones and those for which callers still wait.
type Models struct {
	set *Set

	mu     sync.Mutex
	within time.Duration
	by     map[modelKey]*ModelsAnswer
}

// ModelsAnswer is one answer. All callers that ask while Models makes or keeps it share it.
type ModelsAnswer struct {
	models *Models
	key    modelKey
	done   chan struct{} // closed once body or err is set
	cancel context.CancelFunc
	body   []byte
	err    error
	// Guarded by the mu of models.
	until   time.Time // end of its time; zero while it is still being made
	waiting int       // callers; without any the requests end
}

// Done returns a channel that closes when the answer is ready.
func (a *ModelsAnswer) Done() <-chan struct{} { return a.done }

// Result returns the answer. Call it only after Done has closed.
func (a *ModelsAnswer) Result() ([]byte, error) { return a.body, a.err }

// SetWithin bounds the total time of all requests for one answer.
func (m *Models) SetWithin(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.within = d
}

// Waiting counts the callers that wait for an answer or hold one.
func (m *Models) Waiting() (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range m.by {
		n += a.waiting
	}
	return n
}

// Kept counts the answers that Models keeps or still makes.
func (m *Models) Kept() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.by)
}

// Ask returns the answer for a client that shows auth. The answer lists the models that decode
// engines serve. It may not be ready when Ask returns. The caller must call Left once.
func (m *Models) Ask(auth string) *ModelsAnswer {
	s := m.set
	var key modelKey
	switch {
	case s.cfg.Auth != "":
		auth = s.cfg.Auth
	case s.cfg.Keyed || auth == "" || s.modelsForAll():
		auth = "" // what one key gets must not become everybody's
	case auth != "":
		key = sha256.Sum256([]byte(auth))
	}
	return m.answer(s.checks.ctx, key, func(ctx context.Context) (body []byte, err error) {
		err = errListPanic
		s.cfg.Guard(func() { body, err = s.askModels(ctx, auth) })
		return body, err
	})
}

func (m *Models) answer(parent context.Context, key modelKey, ask func(context.Context) ([]byte, error)) *ModelsAnswer {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if a := m.by[key]; a != nil && (a.until.IsZero() || now.Before(a.until)) {
		a.waiting++
		return a
	}
	ctx, cancel := context.WithTimeout(parent, m.within)
	a := &ModelsAnswer{models: m, key: key, done: make(chan struct{}), cancel: cancel, waiting: 1}
	if m.room(now) {
		m.by[key] = a
	}
	go func() {
		body, err := ask(ctx)
		a.deliver(body, err)
	}()
	return a
}

// room makes room for one more answer, and fails if callers wait for all of them. m.mu is held.
func (m *Models) room(now time.Time) bool {
	if m.by == nil {
		m.by = map[modelKey]*ModelsAnswer{}
	}
	for key, a := range m.by {
		if len(m.by) < MaxModelKeys {
			break
		}
		if !a.until.IsZero() {
			delete(m.by, key)
		}
	}
	return len(m.by) < MaxModelKeys
}

// deliver gives the callers the answer.
func (a *ModelsAnswer) deliver(body []byte, err error) {
	a.cancel()
	m := a.models
	m.mu.Lock()
	defer m.mu.Unlock()
	a.body, a.err, a.until = body, err, time.Now().Add(modelsFor)
	if err != nil {
		a.until = time.Now().Add(modelsErrorFor)
	}
	if a.key != (modelKey{}) && len(body) > maxModelAnswer && m.by[a.key] == a {
		delete(m.by, a.key)
	}
	close(a.done)
}

// Left says that one caller no longer needs the answer.
func (a *ModelsAnswer) Left() {
	m := a.models
	m.mu.Lock()
	defer m.mu.Unlock()
	if a.waiting--; a.waiting > 0 || !a.until.IsZero() {
		return
	}
	a.cancel()
	if m.by[a.key] == a {
		delete(m.by, a.key) // the next caller asks again
	}
}

// askModels makes the answer: what decode engines list, because the others serve nothing alone. auth is shown to them if
// the checks know of no list.
func (s *Set) askModels(ctx context.Context, auth string) ([]byte, error) {
	list, err := s.decodeModels(ctx, auth)
	if err != nil {
		return nil, err
	}
	body, jsonErr := json.Marshal(modelList{Object: "list", Data: list})
	if jsonErr != nil {
		return nil, ErrUnusableList
	}
	return body, nil
}

// modelsForAll reports that the decode pool needs no client's key for its list of models.
func (s *Set) modelsForAll() bool {
	list, up := s.knownModels(s.cfg.Router.Snapshot())
	return list != nil || len(up) == 0
}

// knownModels returns the decode backends that are not down, and the list that the checks read from one of them. list is
// nil if they read none.
func (s *Set) knownModels(snap *router.Snapshot) (list *modelList, up []*router.Backend) {
	for _, b := range snap.Backends(router.Decode) {
		if b.State() == router.Down {
			continue
		}
		up = append(up, b)
		if e := s.get(b); e != nil && list == nil {
			list = e.models.Load()
		}
	}
	return list, up
}

// decodeModels returns what the checks know of the decode pool. If they know nothing, it returns the list of the first of
// its backends that answers. Either way it adds what other backends are known to serve.
func (s *Set) decodeModels(ctx context.Context, auth string) ([]json.RawMessage, error) {
	known, up := s.knownModels(s.cfg.Router.Snapshot())
	if known != nil {
		return s.addModels(known.Data), nil
	}
	list, refused := s.firstList(ctx, up, auth)
	switch {
	case list != nil:
		return s.addModels(list.Data), nil
	case refused && s.cfg.Auth == "":
		return nil, ErrKeyRefused
	}
	return nil, ErrNoList
}

// firstList asks a few backends at a time, from a random place in the pool on, until one has given
// its list or refused the key.
func (s *Set) firstList(ctx context.Context, backends []*router.Backend, auth string) (list *modelList, refused bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		list    *modelList
		refused bool
	}
	answers := make(chan answer, modelsAtOnce) // nothing blocks after the caller has left
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
				s.cfg.Guard(func() { a.list, a.refused = s.listOf(ctx, b, auth) })
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
func (s *Set) listOf(ctx context.Context, b *router.Backend, auth string) (list *modelList, refused bool) {
	status, body, err := s.checks.getWithin(ctx, b, "/v1/models", auth)
	if err != nil || status != http.StatusOK {
		return nil, err == nil && status == http.StatusUnauthorized && s.cfg.Auth == ""
	}
	list = &modelList{}
	if json.Unmarshal(body, list) != nil {
		return nil, false
	}
	return list, false
}
