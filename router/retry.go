package router

// At most this share of the leases in flight may be retries, and always the floor:
// without it one failure in a quiet hour could not be retried.
const (
	retryShare = 0.2
	retryFloor = 3
)

// TakeRetry takes one unit of the retry budget, which all requests share; false when
// it is spent. The caller calls ReturnRetry when the retry has ended.
func (r *Router) TakeRetry() bool {
	s := r.Snapshot()
	limit := max(retryFloor, int64(retryShare*float64(inFlight(s.prefill.backends)+inFlight(s.decode.backends))))
	for {
		n := r.retries.Load()
		if n >= limit {
			return false
		}
		if r.retries.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// ReturnRetry gives back what TakeRetry took.
func (r *Router) ReturnRetry() {
	if r.retries.Add(-1) < 0 {
		panic("BUG: retry returned that was not taken")
	}
}

// inFlight sums the leases held on the backends.
func inFlight(backends []*Backend) (n int64) {
	for _, b := range backends {
		n += b.inflight.Load()
	}
	return n
}
