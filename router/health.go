package router

import (
	"slices"
	"time"

	"xpyd/router/price"
)

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
// for certain. An engine that is down because it is wedged has shown that it is not.
func (b *Backend) Irreplaceable() bool {
	s := b.router.Snapshot()
	return b.hung.Load() && !b.Trouble.down() && s.AdminState(b) != "" && !slices.ContainsFunc(s.Backends(b.Role), func(o *Backend) bool {
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
	if b.Trouble.down() {
		return Down // whatever its /health says
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
			o.down.fire(watches(o, true))
		}
	}
	if to == Down {
		b.down.fire(watches(b, !b.Irreplaceable()))
	}
	b.router.serveAll() // backends with its wire may be of use now, or those of no other
}

// watches are those that a backend which is Down tells: all, but streams only if it is wedged, and legs only if they may move.
func watches(b *Backend, legs bool) func(*Watch) bool {
	streams := b.Trouble.down()
	return func(w *Watch) bool {
		switch w.of {
		case ofLeg:
			return legs
		case ofStream:
			return streams
		}
		return true
	}
}

// Wedge notes that b's engine gives nothing, in each of its roles. While it is not Down, new requests pass it over if others
// may have them, see Defer, and the legs without a byte of an answer go elsewhere at once if there is another. With Down it is
// as after failed checks, but also its streams end, and no passed check brings it back. Unwedge does.
func Wedge(b *Backend, w Wedged) {
	eachRole(b, func(x *Backend) {
		x.router.mu.Lock()
		was := x.State()
		to := was
		x.Trouble.wedged.Store(&w)
		if w.Down {
			to = Down
			x.enter(to)
		}
		x.router.mu.Unlock()
		switch {
		case was == to && to == Down:
			x.down.fire(watches(x, true))
		case w.Down:
			x.announce(was, to)
		case slices.ContainsFunc(x.router.Snapshot().Backends(x.Role), func(o *Backend) bool {
			return o != x && o.usable() && o.Trouble.Wedged() == nil && x.sharesModel(o)
		}):
			x.down.fire(func(w *Watch) bool { return w.of == ofLeg })
		}
	})
}

// Unwedge ends what Wedge began. serves says that the engine has given something, so it comes up if it is Down for that alone.
func Unwedge(b *Backend, serves bool) {
	eachRole(b, func(x *Backend) {
		x.router.mu.Lock()
		was, w := x.State(), x.Trouble.wedged.Swap(nil)
		to := was
		if serves {
			x.clearRefused() // what passed it over
		}
		if w != nil && w.Down && serves {
			to = Up
			x.checkFails.Store(0)
			x.enter(to)
		}
		x.router.mu.Unlock()
		x.announce(was, to)
	})
}

// Slowed notes how slow b is, or with nil that it is not slow. A slow engine takes as much of its weight as its speed allows.
func Slowed(b *Backend, s *Slow) {
	b.router.mu.Lock()
	defer b.router.mu.Unlock()
	if b.Trouble.slow.Store(s); s == nil {
		b.Trouble.spared.Store(false)
	}
	b.setWeight(b.Trouble.weight())
}

// Expected is how long b needs at most, by the prices, for all that it has to compute now. known is false if it has to
// compute something for which there is no price.
func Expected(b *Backend) (took time.Duration, known bool) {
	r := b.router
	work, tokens, prompts := price.Prefill, b.tokens.Load(), b.InFlight()
	if b.Role == Decode {
		work, prompts = price.Local, b.computers.Load()
		if tokens = b.computing.Load(); b.whole.Load() > r.now() {
			tokens = b.tokens.Load()
		}
	}
	if tokens <= 0 {
		return 0, true
	}
	if !r.prices.Known(work) {
		work = price.Prefill // what decode engines compute costs as much, until there is a price for it
	}
	if !r.prices.Known(work) || !r.prices.Seen(work, int(tokens/max(prompts, 1)/pricedFar)) {
		return 0, false
	}
	return time.Duration(r.prices.Cost(work, float64(tokens)) * 1e9), true
}

// pricedFar is by how many times the longest prompt so far may be exceeded until its price tells nothing.
const pricedFar = 4
