package router

import "math"

// Affinity keeps requests that belong together on the same backends, as far as the load on these
// backends allows.
type Affinity struct {
	// Headers are request headers whose value names a session. The first one that a request has counts.
	// Without headers there is no affinity.
	Headers []string `mapstructure:"headers"`
}

const (
	// loadBound is how far above the mean of its pool the load of a backend may be for it to get
	// one more request of its sessions.
	loadBound = 1.25
	// freeLoad is the number of leases up to which a backend keeps its sessions whatever the mean
	// is. Engines batch, so a few requests at once do not slow each other down.
	freeLoad = 4
)

// rendezvous names the backend that ranks first for the key, of those that have room, or nil if
// none is fit. Each router with the same backends names the same one. Each key has its own order,
// so the keys of a backend that goes are spread over all others, and return when it does.
func rendezvous(backends []*Backend, q *query, key uint64) *Backend {
	full := fullLoad(backends, q)
	var best *Backend
	least, top := math.Inf(1), uint64(0)
	for _, b := range backends {
		rank := mix(b.seed^key) >> 11
		if rank < top && b.inflight.word.Load() < q.plain {
			continue // an earlier one has room and a full share, and ranks higher
		}
		share := q.share(b)
		if share == 0 || float64(b.inflight.Load()+besides(b, false)+1) > math.Ceil(full*share) {
			continue
		}
		// The cost of the key at b is distributed exponentially. Divided by the share, each backend
		// is the cheapest in proportion to its share.
		if share == 1 {
			top = max(top, rank)
		}
		u := (float64(rank) + 1) / (1 << 53)
		if (1-u)/share >= least {
			continue // -ln(u) is not below 1-u
		}
		if cost := -math.Log(u) / share; cost < least {
			best, least = b, cost
		}
	}
	return best
}

// fullLoad is how many leases a backend with a full share may have.
func fullLoad(backends []*Backend, q *query) float64 {
	leases, whole, shares := int64(1), 0, 0.0
	for _, b := range backends {
		if n := b.inflight.word.Load(); n < q.plain {
			leases += n
			whole++
			continue
		}
		if share := q.share(b); share > 0 {
			leases += b.inflight.Load() + besides(b, false)
			shares += share
		}
	}
	return max(freeLoad, loadBound*float64(leases)/(float64(whole)+shares))
}

// mix spreads the bits of x over the whole result (the end of splitmix64).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// hashOf is FNV-1a, which gives the same hash in every process.
func hashOf(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}

// KeyOf makes the Key of a Want from the value that names a session. It is 0 if nothing does.
func KeyOf(session []byte) uint64 {
	if len(session) == 0 {
		return 0
	}
	return max(1, hashOf(string(session)))
}
