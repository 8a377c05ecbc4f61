package engines

import (
	"xpyd/kvparams"
	"xpyd/router"
)

// proof is a connector and a minor release of its engines.
type proof struct {
	connector    string
	major, minor int
}

// releases is what the log has said of the releases of engines.
type releases struct {
	logged
	seen map[proof]bool // what noteUnproven has looked at
}

// compareReleases warns once when engines of different releases are paired, and says when that is over. Call it after a
// check of a backend, or when the pools have changed.
func (s *Set) compareReleases() {
	s.releases.Lock()
	defer s.releases.Unlock()
	text := s.cfg.Router.Snapshot().Mismatch()
	if text == s.releases.text {
		return
	}
	if s.releases.text = text; text == "" {
		s.cfg.Log.Info().Msg("only engines of one release are paired")
		return
	}
	s.cfg.Log.Warn().Msg(text)
}

// noteUnproven warns once of each release with which the connector of its engines has not run. Call it after a check of b.
// That is often, so it looks a release up only once.
func noteUnproven(s *Set, b *router.Backend) {
	major, minor, ok := kvparams.Release(b.Version())
	if !ok || b.Role == router.Encode || !s.cfg.Router.Snapshot().Splits() {
		return
	}
	s.releases.Lock()
	defer s.releases.Unlock()
	p := proof{s.dialect(b).Name(), major, minor}
	if s.releases.seen[p] {
		return
	}
	if s.releases.seen == nil {
		s.releases.seen = map[proof]bool{}
	}
	s.releases.seen[p] = true
	standing := kvparams.StandingOf(p.connector)
	if why := standing.Unproven(b.Version()); why != "" && standing.How() == kvparams.Run {
		s.cfg.Log.Warn().Str("role", b.Role.String()).Str("backend", b.URL).Str("version", b.Version()).Msg("engine has a release that xpyd has not run with: " + why)
	}
}
