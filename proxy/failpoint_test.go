package proxy

import (
	"io"
	"sync/atomic"

	"xpyd/intake/budget"
	"xpyd/metrics"
)

// PanicOnBuffer makes the proxy panic when it makes the n-th new buffer for an answer. It is called
// before any request.
func (s *Server) PanicOnBuffer(n int32) {
	s.onlyBeforeServe()
	var made atomic.Int32
	s.buffers.Pool.New = func() any {
		if made.Add(1) == n {
			panic("BUG: planted by a test")
		}
		b := make([]byte, 0, budget.FirstBuffer)
		return &b
	}
}

// ForgetLabels makes the metrics know no label. It is called before any request.
func (s *Server) ForgetLabels() {
	s.onlyBeforeServe()
	s.metrics = s.newMeter("test", metrics.Labels{})
}

// WriteHeld writes an answer that was held to w, as fasthttp does after the handler.
func (s *Server) WriteHeld(w io.Writer) error {
	a := &heldAnswer{s: s, buf: []byte("held")}
	_, err := a.WriteTo(w)
	return err
}
