package router

import (
	"sync/atomic"
	"time"
)

// At most this share of the leases in flight may be retries, and always the floor:
// without it one failure in a quiet hour could not be retried.
const (
	retryShare = 0.2
	retryFloor = 3
	// A retry that fails fast is over at once, so what is in flight bounds no rate. In any
	// retryWindow retries are no more than this part of the requests and the share of what
	// is in flight, or the floor each second: an outage must not turn into half as much load
	// again on what is left.
	retryRate   = 0.1
	retryWindow = 10 // seconds
)

// recent counts requests and retries by the second, a little less than exactly.
type recent struct {
	seconds [retryWindow + 1]struct {
		second            atomic.Int64 // since the router began, plus 1
		requests, retries atomic.Int64
	}
}

// at is the place of now, empty if a second has begun.
func (w *recent) at(now int64) (requests, retries *atomic.Int64) {
	second := now/int64(time.Second) + 1
	s := &w.seconds[second%int64(len(w.seconds))]
	if was := s.second.Load(); was != second && s.second.CompareAndSwap(was, second) {
		s.requests.Store(0)
		s.retries.Store(0)
	}
	return &s.requests, &s.retries
}

// sum is of the last retryWindow seconds, the current one included.
func (w *recent) sum(now int64) (requests, retries int64) {
	second := now/int64(time.Second) + 1
	for i := range w.seconds {
		if s := &w.seconds[i]; s.second.Load() > second-retryWindow {
			requests += s.requests.Load()
			retries += s.retries.Load()
		}
	}
	return requests, retries
}

// Admitted counts a request, of which a part may be retried.
func (r *Router) Admitted() {
	requests, _ := r.recent.at(r.now())
	requests.Add(1)
}

// TakeRetry takes one unit of the retry budget, which all requests share; false when
// it is spent. The caller calls ReturnRetry when the retry has ended.
func (r *Router) TakeRetry() bool {
	s := r.Snapshot()
	limit := max(retryFloor, int64(retryShare*float64(inFlight(s.prefill.backends)+inFlight(s.decode.backends))))
	now := r.now()
	if requests, retries := r.recent.sum(now); retries >= max(limit, retryFloor*retryWindow)+int64(retryRate*float64(requests)) {
		return false
	}
	for {
		n := r.retries.Load()
		if n >= limit {
			return false
		}
		if r.retries.CompareAndSwap(n, n+1) {
			_, retries := r.recent.at(now)
			retries.Add(1)
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
