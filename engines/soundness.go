package engines

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"xpyd/engines/journal"
)

// Pace says how failed completions change readiness. Each process adds a random part to the times.
// Otherwise, replicas that share a pool would become unready together, and the balancer in front of
// them would have none left.
type Pace struct {
	Failures int           // how many failed completions in a row raise the doubt
	Span     time.Duration // least time without a success by then; up to half as long again
	Gap      time.Duration // failures with a longer gap are not in a row, because an idle pool may have old ones
	Every    time.Duration // time between two failed probes; up to half as long again
	Hold     time.Duration // how long a probe or a success keeps the process ready; up to twice as long
}

// UsualPace is the pace of a process that serves.
func UsualPace() Pace {
	return Pace{Failures: 10, Span: 10 * time.Second, Gap: time.Minute, Every: 2 * time.Second, Hold: 30 * time.Second}
}

// ErrUntold means that no request from the proxy itself can show whether a completion would succeed.
var ErrUntold = errors.New("no request of the proxy's own can tell")

// Soundness finds out whether a new completion would succeed. Several failed completions in a row raise
// the doubt. A probe settles it, because one client may have caused the failures. If the probe fails
// too, the process is unready until a probe or any completion succeeds.
type Soundness struct {
	probe  func(context.Context) error // returns nil if a completion was served
	log    zerolog.Logger
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	journal *journal.Journal
	unsound atomic.Bool // written under mu
	doubted atomic.Bool // a success has something to end: failures > 0, or unsound

	mu       sync.Mutex
	pace     Pace
	failures int           // in the row
	began    time.Time     // start of the row
	last     time.Time     // time of the last failure
	span     time.Duration // of this row
	hold     time.Time     // the process does not become unready before
	probing  bool
	closed   bool
}

// NewSoundness makes a Soundness, which starts nothing until a completion has failed. Close ends what
// it has started. probe sends a request that shows whether a completion would succeed.
func NewSoundness(pace Pace, probe func(context.Context) error, j *journal.Journal, log zerolog.Logger) *Soundness {
	h := &Soundness{pace: pace, probe: probe, journal: j, log: log}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	return h
}

// Close waits for a running probe.
func (h *Soundness) Close() {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	h.cancel()
	h.wg.Wait()
}

// lot returns d and a random part of part times d.
func lot(d time.Duration, part float64) time.Duration {
	return d + time.Duration(rand.Float64()*part*float64(d))
}

// Failed notes a completion that the backends did not serve although some are up.
func (h *Soundness) Failed() {
	now := time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failures == 0 || now.Sub(h.last) > h.pace.Gap {
		h.failures, h.began, h.span = 0, now, lot(h.pace.Span, 0.5)
	}
	h.failures++
	h.last = now
	h.doubted.Store(true)
	if h.probing || h.closed || !h.due(now) {
		return
	}
	h.probing = true
	h.wg.Go(h.probeUntilSound)
}

// due reports that the row has enough failures and lasts long enough, and that hold is over.
func (h *Soundness) due(now time.Time) bool {
	return h.failures >= h.pace.Failures && now.Sub(h.began) >= h.span && !now.Before(h.hold)
}

// Succeeded notes a completion that reached its end.
func (h *Soundness) Succeeded() {
	if !h.doubted.Load() {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clear("a completion was served")
}

// clear ends the row and the doubt. mu is held.
func (h *Soundness) clear(why string) {
	h.failures = 0
	h.doubted.Store(false)
	if h.unsound.Swap(false) {
		h.hold = time.Now().Add(lot(h.pace.Hold, 1))
		h.journal.Tell(h.log.Warn().Str("why", why), journal.Event{Kind: journal.ReadyAgain, Text: "ready again"})
	}
}

// probeUntilSound probes until the doubt is gone.
func (h *Soundness) probeUntilSound() {
	for h.judge(h.probe(h.ctx)) {
		select {
		case <-time.After(lot(h.every(), 0.5)):
		case <-h.ctx.Done():
			return
		}
	}
}

func (h *Soundness) every() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.pace.Every
}

// Unsound reports that, as far as xpyd knows, no completion would succeed.
func (h *Soundness) Unsound() bool { return h.unsound.Load() }

// Failures returns the number of failures in the row.
func (h *Soundness) Failures() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.failures
}

// SetPace sets the pace from now on.
func (h *Soundness) SetPace(pace Pace) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pace = pace
}

// judge handles the result of a probe. again is true if another probe is to follow.
func (h *Soundness) judge(err error) (again bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	switch {
	case h.ctx.Err() != nil:
	case err == nil || errors.Is(err, ErrUntold):
		why := "a probe of one token was served"
		if err != nil {
			why = err.Error()
		}
		if !h.unsound.Load() {
			h.hold = now.Add(lot(h.pace.Hold, 1)) // the earliest time of the next probe
			h.log.Warn().Str("why", why).Int("failures", h.failures).Msg("no completion succeeds, but this process stays ready")
		}
		h.clear(why)
	case h.unsound.Load():
		return true
	case h.due(now):
		h.unsound.Store(true)
		h.journal.Tell(h.log.Error().Int("failures", h.failures).Dur("for_ms", now.Sub(h.began)),
			journal.Event{Kind: journal.NotReady, Text: "not ready: no completion succeeds, nor does a probe of one token", Reason: err.Error()})
		return true
	}
	h.probing = false // also if a completion has succeeded meanwhile
	return false
}
