package router

import "slices"

// State is the result of the active checks. Picks, readiness and reports use it.
type State int32

// States of a backend. Unknown counts as usable, because xpyd may start before its engines. The router
// never picks a backend that is Down.
const (
	Unknown State = iota
	Up
	Down
)

// String is the state in reports.
func (s State) String() string { return [...]string{"unknown", "up", "down"}[s] }

// State is the latest result of the active checks.
func (b *Backend) State() State { return State(b.state.Load()) }

// Observe takes in the result of one active check. changed reports whether State has changed. The first
// success makes an Unknown backend Up, and health.rise in a row make a Down one Up. health.fall
// failures in a row make any backend Down. Neither changes an ejection. The checks of one engine must
// not overlap. When it goes Down, Observe calls the OnDown functions of its leases before it returns.
func (b *Backend) Observe(ok bool) (changed bool) {
	var was, to [2]State // of b and its twin
	r := b.router
	r.mu.Lock()
	both := [2]*Backend{b, b.Twin()}
	for i, x := range both {
		if x != nil {
			was[i], to[i] = x.State(), x.judge(ok)
			x.enter(to[i])
		}
	}
	r.mu.Unlock()
	for i, x := range both {
		if x != nil {
			x.announce(was[i], to[i])
		}
	}
	return was != to
}

// SetHung notes how the last active check failed. hung means that no connection was refused or broken
// off, so the engine or the network may be frozen and may recover later. Call it before Observe.
func (b *Backend) SetHung(hung bool) { eachRole(b, func(x *Backend) { x.hung.Store(hung) }) }

// Suspect reports whether xpyd should check the backend at the short interval, because the backend is
// not known to be Up, is ejected, or failed its last check or leg.
func (b *Backend) Suspect() bool {
	return b.State() != Up || b.checkFails.Load() > 0 || b.failures.Load() > 0 || b.Ejected()
}

// Irreplaceable reports of a backend that is Down that its checks got no answer in time, and that no other backend of its
// pool that may serve its models is usable. It may only be slow, so its legs keep their own limits: elsewhere they would end
// for certain.
func (b *Backend) Irreplaceable() bool {
	s := b.router.Snapshot()
	return b.Hung() && s.AdminState(b) != "" && !slices.ContainsFunc(s.Backends(b.Role), func(o *Backend) bool {
		return o != b && o.usable() && b.sharesModel(o)
	})
}

// Fit reports whether a leg that reserved the backend a while ago should still go there. It should if
// the backend is neither Down nor ejected.
func (b *Backend) Fit() bool { return b.State() != Down && !b.Ejected() }

// judged reports whether the checks have found out whether b serves. An engine that tells its ranks is Down
// until it has told them.
func (b *Backend) judged() bool {
	if b.Rank == AutoRank {
		return int(b.checkFails.Load()) >= b.router.Snapshot().health.Fall
	}
	return b.State() != Unknown
}

// judge counts a check and returns the state that follows. Called under router.mu.
func (b *Backend) judge(ok bool) State {
	h := &b.router.Snapshot().health
	was := b.State()
	if b.abandoned {
		b.checkFails.Add(1) // see judged
		return Down
	}
	if !ok {
		b.checkOKs.Store(0)
		if int(b.checkFails.Add(1)) >= h.Fall {
			return Down
		}
		return was
	}
	b.checkFails.Store(0)
	if oks := int(b.checkOKs.Add(1)); was == Unknown || was == Down && oks >= h.Rise {
		return Up
	}
	return was
}

// enter changes the state. Called under router.mu.
func (b *Backend) enter(to State) {
	if b.State() == Down && to == Up {
		b.ramp(b.router.now())
		b.down.cameUp()
	}
	b.setState(to)
}

// announce tells the legs on the backend that it went Down, and the queue that slots have come or gone. Legs that stayed
// on an Irreplaceable backend hear of it as soon as another one comes up.
func (b *Backend) announce(was, to State) {
	if was == to {
		return
	}
	for _, o := range b.router.Snapshot().Backends(b.Role) {
		if to == Up && o.State() == Down && !o.Irreplaceable() {
			o.down.fire(everyWatch)
		}
	}
	if to == Down {
		stays := b.Irreplaceable()
		b.down.fire(func(w *Watch) bool { return !w.leg || !stays })
	}
	b.router.serveAll() // backends with its wire may be of use now, or those of no other
}
