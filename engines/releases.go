package engines

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
