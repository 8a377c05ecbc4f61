package journal

import (
	"time"

	"xpyd/router"
)

// Standing is how a backend stands.
type Standing struct {
	Since   time.Time // the health checks have found it so
	Ejected time.Time // when its last ejection began; zero if there was none
	Error   string    // the last of its checks and legs, in words; empty if there was none
	ErrorAt time.Time
}

// Standing returns how b stands. It is zero for a backend that has left.
func (j *Journal) Standing(b *router.Backend) Standing {
	j.mu.Lock()
	defer j.mu.Unlock()
	if s := j.standings[b]; s != nil {
		return *s
	}
	return Standing{}
}

// Joined begins the standing of a backend.
func (j *Journal) Joined(b *router.Backend) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.standings[b] = &Standing{Since: time.Now()}
}

// Gone drops the standing of a backend that has left.
func (j *Journal) Gone(b *router.Backend) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.standings, b)
}

// Failed notes why a check or a leg of b has failed, without a byte of a request or an answer.
func (j *Journal) Failed(b *router.Backend, why string) {
	j.note(b, func(s *Standing) { s.Error, s.ErrorAt = why, time.Now() })
}

// Turned notes that the health checks have found another state.
func (j *Journal) Turned(b *router.Backend) { j.note(b, func(s *Standing) { s.Since = time.Now() }) }

// Ejected notes that an ejection of b begins.
func (j *Journal) Ejected(b *router.Backend) { j.note(b, func(s *Standing) { s.Ejected = time.Now() }) }

func (j *Journal) note(b *router.Backend, f func(*Standing)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if s := j.standings[b]; s != nil {
		f(s)
	}
}
