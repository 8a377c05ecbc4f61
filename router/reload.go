package router

import "slices"

// Change says what a reload did to the pools.
type Change struct {
	Joined  []*Backend // only in the new snapshot
	Left    []*Backend // only in the old snapshot; leases on them stay valid
	Resumed []*Backend // in both, and ready again
}

// Reload replaces the current snapshot by one for cfg, or returns an error and changes nothing. A
// backend whose URL stays in its pool stays the same object and keeps its leases, health, models and
// version. prepare gets the change before any request can see it, so that it can connect to backends
// that join. It may be nil.
func (r *Router) Reload(cfg Config, maxShare float64, prepare func(Change)) (Change, error) {
	r.reloading.Lock()
	defer r.reloading.Unlock()
	old := r.Snapshot()
	s, err := r.build(cfg, maxShare, old)
	if err != nil {
		return Change{}, err
	}
	var c Change
	for _, role := range Roles() {
		now, before := s.pool(role), old.pool(role)
		c.Joined = appendMissing(c.Joined, now.all(), before.all())
		c.Left = appendMissing(c.Left, before.all(), now.all())
	}
	if prepare != nil {
		prepare(c)
	}
	c.Resumed = r.swap(s, c)
	r.serveAll()
	return c, nil
}

// swap puts s in force. It returns the backends that are ready again.
func (r *Router) swap(s *Snapshot, c Change) (resumed []*Backend) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	relate(s, r.Snapshot())
	for _, b := range c.Joined {
		b.ramp(now)
	}
	for _, b := range c.Left {
		r.pairs.drop(func(x Pair) bool { return x.has(b) })
		r.pairs.transfers.forget(b)
		r.pairs.warmAll(b, r.Snapshot().pool(b.Role.partner()).all())
	}
	for _, p := range s.pools() {
		if s.health.EjectAfter == 0 {
			for _, b := range p.all() {
				b.lift(now)
			}
		}
		p.spareHalf(now)
		p.weigh()
		p.seat(r.Snapshot().pool(p.role))
		p.sortModels(r.Snapshot().pool(p.role))
	}
	r.releases.Store(s.mixesReleases())
	resumed = s.admit(now)
	s.shut(r.snapshot.Swap(s))
	return resumed
}

// appendMissing appends to dst the backends of a that are not in b.
func appendMissing(dst, a, b []*Backend) []*Backend {
	for _, x := range a {
		if !slices.Contains(b, x) {
			dst = append(dst, x)
		}
	}
	return dst
}
