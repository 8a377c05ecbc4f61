package tally

import "time"

// Histogram counts durations by the millisecond, up to 10 s.
type Histogram struct {
	buckets []int
	N       int // durations that were counted
}

const top = 10_000 // ms

// Observe counts a duration.
func (h *Histogram) Observe(d time.Duration) {
	if h.buckets == nil {
		h.buckets = make([]int, top+1)
	}
	h.buckets[min(max(d.Milliseconds(), 0), top)]++
	h.N++
}

// Quantile returns the upper edge of the bucket that holds the q-th part, or 0 if empty.
func (h *Histogram) Quantile(q float64) time.Duration {
	rank := int(q * float64(h.N))
	for ms, n := range h.buckets {
		if rank -= n; rank < 0 {
			return time.Duration(ms+1) * time.Millisecond
		}
	}
	return 0
}
