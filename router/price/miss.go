package price

import (
	"math"
	"slices"
)

const (
	missesKept = 32
	minMisses  = 8 // fewer tell nothing
	// leastPrice is the least time that a price is taken for when its error is worked out, in
	// seconds. Below it the scheduler of the host is the error.
	leastPrice = 0.002
)

// misses are by how much a line missed the last samples, each as a part of what it had said.
type misses struct {
	last [missesKept]float32
	n    int // of all so far
}

// add compares what was said with what came, in seconds.
func (m *misses) add(said, came float64) {
	said = max(said, leastPrice)
	m.last[m.n%missesKept] = float32(math.Abs(came-said) / said)
	m.n++
}

// median is false before minMisses samples.
func (m *misses) median() (float64, bool) {
	n := min(m.n, missesKept)
	if n < minMisses {
		return 0, false
	}
	sorted := m.last
	slices.Sort(sorted[:n])
	return float64(sorted[(n-1)/2]+sorted[n/2]) / 2, true
}

// miss is the median error of the last legs, or nil before there were enough.
func (l *line) miss() *float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e, ok := l.misses.median(); ok {
		return &e
	}
	return nil
}
