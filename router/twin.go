package router

import (
	"slices"
	"sync/atomic"

	"xpyd/router/way"
)

// An engine without a role is a backend in the prefill pool and one in the decode pool, which are twins. What
// concerns its process is true of both: whether it is up, refuses connections or hangs, when it restarted, what
// its metrics and models are. So one check and one poll do for both, and what is noted of one twin is noted of
// the other. Each has its own leases, caches, pairs and failures, because an engine may fail in one role alone.
// Its load is that of both.

// kin is what a backend knows of its twin. Written under router.mu, when a snapshot comes into force.
type kin struct {
	twin atomic.Pointer[Backend]
	lane way.Engine // of decode, if it has a twin; see laneOf
}

// Twin is the same engine in the other role, or nil for a backend whose engine has one role.
func (k *kin) Twin() *Backend { return k.twin.Load() }

// checked is what the active checks of a backend have found. Written under router.mu, but for hung.
type checked struct {
	checkFails atomic.Int32 // in a row
	checkOKs   atomic.Int32 // in a row
	abandoned  bool         // it stays Down, see Abandon and AutoRank; also read under router.mu
	hung       atomic.Bool  // see SetHung
	Trouble    Trouble
}

// Hung reports that the engine may be frozen, by what SetHung set last or because it is wedged, and may go on later.
func (c *checked) Hung() bool { return c.hung.Load() || c.Trouble.down() }

// eachRole calls f for b and for its twin.
func eachRole(b *Backend, f func(*Backend)) {
	f(b)
	if t := b.Twin(); t != nil {
		f(t)
	}
}

// SharesEngine reports whether two backends are on one server, in whatever roles or ranks. They never make a pair,
// because no engine can pull blocks from itself.
func SharesEngine(a, b *Backend) bool { return a.Addr == b.Addr && a.Prefix == b.Prefix }

// besides is what b's engine has in flight in its other role: requests, or prompt tokens.
func besides(b *Backend, tokens bool) int64 {
	if t := b.Twin(); t != nil {
		return t.own(tokens)
	}
	return 0
}

// besidesWork is the prompt tokens that b's engine still has to compute in its other role. For a prefill, each stream
// that the engine decodes counts as a block.
func besidesWork(b *Backend, now int64, block float64) float64 {
	t := b.Twin()
	switch {
	case t == nil:
		return 0
	case t.Role == Prefill:
		return t.backlog(now, rateOf(t.router.prices.Pace()))
	}
	return t.local(now, rateOf(t.router.prices.LocalPace())) + block*float64(t.inflight.Load())
}

// occupied is what counts against the cap of b.
func occupied(b *Backend) int64 { return b.inflight.Load() + occupiedBesides(b) }

// occupiedBesides is the part of it in the engine's other role. The cap of decode is on all that the engine has, and that
// of prefill on prefills alone: a request holds its slot on D while it waits for one on P, so if each of the two slots
// counted against the other, requests would wait for one another.
func occupiedBesides(b *Backend) int64 {
	if b.Role == Decode {
		return besides(b, false)
	}
	return 0
}

// reserveWithin takes a slot on b, unless that would exceed the limit. 0 is none. What b itself has in flight is read
// once, by reserve: it changes all the time.
func reserveWithin(b *Backend, limit int64) bool {
	if limit > 0 {
		if limit -= occupiedBesides(b); limit <= 0 {
			return false
		}
	}
	return b.inflight.reserve(limit)
}

// Lone reports whether the engine of decode backend d has no role, and no other engine could do the prefill of the request:
// it is to be served whole. w is what the prefill leg asks for.
func (s *Snapshot) Lone(d *Backend, w Want) bool {
	return d.Twin() != nil && !slices.ContainsFunc(s.poolFor(Prefill, &w).backends, func(p *Backend) bool {
		return p.usable() && !SharesEngine(p, d)
	})
}

// besideTheOnlyPrefill chooses a decode backend where each request is to be split and one engine without a role is the only
// one that could do its prefill: that engine would have to serve it whole. It returns nil where that is not so, or nobody
// else is fit.
func besideTheOnlyPrefill(s *Snapshot, p *pool, q query, w *Want) *Backend {
	if !s.router.shared.Load() || s.pd.Mode != PDAlways || w.Role != Decode || w.Alone || w.Unbound || w.mate() != nil || s.severalWires() {
		return nil
	}
	var only *Backend
	for _, b := range s.serving(Prefill, w).backends {
		switch {
		case !b.usable() || slices.Contains(w.Gone, b):
		case only == nil:
			only = b
		case !SharesEngine(only, b):
			return nil
		}
	}
	if only == nil || only.Twin() == nil {
		return nil
	}
	q.apart = only
	q.ready()
	return p.pick(q)
}

// twinsOf are the engines without a role among the members of both pools.
func twinsOf(s *Snapshot) (all []Pair) {
	of := map[string]*Backend{}
	for _, m := range s.prefill.members {
		if m.Entry.Role == Both {
			of[m.URL] = m.Backend
		}
	}
	for _, m := range s.decode.members {
		if p := of[m.URL]; p != nil && m.Entry.Role == Both {
			all = append(all, Pair{p, m.Backend})
		}
	}
	return all
}

// relate makes twins of those of s, and ends what those of old were that are none in s. A twin that has joined takes over
// what is known of the other one's process. Called under router.mu.
func relate(s, old *Snapshot) {
	now, before := twinsOf(s), slices.Concat(old.prefill.all(), old.decode.all())
	if len(now) > 0 || swapsRoles(s, old) {
		s.router.shared.Store(true)
	}
	for _, x := range twinsOf(old) {
		if !slices.Contains(now, x) {
			x.Prefill.twin.Store(nil)
			x.Decode.twin.Store(nil)
		}
	}
	for _, x := range now {
		if x.Prefill.Twin() == x.Decode {
			continue
		}
		switch {
		case slices.Contains(before, x.Prefill):
			takeAfter(x.Decode, x.Prefill)
		case slices.Contains(before, x.Decode):
			takeAfter(x.Prefill, x.Decode)
		}
		x.Prefill.twin.Store(x.Decode)
		x.Decode.twin.Store(x.Prefill)
		x.Prefill.mark() // for as long as they are twins, choices look at both
		x.Decode.mark()
	}
}

// swapsRoles reports whether an engine of one pool of s is in the other pool of old. A request that has begun with old may
// have one of its legs there.
func swapsRoles(s, old *Snapshot) bool {
	for _, x := range [...][2]*pool{{s.prefill, old.decode}, {s.decode, old.prefill}} {
		for _, b := range x[0].all() {
			if slices.ContainsFunc(x[1].all(), func(o *Backend) bool { return SharesEngine(b, o) }) {
				return true
			}
		}
	}
	return false
}

// takeAfter copies what is known of the process of o, the same engine in another role.
func takeAfter(b, o *Backend) {
	b.checkFails.Store(o.checkFails.Load())
	b.checkOKs.Store(o.checkOKs.Load())
	b.hung.Store(o.hung.Load())
	b.Trouble.wedged.Store(o.Trouble.wedged.Load())
	b.setState(o.State())
	b.setRefused(o.refusedUntil.Load())
	b.engine.Store(o.engine.Load())
	b.freshUntil.Store(o.freshUntil.Load())
	b.setExternal(o.external.Load())
	b.version.Store(o.version.Load())
	b.models.Store(o.models.Load())
	b.longest.Store(o.longest.Load())
}
