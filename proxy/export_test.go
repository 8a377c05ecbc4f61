package proxy

// Departed is how many clients of running completions are known to have left.
func (s *Server) Departed() int64 { return s.departed.Load() }
