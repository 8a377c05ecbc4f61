package router

import (
	"slices"
	"time"
)

// EjectReason says why a backend is ejected. It is a closed set of label values.
type EjectReason string

// Reasons of an ejection.
const (
	EjectFailures EjectReason = "failures" // eject_after failed legs in a row
	EjectAuth     EjectReason = "auth"     // it refused xpyd's key, which only an operator can change
	EjectKVLoad   EjectReason = "kv_load"  // transfers with several partners failed
	EjectStall    EjectReason = "stall"    // all of its streams have stopped
	EjectSlow     EjectReason = "slow"     // it is slow, and health.slow_eject is set
)

// Words is the reason for people.
func (r EjectReason) Words() string {
	switch r {
	case EjectAuth:
		return "it refused xpyd's key"
	case EjectKVLoad:
		return "transfers of blocks with several partners failed"
	case EjectStall:
		return "all of its streams stand still"
	case EjectSlow:
		return "it is slow"
	}
	return "legs failed in a row"
}

// Ejection is one decision about a backend, for logs and metrics.
type Ejection struct {
	Backend *Backend
	Reason  EjectReason
	For     time.Duration // 0: spared, because half of its pool is ejected
	Nth     int           // which ejection in a row it is
}

// OnEject makes the router call f after each ejection. The router also calls f when it spares a backend
// for the first time since the last success of that backend. It holds no lock meanwhile, and f must
// return soon. Call OnEject before requests arrive.
func (r *Router) OnEject(f func(Ejection)) { r.onEject.Store(&f) }

// OnBan makes the router call f when a pair is banned, and when the pair has worked again. Its terms are those of OnEject.
func (r *Router) OnBan(f func(x Pair, on bool)) { r.onBan.Store(&f) }

// Eject keeps requests from b's engine, in each of its roles, for health.eject_for times the number of its ejections in a row, at most
// health.eject_max. It returns false if b is already ejected, or is spared because at most half of a
// pool may be ejected at any time.
func (r *Router) Eject(b *Backend, why EjectReason) (ejected bool) {
	eachRole(b, func(x *Backend) {
		r.mu.Lock()
		e := r.eject(x, why)
		r.mu.Unlock()
		r.report(e, why != EjectSlow || e.Backend != nil && !x.Trouble.spared.Swap(e.For == 0)) // what is slow is tried again and again
		ejected = ejected || e.For > 0
	})
	return ejected
}

// Defer passes over b for d while another backend is available, because b has asked for this. It never
// shortens an earlier wait.
func (b *Backend) Defer(d time.Duration) {
	until := b.router.now() + int64(d)
	eachRole(b, func(x *Backend) { x.setRefused(until) })
}

// Ejected reports whether requests pass over the backend because of its failures.
func (b *Backend) Ejected() bool { return b.ejected(b.router.now()) }

func (b *Backend) ejected(now int64) bool { return b.ejectedUntil.Load() > now }

// Ejection returns how long the backend is still ejected (0 if it is not), why, and how many
// ejections it has had in a row.
func (b *Backend) Ejection() (remaining time.Duration, why EjectReason, nth int) {
	r := b.router
	r.mu.Lock()
	defer r.mu.Unlock()
	remaining = time.Duration(max(0, b.ejectedUntil.Load()-r.now()))
	return remaining, b.ejectReason, int(b.ejections.Load())
}

// record feeds the end of a leg into the backend's health.
func (b *Backend) record(o Outcome) {
	switch o {
	case OK:
		if b.failures.Load() != 0 {
			b.failures.Store(0)
		}
		if b.ejections.Load() != 0 {
			b.forgive()
		}
	case ClientGone, NoVerdict, ClientFault, KVLoad:
	case Auth:
		most := max(1, int64(b.router.Snapshot().health.EjectAfter))
		eachRole(b, func(x *Backend) { x.fail(most, EjectAuth) })
	case Refused:
		b.Defer(refusedFor)
		eachRole(b, func(x *Backend) { x.fail(1, EjectFailures) })
	default:
		b.fail(1, EjectFailures)
	}
}

// fail counts a failure. Legs that end on an ejected or wedged backend say nothing new about it.
func (b *Backend) fail(weight int64, why EjectReason) {
	r := b.router
	if b.ejected(r.now()) || b.Trouble.Wedged() != nil {
		return
	}
	n := b.failures.Add(weight)
	after := int64(r.Snapshot().health.EjectAfter)
	if after == 0 || n < after {
		return
	}
	r.mu.Lock()
	e := r.eject(b, why)
	r.mu.Unlock()
	r.report(e, n-weight < after)
}

// forgive ends the row of ejections once the backend has served without one for as long as the
// last one took. It is called at each success.
func (b *Backend) forgive() {
	r := b.router
	now := r.now()
	over := func() bool {
		until := b.ejectedUntil.Load()
		return now >= until+(until-b.ejectedAt.Load())
	}
	if !over() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if over() {
		b.ejections.Store(0)
	}
}

// eject decides under mu. It returns the zero Ejection if there was nothing to decide.
func (r *Router) eject(b *Backend, why EjectReason) Ejection {
	s, now := r.Snapshot(), r.now()
	h := &s.health
	pool := s.Backends(b.Role)
	if h.EjectAfter == 0 || b.ejected(now) || !slices.Contains(pool, b) {
		return Ejection{}
	}
	e := Ejection{Backend: b, Reason: why, Nth: int(b.ejections.Load()) + 1}
	if countEjected(pool, now) >= len(pool)/2 {
		return e
	}
	e.For = min(h.EjectFor*time.Duration(e.Nth), h.EjectMax)
	b.ejections.Store(int32(e.Nth))
	b.ejectedAt.Store(now)
	b.ejectReason = why
	b.failures.Store(0)
	b.setEjected(now + int64(e.For))
	b.ramp(now + int64(e.For))
	r.wakeAt(now + int64(e.For))
	return e
}

func countEjected(pool []*Backend, now int64) (n int) {
	for _, b := range pool {
		if b.ejected(now) {
			n++
		}
	}
	return n
}

// lift ends an ejection before its time. Called under mu.
func (b *Backend) lift(now int64) {
	if b.ejected(now) {
		b.setEjected(now)
		b.ramp(now)
	}
}

// spareHalf lifts ejections until at most half of the pool is ejected, starting with those that end
// first, because the pool may have become smaller. Called under mu.
func (p *pool) spareHalf(now int64) {
	for countEjected(p.backends, now) > len(p.backends)/2 {
		var first *Backend
		for _, b := range p.backends {
			if b.ejected(now) && (first == nil || b.ejectedUntil.Load() < first.ejectedUntil.Load()) {
				first = b
			}
		}
		first.lift(now)
	}
}

// report passes an ejection on. With spared, that includes one that was spared.
func (r *Router) report(e Ejection, spared bool) {
	if f := r.onEject.Load(); f != nil && e.Backend != nil && (e.For > 0 || spared) {
		(*f)(e)
	}
}

// reportBan passes on that a pair is banned, or no longer.
func (r *Router) reportBan(x Pair, on bool) {
	if f := r.onBan.Load(); f != nil {
		(*f)(x, on)
	}
}
