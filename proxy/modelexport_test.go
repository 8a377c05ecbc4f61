package proxy

import "time"

// MaxModelKeys bounds ModelKeys.
const MaxModelKeys = maxModelKeys

// AskModelsWithin bounds the asking for one answer of /v1/models.
func (s *Server) AskModelsWithin(d time.Duration) {
	s.models.mu.Lock()
	defer s.models.mu.Unlock()
	s.models.within = d
}

// AwaitingModels is how many clients wait for an answer of /v1/models.
func (s *Server) AwaitingModels() (n int) {
	s.models.mu.Lock()
	defer s.models.mu.Unlock()
	for _, a := range s.models.by {
		n += a.waiting
	}
	return n
}

// ModelKeys is how many answers of /v1/models are kept.
func (s *Server) ModelKeys() int {
	s.models.mu.Lock()
	defer s.models.mu.Unlock()
	return len(s.models.by)
}
