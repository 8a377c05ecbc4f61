package router

import "math"

// Affinity keeps requests that belong together on the same backends, as far as their
// load allows it.
type Affinity struct {
	// Headers of a request whose value names its session; the first one that it has
	// counts. None: no affinity.
	Headers []string `mapstructure:"headers"`
}

const (
	// loadBound is how far above the mean of its pool the load of a backend may be for it
	// to get one more request for its affinity.
	loadBound = 1.25
	// freeLoad is the leases up to which a backend keeps its sessions whatever the mean is:
	// engines batch, so that few at once slow nobody down.
	freeLoad = 4
)

// rendezvous names the backend that ranks first for the key, of those that have room: the
// same for each router with the same backends. Each key has an order of its own, so that
// the keys of one that goes are spread over all others, and come back with it. nil: none
// is fit.
func rendezvous(backends []*Backend, q *query, key uint64) *Backend {
	full := fullLoad(backends, q)
	var best, light *Backend // of those with a whole share, and of the others
	var top uint64
	least := math.Inf(1)
	for _, b := range backends {
		if !q.fit(b) {
			continue
		}
		n, f := float64(b.inflight.Load()), b.factor(q)
		switch rank := mix(b.seed ^ key); {
		case n+1 > math.Ceil(full*f):
		case f < 1:
			if cost := costOf(rank) / f; cost < least {
				light, least = b, cost
			}
		case best == nil || rank > top:
			best, top = b, rank
		}
	}
	if best == nil || light != nil && least < costOf(top) {
		return light
	}
	return best
}

// fullLoad is how many leases a backend with a whole share may come to have.
func fullLoad(backends []*Backend, q *query) float64 {
	leases, shares := int64(1), 0.0
	for _, b := range backends {
		if q.fit(b) {
			leases += b.inflight.Load()
			shares += b.factor(q)
		}
	}
	return max(freeLoad, loadBound*float64(leases)/shares)
}

// costOf makes of the rank of a backend a cost that is exponentially distributed: divided
// by a share, the least one is that of each backend in proportion to its share.
func costOf(rank uint64) float64 { return -math.Log((float64(rank>>11) + 1) / (1 << 53)) }

// mix spreads the bits of x over all of the result (the end of splitmix64).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// hashOf is FNV-1a: the same in each process.
func hashOf(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}

// KeyOf makes the Key of a Want out of what names a session; 0 of nothing.
func KeyOf(session []byte) uint64 {
	if len(session) == 0 {
		return 0
	}
	return max(1, hashOf(string(session)))
}
