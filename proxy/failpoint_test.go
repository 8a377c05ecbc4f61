package proxy

import "sync/atomic"

// PanicOnBuffer makes the n-th buffer that is made anew for an answer panic. Called
// before any request.
func (s *Server) PanicOnBuffer(n int32) {
	var made atomic.Int32
	s.buffers.pool.New = func() any {
		if made.Add(1) == n {
			panic("BUG: planted by a test")
		}
		b := make([]byte, 0, relayBuffer)
		return &b
	}
}
