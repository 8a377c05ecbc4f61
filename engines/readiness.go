package engines

import (
	"xpyd/router"
)

// Readiness reports whether a completion could be served now, as /readyz tells it. line says why not, or
// what is wrong although it could.
func (s *Set) Readiness() (ready bool, line string) {
	snap := s.cfg.Router.Snapshot()
	missing := func(role router.Role) string {
		if snap.Withdrawn(role) {
			return "all " + role.String() + " engines are drained or disabled"
		}
		return "no " + role.String() + " engine is up"
	}
	switch {
	case !snap.AnyUp(router.Decode):
		return false, "not ready: " + missing(router.Decode) + "\n"
	case !s.Judged():
		return false, "not ready: the first checks of the prefill engines are still running\n"
	case !s.SomeUp():
		return false, "not ready: " + missing(router.Prefill) + "\n"
	case s.Soundness.Unsound():
		return false, "not ready: no completion succeeds, nor does a probe of one token\n"
	case s.Outage():
		return true, "ok, but " + missing(router.Prefill) + ": decode engines compute the prompts\n"
	}
	return true, "ok\n"
}
