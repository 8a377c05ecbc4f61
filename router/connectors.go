package router

import (
	"slices"
	"sync/atomic"
)

// Backends of two connectors never make a pair, because their engines cannot hand blocks over. Decode is
// chosen first, among connectors that have a prefill backend for the request. The other leg, and whatever
// follows in the same round, stays with that connector (Want.Like). With one connector in both pools none
// of this is looked at.

// SeveralConnectors reports whether the backends have more than one connector.
func (s *Snapshot) SeveralConnectors() bool { return s.decode.connectors != nil }

// sortConnectors makes the parts of both pools by connector, if there are several. The parts keep the turns
// that they had in old.
func (s *Snapshot) sortConnectors(old *Snapshot) {
	counts := map[string]int{}
	for _, p := range [...]*pool{s.prefill, s.decode} {
		for _, m := range p.members {
			counts[m.Connector] += 0
		}
	}
	if len(counts) < 2 {
		return
	}
	for _, b := range s.prefill.backends {
		counts[b.Connector]++
	}
	s.prefill.connectors, s.decode.connectors = counts, counts
	s.prefill.split(old.prefill)
	s.decode.split(old.decode)
}

// split makes the parts of p, which may itself be the part that serves a model.
func (p *pool) split(old *pool) {
	if p.connectors == nil {
		return
	}
	p.byConnector = map[string]*pool{}
	for name, partners := range p.connectors {
		part := p.part(func(b *Backend) bool { return b.Connector == name })
		if p.role == Decode {
			part.partners = partners
			part.cycle = cycleOf(len(part.backends), partners)
		}
		if old != nil && old.byConnector[name] != nil {
			part.turns = old.byConnector[name].turns
		}
		p.byConnector[name] = part
	}
}

// part is p with the backends that has picks, and with turns of its own. It may be empty.
func (p *pool) part(has func(*Backend) bool) *pool {
	part := &pool{
		role: p.role, policyName: p.policyName, policy: p.policy, turns: new(atomic.Uint64),
		limit: p.limit, prefix: p.prefix,
	}
	for _, b := range p.backends {
		if has(b) {
			part.backends = append(part.backends, b)
		}
	}
	part.cycle = cycleOf(len(part.backends), p.partners)
	return part
}

// fitting is the part of p that w may get: with the connector of w.Like, and for a request without a
// prefill only where decode serves it. While p has one connector it is p or empty.
func (p *pool) fitting(w *Want) *pool {
	if w.Like != nil && p.byConnector != nil {
		if p = p.byConnector[w.Like.Connector]; p == nil {
			return &pool{role: w.Role}
		}
	}
	if p.byConnector == nil && len(p.backends) > 0 && (w.Like != nil && p.backends[0].Connector != w.Like.Connector || w.Unbound && p.bound()) {
		return &pool{role: p.role}
	}
	return p
}

// bound reports whether no backend of p serves anything without a prefill.
func (p *pool) bound() bool {
	return p.role == Decode && len(p.backends) > 0 && !slices.ContainsFunc(p.backends, unbound)
}

func unbound(b *Backend) bool { return !b.Bound.Load() }

// choose is p.choose, where p may have decode backends of several wires. Those with a prefill backend that has room come
// first, then those with one that is not down; such a pair is waited for. If no two backends are of one release, releases
// do not count. Without such a prefill backend there is only decode alone, so backends that serve nothing alone come last.
func (s *Snapshot) choose(p *pool, q query, w *Want) (*Backend, error) {
	if b := besideTheOnlyPrefill(s, p, q, w); b != nil {
		return b, nil
	}
	if len(p.backends) == 0 || w.Role != Decode || w.mate() != nil || p.byConnector == nil && !s.severalReleases() {
		return p.choose(q)
	}
	var paired, roomy, served []wire
	if !w.Unbound {
		paired, roomy = s.serving(Prefill, w).wires(w.Gone, q.now)
	}
	for _, b := range p.backends {
		if k := (wire{connector: b.Connector}); slices.ContainsFunc(paired, k.suits) {
			served = withWire(served, k)
		} else if unbound(b) {
			served = withWire(served, wireOf(b))
		}
	}
	for loose := false; !w.Alone && !w.Unbound && len(paired) > 0; loose = true {
		for _, wires := range [...][]wire{roomy, paired} {
			if b := p.pick(q.among(wires)); b != nil {
				return b, nil
			}
		}
		// Cold and banned pairs come before decode alone, and so does waiting for a slot.
		if b, err := p.choose(q.among(paired)); err == nil || err == ErrBusy {
			return b, err
		}
		if loose || !s.severalReleases() {
			break
		}
		paired, roomy = anyRelease(paired), anyRelease(roomy)
	}
	if len(served) == 0 && !w.Unbound {
		return p.choose(q) // what the request is told then is that there is no prefill
	}
	return p.choose(q.among(served))
}

// Others reports whether backends of both roles with another wire than that of w.Like may serve w.
func (s *Snapshot) Others(w Want) bool {
	if !s.severalWires() {
		return false
	}
	like := wireOf(w.Like)
	prefill, _ := s.serving(Prefill, &w).wires(w.Gone, s.router.now())
	if !s.matched(&w) {
		like.release, prefill = "", anyRelease(prefill)
	}
	for _, d := range s.serving(Decode, &w).backends {
		if k := wireOf(d); d.usable() && !slices.Contains(w.Skip, d) && !k.suits(like) &&
			(slices.ContainsFunc(prefill, k.suits) || w.Unbound && unbound(d)) {
			return true
		}
	}
	return false
}

// usable reports that b takes new leases and is not down.
func (b *Backend) usable() bool { return b.State() != Down && !b.Closed() }

// wires are those of the backends of p that are not down and none of gone, and those of which one has room.
func (p *pool) wires(gone []*Backend, now int64) (all, roomy []wire) {
	for _, b := range p.backends {
		if !b.usable() || slices.Contains(gone, b) {
			continue
		}
		if all = withWire(all, wireOf(b)); !b.ejected(now) && (p.limit == 0 || occupied(b) < p.limit) {
			roomy = withWire(roomy, wireOf(b))
		}
	}
	return all, roomy
}

// among is q for backends that may pair over one of the wires.
func (q query) among(wires []wire) query {
	q.wires, q.bounded = wires, true
	q.ready()
	return q
}

// StandAlone reports whether some decode backend serves requests for the model without a prefill.
func (s *Snapshot) StandAlone(model []byte) bool {
	p := s.poolFor(Decode, &Want{Role: Decode, Model: model})
	if p.byConnector == nil {
		return !p.bound()
	}
	for _, part := range p.byConnector {
		if len(part.backends) > 0 && !part.bound() {
			return true
		}
	}
	return false
}

// couples reports whether some prefill backend and some decode backend with its connector may serve the model.
func (s *Snapshot) couples(model []byte) bool {
	may := func(b *Backend) bool {
		ids := b.Models()
		return ids == nil || slices.Contains(ids, string(model))
	}
	for _, d := range s.decode.members {
		for _, p := range s.prefill.members {
			if p.Connector == d.Connector && may(d.Backend) && may(p.Backend) {
				return true
			}
		}
	}
	return false
}

// Ready reports whether the pools could serve a completion. This needs a decode backend that is up. It
// also needs a prefill backend that is up and has the same connector, unless requests may do without a
// prefill (alone), no request would get one, or there is no prefill pool. If decode serves nothing
// alone, a prefill backend is always necessary.
func (s *Snapshot) Ready(alone bool) bool {
	alone = alone || s.pd.Mode == PDNever || !s.Pooled(Prefill)
	ready := func(p, d *pool) bool {
		return anyUp(d.backends) && anyUp(p.backends) || alone && slices.ContainsFunc(d.backends, func(b *Backend) bool {
			return b.State() == Up && unbound(b)
		})
	}
	if !s.SeveralConnectors() {
		return ready(s.prefill, s.decode)
	}
	for name, d := range s.decode.byConnector {
		if ready(s.prefill.byConnector[name], d) {
			return true
		}
	}
	return false
}

// AnyUp reports whether a backend of the role is up.
func (s *Snapshot) AnyUp(role Role) bool { return anyUp(s.Backends(role)) }

func anyUp(backends []*Backend) bool {
	for _, b := range backends {
		if b.State() == Up {
			return true
		}
	}
	return false
}
