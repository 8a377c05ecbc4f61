package proxy

import "time"

// Lingering is how many connections are read on after their last answer.
func (s *Server) Lingering() int { return s.lingering.Len() }

// Linger bounds that. Called before any request.
func (s *Server) Linger(silence, total time.Duration, limit int) {
	s.onlyBeforeServe()
	s.lingering.Bound(silence, total, limit)
}
