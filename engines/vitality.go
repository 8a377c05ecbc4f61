package engines

import (
	"context"
	"net/http"
	"sync"
	"time"

	"xpyd/router"
)

// vitalsWait is how long an engine is asked whether it lives. An engine that is gone says so at once,
// and the client would have to sit through a longer wait.
const vitalsWait = 250 * time.Millisecond

// vitality holds what is known of an engine that has failed a request.
type vitality struct {
	mu    sync.Mutex // held while the engine is asked
	asked time.Time  // when the last question began
	since time.Time  // known to be gone since then; zero if it lives as far as is known
}

// lives is called by the active check after a success.
func (v *vitality) lives() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.since = time.Time{}
}

// Gone reports that an engine is no longer alive, and since when xpyd knows this. Such an engine
// refuses connections, breaks them off, or says so. An engine that does not answer may only be slow, so
// this alone does not make it gone. If it was gone before, it still is. Callers that ask at the same
// time share one question.
func (s *Set) Gone(b *router.Backend) (since time.Time, gone bool) {
	e := s.get(b)
	if e == nil {
		return time.Time{}, false
	}
	failed := time.Now()
	v := &e.vitality
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.asked.Before(failed) {
		v.asked = time.Now()
		switch s.vitalsOf(b) {
		case alive:
			v.since = time.Time{}
		case dead:
			if v.since.IsZero() {
				v.since = time.Now()
			}
		}
	}
	return v.since, !v.since.IsZero()
}

// sign is what an engine says when it is asked whether it lives.
type sign uint8

const (
	silent sign = iota // nothing in time, which changes nothing of what is known
	alive
	dead
)

func (s *Set) vitalsOf(b *router.Backend) sign {
	if b.State() == router.Down {
		if b.Hung() {
			return silent
		}
		return dead
	}
	ctx, cancel := context.WithTimeout(s.checks.ctx, s.vitals)
	defer cancel()
	status, _, err := s.checks.getWithin(ctx, b, waysOf(s.dialect(b)).vitals, s.cfg.Auth)
	switch {
	case err != nil && !brokenOff(err):
		return silent
	case err != nil || status >= http.StatusInternalServerError:
		return dead
	}
	return alive
}

// SetVitalsWait changes how long xpyd waits for an engine to say that it is alive. Call it before
// requests arrive.
func (s *Set) SetVitalsWait(d time.Duration) { s.vitals = d }
