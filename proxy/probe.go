package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"golang.org/x/sys/unix"

	"xpyd/router"
	"xpyd/upstream"
)

// prober keeps each backend's state and version, outside the hot path.
type prober struct {
	s      *Server
	client *retryablehttp.Client
	cancel context.CancelFunc
	ctx    context.Context
	wg     sync.WaitGroup
}

// probeBody bounds the answer to a check.
const probeBody = 1 << 20

func newProber(s *Server) *prober {
	client := retryablehttp.NewClient()
	client.HTTPClient = &http.Client{
		// Each check dials, as the next request may have to: a kept connection would tell
		// of an address that the name no longer stands for.
		Transport:     &http.Transport{DialContext: s.dialBackend, DisableKeepAlives: true, DisableCompression: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	client.Logger = nil
	client.RetryMax, client.RetryWaitMin, client.RetryWaitMax = 1, 20*time.Millisecond, 100*time.Millisecond
	// Not the default, which sleeps for whatever Retry-After a backend names.
	client.Backoff = func(low, high time.Duration, attempt int, _ *http.Response) time.Duration {
		return retryablehttp.DefaultBackoff(low, high, attempt, nil)
	}
	client.ErrorHandler = retryablehttp.PassthroughErrorHandler
	p := &prober{s: s, client: client}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

func (p *prober) close() {
	p.cancel()
	p.wg.Wait()
}

// start probes a backend until the server closes, or the backend has left and serves
// nothing more.
func (p *prober) start(b *router.Backend, e *engine) {
	p.wg.Go(func() { p.watch(b, e) })
}

func (p *prober) watch(b *router.Backend, e *engine) {
	for first := true; ; first = false {
		if e.removed.Load() && !b.InUse() {
			p.s.dropEngine(b, e)
			return
		}
		p.s.guard(func() { p.probe(b) })
		e.Expire(time.Now())
		h := p.s.router.Snapshot().Health()
		wait := h.Interval
		if b.Suspect() || e.removed.Load() {
			wait = h.SuspectInterval
		} else if first && wait > 0 {
			wait = rand.N(wait) // backends that joined together are not checked together for ever
		}
		select {
		case <-p.ctx.Done():
			return
		case <-e.wake:
		case <-time.After(wait):
		}
	}
}

// suspect has a backend probed at once: a leg on it has just failed, or it leaves.
func (p *prober) suspect(b *router.Backend) {
	e := p.s.engines.get(b)
	if e == nil {
		return
	}
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

func (p *prober) probe(b *router.Backend) {
	auth := string(p.s.backendAuth)
	status, _, err := p.get(b, "/health", auth)
	ok := err == nil && status == http.StatusOK
	why := "status " + strconv.Itoa(status)
	if err != nil {
		why = err.Error()
	}
	switch {
	case ok && b.State() != router.Up:
		// Up means that it serves completions, not only that something listens.
		ok = p.servesModels(b, auth)
	case ok:
		p.listModels(b, auth)
	}
	if p.ctx.Err() != nil || upstream.IsLocal(err) {
		return
	}
	if ok && (b.State() != router.Up || b.Version() == "") {
		p.learnVersion(b, auth)
	}
	seen := b.State() != router.Unknown
	b.SetHung(err != nil && !brokenOff(err))
	if e := p.s.engines.get(b); ok && e != nil {
		e.vitality.lives()
	}
	if b.Observe(ok) {
		p.tell(b, why, seen)
	}
}

// brokenOff: an engine that is gone refuses or resets connections; one that stands still
// does not.
func brokenOff(err error) bool {
	return errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// tell reports another state of a backend. seen: it had one before.
func (p *prober) tell(b *router.Backend, why string, seen bool) {
	e := p.s.log.Info()
	if b.State() == router.Down {
		e = p.s.log.Warn().Str("error", why)
	}
	if b.State() == router.Up {
		p.s.warm.cold(b, seen)
	}
	e.Str("role", b.Role.String()).Str("backend", b.URL).Str("state", b.State().String()).Str("version", b.Version()).Msg("backend state")
	p.s.lookForOutage()
}

// servesModels: a loading engine, or something else on a port that was reused, lists
// no model. Whether it takes the key that a completion shows, the completion tells.
func (p *prober) servesModels(b *router.Backend, auth string) bool {
	status, body, err := p.get(b, "/v1/models", auth)
	if err != nil {
		return false
	}
	e := p.s.engines.get(b)
	if status == http.StatusUnauthorized || status == http.StatusForbidden {
		if e != nil {
			e.models.Store(nil) // what it listed to everybody is for those with a key now
		}
		return true
	}
	var list modelList
	if status != http.StatusOK || json.Unmarshal(body, &list) != nil || len(list.Data) == 0 {
		return false
	}
	list.at = time.Now()
	if e != nil {
		e.models.Store(&list)
	}
	b.SetModels(list.ids())
	p.s.compareModels()
	return true
}

// modelsEvery is how old the list of an engine that is up may be: adapters come and go.
const modelsEvery = 30 * time.Second

// listModels reads the list anew when it is that old; one that cannot be had stays.
func (p *prober) listModels(b *router.Backend, auth string) {
	e := p.s.engines.get(b)
	if e == nil {
		return
	}
	if list := e.models.Load(); list != nil && time.Since(list.at) >= modelsEvery {
		p.servesModels(b, auth)
	}
}

func (p *prober) learnVersion(b *router.Backend, auth string) {
	status, body, err := p.get(b, "/version", auth)
	var v struct {
		Version string `json:"version"`
	}
	if err == nil && status == http.StatusOK && json.Unmarshal(body, &v) == nil && len(v.Version) <= 64 {
		b.SetVersion(v.Version)
	}
}

// get is one bounded GET towards a backend.
func (p *prober) get(b *router.Backend, path, auth string) (status int, body []byte, err error) {
	return p.getWithin(p.ctx, b, path, auth)
}

// getWithin is get, which ctx may end sooner.
func (p *prober) getWithin(ctx context.Context, b *router.Backend, path, auth string) (status int, body []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, p.s.router.Snapshot().Health().Timeout)
	defer cancel()
	req, err := retryablehttp.NewRequestWithContext(ctx, http.MethodGet, b.URL+path, nil)
	if err != nil {
		return 0, nil, fmt.Errorf("build request: %w", err)
	}
	if auth != "" {
		req.Header.Set("Authorization", auth)
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return 0, nil, fmt.Errorf("get %s: %w", path, err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err = io.ReadAll(io.LimitReader(resp.Body, probeBody))
	return resp.StatusCode, body, err
}

// ejected counts and logs what the router decided about a backend.
func (s *Server) ejected(e router.Ejection) {
	if e.For > 0 {
		s.metrics.Ejection(e.Backend.Role.String(), e.Backend.URL, string(e.Reason))
	}
	log, said := &s.log, "backend ejected"
	if e.For == 0 {
		log, said = &s.staysLog, "backend fails, but stays: no more than half of its pool is ejected"
	}
	log.Warn().Str("role", e.Backend.Role.String()).Str("backend", e.Backend.URL).Str("reason", string(e.Reason)).
		Dur("for_ms", e.For).Int("nth", e.Nth).Msg(said)
}
