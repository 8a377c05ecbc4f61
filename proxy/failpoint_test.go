package proxy

import (
	"sync/atomic"

	"xpyd/metrics"
)

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

// ForgetLabels has the metrics know no label. Called before any request.
func (s *Server) ForgetLabels() {
	s.metrics = s.newMeter("test", metrics.Labels{})
}
