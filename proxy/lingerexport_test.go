package proxy

import "time"

// Lingering is how many connections are read on after their last answer.
func (s *Server) Lingering() int {
	s.lingering.mu.Lock()
	defer s.lingering.mu.Unlock()
	return len(s.lingering.conns)
}

// Linger bounds that. Called before any request.
func (s *Server) Linger(silence, total time.Duration, limit int) {
	s.lingering.silence, s.lingering.total, s.lingering.limit = silence, total, limit
}
