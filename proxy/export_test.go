package proxy

import (
	"math"
	"slices"
	"time"

	"xpyd/engines"
	"xpyd/intake/budget"
	"xpyd/netio/upstream/nametest"
	"xpyd/router"
)

// Departed is how many clients of running completions are known to have left.
func (s *Server) Departed() int64 { return s.departed.Load() }

// LogFailedLeg writes a line about a leg that is tried again.
func (s *Server) LogFailedLeg() { s.failedLog.Warn().Msg("failed") }

// LogStays writes a line about a backend that would have been ejected.
func (s *Server) LogStays() {
	s.router.Eject(s.router.Snapshot().Backends(router.Decode)[0], router.EjectFailures) // the only one of its pool
}

// FailChecks feeds the active checks of a backend with failures until it is down.
func (s *Server) FailChecks(url string) {
	for _, b := range s.engines.Backends() {
		for b.URL == url && b.State() != router.Down {
			b.Observe(false)
		}
	}
	s.engines.LookForOutage()
}

// HangChecks is FailChecks for checks that get no answer in time.
func (s *Server) HangChecks(url string) {
	for _, b := range s.engines.Backends() {
		if b.URL == url {
			b.SetHung(true)
		}
	}
	s.FailChecks(url)
}

// PassChecks feeds the active checks of a backend with successes until it is up.
func (s *Server) PassChecks(url string) {
	for _, b := range s.engines.Backends() {
		for b.URL == url && b.State() != router.Up {
			b.Observe(true)
		}
	}
}

// BelieveModels replaces the engines' lists by old ones of these models.
func (s *Server) BelieveModels(models ...string) {
	for _, b := range s.engines.Backends() {
		b.SetModels(models)
		s.engines.Relist(b)
	}
}

// ModelsKnown reports whether each engine is known to serve the simulated model.
func (s *Server) ModelsKnown() bool {
	for _, b := range s.engines.Backends() {
		if !slices.Equal(b.Models(), []string{"sim"}) {
			return false
		}
	}
	return true
}

// WaitForLateAnswers gives a P that went down enough time, even on a busy machine, for an answer
// that is on its way.
func (s *Server) WaitForLateAnswers() {
	s.onlyBeforeServe()
	s.downGrace = 5 * time.Second
}

// WaitForSuspects waits long enough, even on a busy machine, to hear that an engine that has failed
// is gone.
func (s *Server) WaitForSuspects() {
	s.onlyBeforeServe()
	s.engines.SetVitalsWait(10 * time.Second)
}

// BreakAtOnce is for tests that break thousands of streams.
func (s *Server) BreakAtOnce() {
	s.onlyBeforeServe()
	s.breakPause = 0
}

// WatchClosely is for tests that wait for thousands of peers to leave.
func (s *Server) WatchClosely() {
	s.onlyBeforeServe()
	s.watch.LookEvery(time.Millisecond)
}

// onlyBeforeServe stops a test that changes what is read without a lock while the server runs.
func (s *Server) onlyBeforeServe() {
	if s.accepting.Load() != nil {
		panic("to be called from rigOptions.before, as the server is running already")
	}
}

// Live is how many completions run.
func (s *Server) Live() int64 { return s.live.Load() }

// TrustChecks keeps failed completions from affecting the readiness, and spares tests that break
// completions for long the probes that would follow.
func (s *Server) TrustChecks() {
	pace := engines.UsualPace()
	pace.Failures = math.MaxInt
	s.engines.Soundness.SetPace(pace)
}

// HastenReadiness lets failed completions affect the readiness within a moment.
func (s *Server) HastenReadiness() {
	s.engines.Soundness.SetPace(engines.Pace{Failures: 3, Span: 50 * time.Millisecond, Gap: time.Minute, Every: 10 * time.Millisecond, Hold: time.Millisecond})
}

// CompletionsFailing is how many completions in a row the backends did not serve.
func (s *Server) CompletionsFailing() int { return s.engines.Soundness.Failures() }

// StopChecks ends the active checks. Backends keep the state that they have.
func (s *Server) StopChecks() { s.engines.StopChecks() }

// OnNewBuffer makes the proxy call f whenever it makes a buffer for an answer.
func (s *Server) OnNewBuffer(f func()) {
	s.onlyBeforeServe()
	s.buffers.Pool.New = func() any {
		f()
		b := make([]byte, 0, budget.FirstBuffer)
		return &b
	}
}

// Connections is how many clients' connections are open.
func (s *Server) Connections() int64 { return s.accepting.Load().Open() }

// LookUpWith looks up the names of backends that join from now on with ns.
func (s *Server) LookUpWith(ns *nametest.Server) { s.engines.LookUpWith(ns.Lookup) }

// ProbeNow runs one active check of each backend.
func (s *Server) ProbeNow() {
	s.engines.CheckNow()
}
