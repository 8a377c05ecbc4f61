package engines

import (
	"xpyd/kvparams"
	"xpyd/router"
)

// releases is what the log has said of the releases of engines.
type releases struct {
	logged
	unproven map[string]bool // what was said of releases with which xpyd has not run
}

// compareReleases warns once when engines of different releases are paired, and says when that is over. Call it after a
// check of a backend, or when the pools have changed.
func (s *Set) compareReleases() {
	s.releases.Lock()
	defer s.releases.Unlock()
	noteUnproven(s)
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

// noteUnproven warns once of each release with which the connector of its engines has not run. Called under the lock.
func noteUnproven(s *Set) {
	snap := s.cfg.Router.Snapshot()
	if !snap.Splits() {
		return
	}
	for _, b := range s.Backends() {
		standing := kvparams.StandingOf(s.dialect(b).Name())
		why := standing.Unproven(b.Version())
		if b.Role == router.Encode || standing.How() != kvparams.Run || why == "" || s.releases.unproven[why] {
			continue
		}
		if s.releases.unproven == nil {
			s.releases.unproven = map[string]bool{}
		}
		s.releases.unproven[why] = true
		s.cfg.Log.Warn().Str("role", b.Role.String()).Str("backend", b.URL).Str("version", b.Version()).Msg("engine has a release that xpyd has not run with: " + why)
	}
}
