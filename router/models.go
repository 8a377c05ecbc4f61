package router

import (
	"slices"
)

// SetModels records the ids that the engine lists: its base model first, then its other names and its
// adapters. Until then, the backend counts as serving any model.
func (b *Backend) SetModels(ids []string) {
	if was := b.models.Load(); was != nil && slices.Equal(*was, ids) {
		return
	}
	ids = slices.Clone(ids)
	r := b.router
	r.mu.Lock()
	eachRole(b, func(x *Backend) {
		x.models.Store(&ids)
		if p := r.Snapshot().pool(x.Role); slices.Contains(p.all(), x) {
			p.sortModels(p)
		}
	})
	r.mu.Unlock()
	r.serveAll() // a request may wait for a backend with that model, or for one that has a partner now
}

// SetLongest records how many tokens a prompt and its answer may have together (max_model_len). 0 is not known.
func (b *Backend) SetLongest(tokens int) {
	eachRole(b, func(x *Backend) { x.longest.Store(int64(tokens)) })
}

// Longest is what SetLongest has recorded.
func (b *Backend) Longest() int { return int(b.longest.Load()) }

// Shorter reports whether b is known to take only shorter prompts than o.
func (b *Backend) Shorter(o *Backend) bool { return b.Longest() > 0 && b.Longest() < o.Longest() }

// Models are the ids that the engine lists, or nil until they are known. The caller must not change
// them.
func (b *Backend) Models() []string {
	if m := b.models.Load(); m != nil {
		return *m
	}
	return nil
}

// Mixed reports whether the backends of the role serve different models.
func (s *Snapshot) Mixed(role Role) bool { return s.pool(role).models.Load().mixed() }

// listing is what the backends of a pool list together. It never changes.
type listing struct {
	ids     map[string]bool
	whole   bool             // all have listed theirs
	byModel map[string]*pool // the parts of the pool by model; nil: all backends serve the same
}

// mixed reports whether the backends serve different models.
func (l *listing) mixed() bool { return l != nil && l.byModel != nil }

// lists reports whether some backend lists the model.
func (l *listing) lists(model []byte) bool { return l != nil && l.ids[string(model)] }

// lacks reports whether the model is known to be on no backend.
func (l *listing) lacks(model string) bool { return l != nil && l.whole && !l.ids[model] }

// Lacks reports whether it is known that no backend of the role has the model. A request that names no
// model may go to any backend.
func (s *Snapshot) Lacks(role Role, model []byte) bool {
	return model != nil && s.pool(role).models.Load().lacks(string(model))
}

// list makes the listing of the pool, without the parts. What a backend lists that is not ready counts,
// as its requests must not go to engines of other models. If nothing is known of it, it is left out.
func (p *pool) list() *listing {
	all := &listing{ids: map[string]bool{}, whole: true}
	for _, m := range p.members {
		ids := m.models.Load()
		if ids == nil {
			all.whole = all.whole && m.Entry.State != Ready
			continue
		}
		for _, id := range *ids {
			all.ids[id] = true
		}
	}
	return all
}

// OnDecodeOnly reports whether a decode backend lists the model, and each prefill backend with which it
// could make a pair lists only others. It is false without a prefill pool.
func (s *Snapshot) OnDecodeOnly(model []byte) bool {
	p := s.prefill.models.Load()
	if model == nil || len(s.prefill.backends) == 0 || p == nil || !p.whole {
		return false
	}
	if p.ids[string(model)] && (!s.SeveralConnectors() || s.couples(model)) {
		return false
	}
	return s.decode.models.Load().lists(model)
}

// RoleOf returns the role whose backends serve the model alone. It is prefill if prefill backends list
// the model and no decode backend does, and decode otherwise.
func (s *Snapshot) RoleOf(model []byte) Role {
	if model != nil && s.prefill.models.Load().lists(model) && s.decode.models.Load().lacks(string(model)) {
		return Prefill
	}
	return Decode
}

// ModelsKnown reports whether each pool has backends and all backends have listed their models.
func (s *Snapshot) ModelsKnown() bool {
	for _, p := range [...]*pool{s.prefill, s.decode} {
		if l := p.models.Load(); l == nil || !l.whole || len(p.backends) == 0 {
			return false
		}
	}
	return true
}

// OneSided returns, in order, the models that backends of this role list and no backend of the other
// role lists. It returns none until all backends of the other role have listed their models.
func (s *Snapshot) OneSided(role Role) (ids []string) {
	ours, theirs := s.pool(role).models.Load(), s.pool(1-role).models.Load()
	if ours == nil || len(s.Backends(1-role)) == 0 {
		return nil
	}
	for id := range ours.ids {
		if theirs.lacks(id) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// sortModels renews the listing. If the models differ, it has a part of the pool for each, which
// keeps the turns that it had in old. Called under router.mu.
func (p *pool) sortModels(old *pool) {
	now, before := p.list(), old.models.Load()
	if !p.alike() {
		now.byModel = map[string]*pool{}
		for _, m := range p.members {
			for _, id := range m.Models() {
				if now.byModel[id] == nil {
					now.byModel[id] = p.serving(id, before)
				}
			}
		}
	}
	p.models.Store(now)
}

// alike reports whether all backends whose models are known list the same.
func (p *pool) alike() bool {
	var first []string
	for _, m := range p.members {
		ids := m.models.Load()
		if ids == nil {
			continue
		}
		sorted := slices.Sorted(slices.Values(*ids))
		if first == nil {
			first = sorted
		} else if !slices.Equal(first, sorted) {
			return false
		}
	}
	return true
}

// serving is the part of p that serves the model, or may serve it. It may be empty.
func (p *pool) serving(id string, before *listing) *pool {
	part := p.part(func(b *Backend) bool {
		ids := b.models.Load()
		return ids == nil || slices.Contains(*ids, id)
	})
	var old *pool
	if before.mixed() && before.byModel[id] != nil {
		old = before.byModel[id]
		part.turns = old.turns
	}
	part.connectors = p.connectors
	part.split(old)
	return part
}

// poolFor is the part of the role's pool that serves the model of w. A model that no backend lists
// goes to any of them, because an engine may know more than it lists, and otherwise refuses in its
// own words. If w has no model, both legs go to engines of one model.
func (s *Snapshot) poolFor(role Role, w *Want) *pool {
	p := s.serving(role, w)
	if w.Like == nil && !w.Unbound {
		return p
	}
	return p.fitting(w)
}

// serving is poolFor, whatever the connectors.
func (s *Snapshot) serving(role Role, w *Want) *pool {
	p := s.pool(role)
	lists := p.models.Load()
	if !lists.mixed() {
		return p
	}
	part := lists.byModel[string(w.Model)]
	if w.Model == nil && w.Peer != nil {
		if ids := w.Peer.Models(); len(ids) > 0 {
			part = lists.byModel[ids[0]]
		}
	}
	if part == nil {
		return p
	}
	return part
}

// partners are the backends of the other role that make pairs with b, without those that are known to serve other models
// than b.
func (s *Snapshot) partners(b *Backend) (some []*Backend) {
	pairs := s.pairable()
	for _, o := range s.Backends(b.Role.partner()) {
		if pairs(pairOf(b, o)) && b.sharesModel(o) {
			some = append(some, o)
		}
	}
	return some
}

// sharesModel reports whether the two may serve one model. A backend whose models are not known may serve any.
func (b *Backend) sharesModel(o *Backend) bool {
	ids, theirs := b.Models(), o.Models()
	return ids == nil || theirs == nil || slices.ContainsFunc(ids, func(id string) bool { return slices.Contains(theirs, id) })
}
