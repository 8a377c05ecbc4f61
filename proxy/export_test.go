package proxy

import (
	"slices"

	"xpyd/router"
)

// Departed is how many clients of running completions are known to have left.
func (s *Server) Departed() int64 { return s.departed.Load() }

// LogFailedLeg writes a line about a leg that is tried again.
func (s *Server) LogFailedLeg() { s.failed.Warn().Msg("failed") }

// LogStays writes a line about a backend that would have been ejected.
func (s *Server) LogStays() {
	s.ejected(router.Ejection{Backend: s.router.Snapshot().Backends(router.Decode)[0]})
}

// FailChecks feeds the active checks of a backend with failures until it is down.
func (s *Server) FailChecks(url string) {
	for b := range s.upstreams.all() {
		for b.URL == url && b.State() != router.Down {
			b.Observe(false)
		}
	}
}

// ForgetModels puts lists that are old and wrong in the place of what the engines list.
func (s *Server) ForgetModels() {
	for b, u := range s.upstreams.all() {
		b.SetModels([]string{"gone"})
		u.models.Store(&modelList{})
	}
}

// ModelsKnown: each engine is known to serve the simulated model.
func (s *Server) ModelsKnown() bool {
	for b := range s.upstreams.all() {
		if !slices.Equal(b.Models(), []string{"sim"}) {
			return false
		}
	}
	return true
}

// BreakAtOnce is for tests that break thousands of streams.
func (s *Server) BreakAtOnce() { s.breakPause = 0 }

// Live is how many completions run.
func (s *Server) Live() int64 { return s.live.Load() }

// StopChecks ends the active checks: backends keep the state that they have.
func (s *Server) StopChecks() { s.probes.close() }

// OnNewBuffer has f called whenever a buffer for an answer is made.
func (s *Server) OnNewBuffer(f func()) {
	s.buffers.pool.New = func() any {
		f()
		b := make([]byte, 0, relayBuffer)
		return &b
	}
}
