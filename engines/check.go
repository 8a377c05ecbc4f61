package engines

import (
	"cmp"
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

	"xpyd/engines/journal"
	"xpyd/kvparams"
	"xpyd/netio/tlsconf"
	"xpyd/netio/upstream"
	"xpyd/router"
)

// checker keeps the state and version of each backend up to date, outside the hot path.
type checker struct {
	s      *Set
	client *retryablehttp.Client
	cancel context.CancelFunc
	ctx    context.Context
	wg     sync.WaitGroup

	rankless sync.Mutex // see tellRankless
}

// probeBody bounds the answer to a check, in bytes.
const probeBody = 1 << 20

func newChecker(s *Set) *checker {
	client := retryablehttp.NewClient()
	client.HTTPClient = &http.Client{
		// Each check dials, because the next request may have to. A kept connection would report on an
		// address that the name no longer has.
		Transport:     &http.Transport{DialContext: s.dial, DialTLSContext: s.dialTLS, DisableKeepAlives: true, DisableCompression: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	client.Logger = nil
	client.RetryMax, client.RetryWaitMin, client.RetryWaitMax = 1, 20*time.Millisecond, 100*time.Millisecond
	// The default backoff sleeps for whatever Retry-After a backend names, so it is not used.
	client.Backoff = func(low, high time.Duration, attempt int, _ *http.Response) time.Duration {
		return retryablehttp.DefaultBackoff(low, high, attempt, nil)
	}
	client.ErrorHandler = retryablehttp.PassthroughErrorHandler
	c := &checker{s: s, client: client}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

func (c *checker) close() {
	c.cancel()
	c.wg.Wait()
}

// start probes a backend until the server closes, or until the backend was removed and serves
// nothing more.
func (c *checker) start(b *router.Backend, e *engine) {
	c.wg.Go(func() { c.watch(b, e) })
}

func (c *checker) watch(b *router.Backend, e *engine) {
	told := false    // that it has drained
	ejected := false // when last seen
	for first := true; ; first = false {
		if e.removed.Load() && !b.InUse() {
			c.s.drop(b, e)
			return
		}
		told, ejected = c.tellDrained(b, e, told), c.tellReturned(b, ejected)
		if leadOf(b) == b { // its twin's checks do for both
			c.s.cfg.Guard(func() { c.probe(b) })
		}
		e.Expire(time.Now())
		h := c.s.cfg.Router.Snapshot().Health()
		wait := h.Interval
		if b.Suspect() || b.Closed() && !told || e.removed.Load() {
			wait = h.SuspectInterval
		} else if first && wait > 0 {
			wait = rand.N(wait) // otherwise backends that joined together would always be checked together
		}
		if !c.await(e, wait, h.SuspectInterval) {
			return
		}
	}
}

// await waits for the next check. A failed leg brings it forward, but it stays least after the last one: legs fail by the
// hundred while an engine's port is closed for a moment, and their checks in a row would take the engine down.
func (c *checker) await(e *engine, wait, least time.Duration) (goOn bool) {
	last := time.Now()
	due := last.Add(wait)
	for {
		select {
		case <-c.ctx.Done():
			return false
		case <-e.wake:
			return true
		case <-e.failed:
			if soon := last.Add(least); soon.Before(due) {
				due = soon
			}
		case <-time.After(time.Until(due)):
			return true
		}
	}
}

// tellDrained logs once that a backend which gets no new requests has ended those that it had.
func (c *checker) tellDrained(b *router.Backend, e *engine, told bool) bool {
	drained := b.Drained() && !e.removed.Load()
	if drained && !told {
		c.s.Journal.Tell(c.s.cfg.Log.Info(), journal.About(b, journal.Drained, "backend drained: its last request and handle have ended"))
	}
	return drained
}

// tellReturned tells that an ejection has ended. It is called often enough to see each one, as an ejected backend is suspect.
func (c *checker) tellReturned(b *router.Backend, was bool) (ejected bool) {
	ejected = b.Ejected()
	if was && !ejected && b.State() != router.Down && !b.Closed() {
		c.s.Journal.Tell(c.s.cfg.Log.Info(), journal.About(b, journal.Returned, "backend gets requests again: its ejection is over"))
	}
	return ejected
}

// leadOf is the backend whose checks and polls do for b, of whose engine there may be one in each role.
func leadOf(b *router.Backend) *router.Backend {
	if t := b.Twin(); t != nil && b.Role == router.Prefill {
		return t
	}
	return b
}

// rolesOf are b and its twin, if it has one: what a check or a poll of b finds is true of both.
func rolesOf(b *router.Backend) []*router.Backend {
	if t := b.Twin(); t != nil {
		return []*router.Backend{b, t}
	}
	return []*router.Backend{b}
}

// Suspect makes xpyd check a backend soon, because a leg on it has just failed.
func (s *Set) Suspect(b *router.Backend) {
	if e := s.get(leadOf(b)); e != nil {
		signal(e.failed)
	}
}

// checkNow makes xpyd check a backend at once.
func (s *Set) checkNow(b *router.Backend) {
	for _, x := range rolesOf(b) { // the one to be checked, the other to be looked at
		if e := s.get(x); e != nil {
			signal(e.wake)
		}
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (c *checker) probe(b *router.Backend) {
	auth := c.s.cfg.Auth
	status, _, err := c.get(b, "/health", auth)
	ok := err == nil && status == http.StatusOK
	why := cmp.Or(journal.Words(err), "/health answered "+strconv.Itoa(status))
	switch {
	case ok && b.State() != router.Up:
		// Up means that the backend serves completions, not only that something listens.
		if why = c.servesModels(b, auth); why == "" && !c.ranksStand(b, auth) {
			why = "its ranks are not those that the pools have"
		}
		ok = why == ""
	case ok:
		c.listModels(b, auth)
	}
	if c.ctx.Err() != nil || upstream.IsLocal(err) {
		return
	}
	if ok {
		c.learnVersion(b, auth)
	}
	seen := b.State() != router.Unknown
	b.SetHung(err != nil && !brokenOff(err))
	for _, x := range rolesOf(b) {
		if e := c.s.get(x); ok && e != nil {
			c.learnPeer(x)
			e.vitality.lives()
		}
		if !ok {
			c.s.Journal.Failed(x, why)
		}
	}
	if brokenOff(err) && b.Trouble.Wedged() != nil {
		router.Unwedge(b, false) // it is gone, and another one may take its place
	}
	if b.Observe(ok) {
		c.tell(b, why, seen)
	}
	c.s.LookForOutage()
	c.s.compareReleases()
	noteUnproven(c.s, b)
}

// brokenOff tells an engine that is gone, which refuses or resets connections, from one that hangs,
// which does not.
func brokenOff(err error) bool {
	return errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// tell reports a change of a backend's state, and of its twin's. seen is true if the backend had a state before.
func (c *checker) tell(b *router.Backend, why string, seen bool) {
	line, event := c.s.cfg.Log.Info(), journal.About(b, journal.Up, "backend state")
	if b.State() == router.Down {
		line, event.Kind, event.Reason = c.s.cfg.Log.Warn(), journal.Down, why
	}
	for _, x := range rolesOf(b) {
		c.s.Journal.Turned(x)
		if x != b {
			event.Role = router.Both.String()
		}
		if b.State() == router.Up {
			if r := c.s.get(x); r != nil {
				r.refusals.forget()
			}
			c.s.warm.cold(x, seen)
		}
	}
	c.s.Journal.Tell(line.Str("state", b.State().String()).Str("version", b.Version()), event)
}

// servesModels reads which models a backend serves. A loading engine lists none, and neither does
// something else on a reused port. Only a completion can show whether the engine takes the key that
// completions carry. why is empty if the backend serves.
func (c *checker) servesModels(b *router.Backend, auth string) (why string) {
	status, body, err := c.get(b, "/v1/models", auth)
	if err != nil {
		return "/v1/models: " + journal.Words(err)
	}
	if status == http.StatusUnauthorized || status == http.StatusForbidden {
		listed(c.s, b, nil) // what it listed to everybody now needs a key
		return ""
	}
	var list modelList
	switch {
	case status != http.StatusOK:
		return "/v1/models answered " + strconv.Itoa(status)
	case json.Unmarshal(body, &list) != nil || len(list.Data) == 0:
		return "/v1/models lists no model"
	}
	list.at = time.Now()
	listed(c.s, b, &list)
	b.SetLongest(list.longest())
	b.SetModels(list.ids())
	c.s.compareModels()
	return ""
}

// listed keeps the list of b's engine, or nil if it is not known.
func listed(s *Set, b *router.Backend, list *modelList) {
	for _, x := range rolesOf(b) {
		if e := s.get(x); e != nil {
			e.models.Store(list)
		}
	}
}

// modelsEvery is the greatest age of the list of an engine that is up, as adapters come and go.
const modelsEvery = 30 * time.Second

// listModels reads the list again once it is that old, or after ModelMissed. If the read fails, the old list stays.
func (c *checker) listModels(b *router.Backend, auth string) {
	e := c.s.get(b)
	if e == nil {
		return
	}
	if list := e.models.Load(); list != nil && (e.unlisted.Load() || time.Since(list.at) >= modelsEvery) {
		e.unlisted.Store(false)
		c.servesModels(b, auth)
		c.ranksStand(b, auth)
		e.outdated.Store(true)
	}
}

// learnVersion reads the version again if the engine may be another one than at the last check: it was down, failed
// something, or has restarted. It also does with the list of models, in case xpyd has missed a restart.
func (c *checker) learnVersion(b *router.Backend, auth string) {
	e := c.s.get(b)
	if e == nil || b.Version() != "" && !b.Suspect() && !e.outdated.Load() {
		return
	}
	e.outdated.Store(false) // before the read, because it may restart again
	status, body, err := c.get(b, waysOf(c.s.dialect(b)).version, auth)
	var v struct {
		Version string `json:"version"`
	}
	switch {
	case err == nil && status == http.StatusOK && json.Unmarshal(body, &v) == nil && len(v.Version) <= 64:
		c.takeVersion(b, v.Version)
	case err == nil || b.State() != router.Up:
		c.takeVersion(b, "") // it is asked again at the next check
	default:
		e.outdated.Store(true)
	}
}

// takeVersion notes an engine's version, and whether engines of that version serve requests without a prefill.
func (c *checker) takeVersion(b *router.Backend, version string) {
	bound := !kvparams.ServesAlone(c.s.dialect(b), version)
	b.Bound.Store(bound) // first, because requests may wait for that version
	if twin := b.Twin(); twin != nil {
		twin.Bound.Store(bound)
	}
	b.SetVersion(version)
}

// get sends one GET to a backend, within the probe's timeout.
func (c *checker) get(b *router.Backend, path, auth string) (status int, body []byte, err error) {
	return c.getWithin(c.ctx, b, path, auth)
}

// getWithin is get under a context that may end sooner.
func (c *checker) getWithin(ctx context.Context, b *router.Backend, path, auth string) (status int, body []byte, err error) {
	return c.fetch(ctx, b.Base()+path, auth, probeBody)
}

// fetch sends one GET, within the probe's timeout. It reads no more of the answer than most.
func (c *checker) fetch(ctx context.Context, url, auth string, most int64) (status int, body []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.s.cfg.Router.Snapshot().Health().Timeout)
	defer cancel()
	req, err := retryablehttp.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, nil, fmt.Errorf("build request: %w", err)
	}
	if auth != "" {
		req.Header.Set("Authorization", auth)
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return 0, nil, fmt.Errorf("get %s: %w", req.URL.Path, tlsconf.Explain(err))
	}
	defer func() { _ = resp.Body.Close() }()
	body, err = io.ReadAll(io.LimitReader(resp.Body, most))
	return resp.StatusCode, body, err
}

// CheckNow runs one active check of each backend.
func (s *Set) CheckNow() {
	for b := range s.all() {
		if leadOf(b) == b {
			s.checks.probe(b)
		}
	}
}
