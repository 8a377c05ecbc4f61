package router

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// At most this share of the requests under way may be retries. The floor is always allowed,
	// because otherwise one failure in a quiet hour could not be retried.
	retryShare = 0.2
	retryFloor = 3
	// A retry that fails fast is over at once, so what is under way bounds no rate. So retries also
	// take from an allowance. Each request adds a part of a retry to it, and each second adds some.
	// It never holds more than a share of what is under way, or a few, because an outage must not
	// put half as much load again on the engines that are left.
	retryPerRequest = 0.1
	retryPerSecond  = 2
	retryBurstShare = 0.05
	retryBurst      = 10
	// RetrySettle is how long a retry waits before it needs no allowance. By then, requests that failed
	// at the same time are spread out, and a longer wait would make all of them late.
	RetrySettle = 10 * time.Second
)

// retries is what the retries of all requests share.
type retries struct {
	running  atomic.Int64
	admitted atomic.Int64 // requests

	mu      sync.Mutex
	allowed float64 // retries that may begin now; below 0 after moves
	counted int64   // the part of admitted that is in allowed
	at      int64   // the time up to which seconds have been added to allowed, by the router's clock
}

// accrue brings allowed up to now. mu is held.
func (r *retries) accrue(live, now int64) {
	n := r.admitted.Load()
	r.allowed += retryPerRequest*float64(n-r.counted) + retryPerSecond*time.Duration(now-r.at).Seconds()
	r.allowed = min(r.allowed, max(retryBurst, retryBurstShare*float64(live)))
	r.counted, r.at = n, now
}

// take takes one from what is allowed, if there is one. With must it takes one in any case.
func (r *retries) take(live, now int64, must bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.accrue(live, now)
	if r.allowed < 1 && !must {
		return false
	}
	r.allowed = max(r.allowed-1, -retryBurst-retryBurstShare*float64(live))
	return true
}

// Admitted counts a request. It adds to the allowance of retries.
func (r *Router) Admitted() { r.retries.admitted.Add(1) }

// Moved counts a leg that goes to another backend because its own went down. A move does not wait, but
// causes as much load as a retry. live is as in TakeRetry.
func (r *Router) Moved(live int64) { r.retries.take(live, r.now(), true) }

// TakeRetry takes one unit of the retry budget, which all requests share. It returns false if the
// budget is spent. live is the number of running requests, including those that wait. settled says that
// this request has waited for RetrySettle. The caller calls ReturnRetry when the retry has ended.
func (r *Router) TakeRetry(live int64, settled bool) bool {
	limit := max(retryFloor, int64(retryShare*float64(live)))
	if r.retries.running.Add(1) > limit || !settled && !r.retries.take(live, r.now(), false) {
		r.retries.running.Add(-1)
		return false
	}
	return true
}

// ReturnRetry returns what TakeRetry took.
func (r *Router) ReturnRetry() {
	if r.retries.running.Add(-1) < 0 {
		panic("BUG: retry returned that was not taken")
	}
}
