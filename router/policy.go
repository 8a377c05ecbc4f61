package router

import "sync/atomic"

// policy chooses one of a pool's usable backends. now is the router's clock in
// nanoseconds; skip holds the backends that this request has tried before.
type policy interface {
	pick(backends []*Backend, skip []*Backend, now int64) *Backend
}

func newPolicy(name string) policy {
	if name == "round_robin" {
		return &roundRobin{}
	}
	return &leastRequest{}
}

// usable reports whether b may be picked: not tried by this request, and not in the
// second after a refused connection (patient lifts that).
func usable(b *Backend, skip []*Backend, now int64, patient bool) bool {
	for _, s := range skip {
		if s == b {
			return false
		}
	}
	return patient || b.refusedUntil.Load() <= now
}

// roundRobin walks the pool; a skipped backend gives its turn to the next one.
type roundRobin struct{ next atomic.Uint64 }

func (p *roundRobin) pick(backends, skip []*Backend, now int64) *Backend {
	start := p.next.Add(1) - 1
	n := uint64(len(backends))
	for _, patient := range [...]bool{false, true} {
		for i := range n {
			if b := backends[(start+i)%n]; usable(b, skip, now, patient) {
				return b
			}
		}
	}
	return nil
}

// leastRequest takes the backend with the fewest leases; a rotating start spreads ties.
type leastRequest struct{ next atomic.Uint64 }

func (p *leastRequest) pick(backends, skip []*Backend, now int64) *Backend {
	start := p.next.Add(1) - 1
	n := uint64(len(backends))
	for _, patient := range [...]bool{false, true} {
		var best *Backend
		var load int64
		for i := range n {
			b := backends[(start+i)%n]
			if !usable(b, skip, now, patient) {
				continue
			}
			if l := b.inflight.Load(); best == nil || l < load {
				best, load = b, l
			}
		}
		if best != nil {
			return best
		}
	}
	return nil
}
