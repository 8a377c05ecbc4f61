package router

import "slices"

// AdminState is what an operator wants of a backend. Its health is a separate matter, see State.
type AdminState string

// The states. A backend that is not Ready gets no new requests, and its running requests continue.
const (
	Ready AdminState = "ready"
	// Drain is for a backend that will be Ready again soon, so xpyd still reads its engine's metrics.
	Drain AdminState = "drain"
	// Disabled is for a backend that will not, so xpyd asks its engine only for its health.
	Disabled AdminState = "disabled"
)

// AdminStates returns all administrative states.
func AdminStates() []AdminState { return []AdminState{Ready, Drain, Disabled} }

// Member is a backend as its pool has it.
type Member struct {
	*Backend
	Entry Entry
}

// Members lists all backends of the role, in the order of the configuration. Backends lists those
// that are Ready. The slice must not be changed.
func (s *Snapshot) Members(role Role) []Member { return s.pool(role).members }

// Found reports whether b's engine tells xpyd how many ranks it has.
func (s *Snapshot) Found(b *Backend) bool { return slices.Contains(s.found, b.Base()) }

// Pooled reports whether the role has a backend, ready or not.
func (s *Snapshot) Pooled(role Role) bool { return len(s.pool(role).members) > 0 }

// Withdrawn reports whether operators have drained or disabled every backend of the role.
func (s *Snapshot) Withdrawn(role Role) bool { return s.Pooled(role) && len(s.Backends(role)) == 0 }

// AdminState is the state of b, or empty if b is not in the pools.
func (s *Snapshot) AdminState(b *Backend) AdminState {
	for _, m := range s.Members(b.Role) {
		if m.Backend == b {
			return m.Entry.State
		}
	}
	return ""
}

// all lists the backends of the members.
func (p *pool) all() (all []*Backend) {
	for _, m := range p.members {
		all = append(all, m.Backend)
	}
	return all
}

// Closed reports whether the backend takes no new leases, because it is not Ready or has left its
// pool.
func (b *Backend) Closed() bool { return b.inflight.word.Load()&closed != 0 }

// Drained reports whether the backend takes no new leases and is no longer in use.
func (b *Backend) Drained() bool { return b.Closed() && !b.InUse() }

// Abandon moves the requests that still wait for an answer from b to other backends, as if a check had
// taken b down. b has left its pool, and no check brings it back. A request that has reserved b and has
// not been sent goes elsewhere too.
func (b *Backend) Abandon() {
	b.router.mu.Lock()
	was := b.State()
	b.abandoned = true
	b.enter(Down)
	b.router.mu.Unlock()
	b.announce(was, Down)
}

// admit opens the backends that are ready, before requests see s. It returns those that were closed.
// Called under router.mu.
func (s *Snapshot) admit(now int64) (resumed []*Backend) {
	for _, p := range s.pools() {
		for _, b := range p.backends {
			if b.Closed() {
				b.ramp(now)
				b.inflight.open()
				resumed = append(resumed, b)
			}
		}
	}
	return resumed
}

// shut closes the backends of s and of the snapshot before it that are not ready in s. Requests see
// s by then. One that still has the old snapshot turns to s if it finds nobody there.
func (s *Snapshot) shut(before *Snapshot) {
	for _, snap := range [...]*Snapshot{before, s} {
		for _, role := range Roles() {
			for _, m := range snap.Members(role) {
				if !slices.Contains(s.Backends(role), m.Backend) {
					m.inflight.close()
				}
			}
		}
	}
}

// newer returns the current snapshot for a request that found no backend in s, or nil if that is s.
func (s *Snapshot) newer() *Snapshot {
	if now := s.router.Snapshot(); now != s {
		return now
	}
	return nil
}
