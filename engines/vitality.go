package engines

import (
	"context"
	"net/http"
	"sync"
	"time"

	"xpyd/router"
)

// vitalsWait is for how long an engine is asked whether it lives. One that is gone says so
// at once; a longer wait would be the client's.
const vitalsWait = 250 * time.Millisecond

// vitality is what is known of an engine that has failed a request.
type vitality struct {
	mu    sync.Mutex // held while the engine is asked
	asked time.Time  // when that began
	since time.Time  // known to be gone since then; zero: it lives, as far as is known
}

// lives is told by the active check.
func (v *vitality) lives() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.since = time.Time{}
}

// Gone reports that an engine does not live any more, and since when that is known: it
// refuses connections, breaks them off, or says so. One that says nothing may be slow. Those
// who want to know at one time share a question.
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
		switch dead := s.refusesToLive(b); {
		case !dead:
			v.since = time.Time{}
		case v.since.IsZero():
			v.since = time.Now()
		}
	}
	return v.since, !v.since.IsZero()
}

func (s *Set) refusesToLive(b *router.Backend) bool {
	if b.State() == router.Down {
		return !b.Hung()
	}
	ctx, cancel := context.WithTimeout(s.checks.ctx, s.vitals)
	defer cancel()
	status, _, err := s.checks.getWithin(ctx, b, "/health", s.cfg.Auth)
	if err != nil {
		return brokenOff(err)
	}
	return status >= http.StatusInternalServerError
}

// SetVitalsWait changes for how long an engine is asked whether it lives. Called before requests
// come.
func (s *Set) SetVitalsWait(d time.Duration) { s.vitals = d }
