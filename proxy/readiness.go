package proxy

import (
	"net/http"

	"xpyd/admin"
)

// readiness is what /readyz answers: whether a completion could be served now, and in a line
// why not, or what is amiss all the same.
func (s *Server) readiness() (ready bool, line string) {
	switch snap := s.router.Snapshot(); {
	case s.draining.Load():
		return false, "not ready: this process is about to end\n"
	case !snap.Ready(true):
		return false, "not ready: no decode engine is up\n"
	case !snap.Ready(s.engines.StandsIn()):
		return false, "not ready: no prefill engine is up\n"
	case s.engines.Soundness.Unsound():
		return false, "not ready: no completion succeeds, nor does a probe of one token\n"
	case s.engines.Outage():
		return true, "ok, but no prefill engine is up: decode engines compute the prompts\n"
	}
	return true, "ok\n"
}

// Admin is the operators' port. It must not be reachable for clients.
func (s *Server) Admin() *http.Server {
	return admin.New(admin.Config{
		Router: s.router, Metrics: s.metrics.Metrics, Ready: s.readiness, Unknown: s.engines.Poller.Unknown, Pprof: s.cfg.Pprof, Log: s.log,
	})
}
