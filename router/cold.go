package router

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// coldFor is how long a pair that has carried no blocks is passed over for others. It is short,
// because when a whole rack comes back, the first warm pair must not carry all of the load.
const coldFor = 10 * time.Second

// warmPartners is the number of backends of a larger pool with which an engine is warmed up when it
// starts. All pairs of 256 and 256 would be 65,536 warm-ups. No pair of such a pool is passed over.
const warmPartners = 16

// chill makes the pairs of b with its partners cold, because their next transfer is their first.
// They are passed over for a while unless all are cold. Called under mu.
func (m *Pairs) chill(b *Backend, partners []*Backend, until int64) {
	cold := maps.Clone(b.coldWith())
	if cold == nil {
		cold = map[*Backend]int64{}
	}
	if len(partners) > warmPartners {
		partners, until = m.some(partners), 0
	}
	for _, o := range partners {
		cold[o] = max(cold[o], until)
	}
	m.avoid.Store(max(m.avoid.Load(), until))
	m.setCold(b, cold)
}

// some chooses warmPartners of the partners, starting with those that are not down. Each call
// continues where the last one ended, so that every partner gets its turn of warm-ups. Called under
// mu.
func (m *Pairs) some(partners []*Backend) []*Backend {
	var chosen, down []*Backend
	for i := range partners {
		o := partners[(m.chilled+i)%len(partners)]
		if o.State() == Down {
			down = append(down, o)
		} else if len(chosen) < warmPartners {
			chosen = append(chosen, o)
		}
	}
	m.chilled += warmPartners
	return append(chosen, down[:min(len(down), warmPartners-len(chosen))]...)
}

// coldWith has the partners with which b has been cold since it came up, each with the end of the
// time in which the pair is passed over. The map must not be changed.
func (b *Backend) coldWith() map[*Backend]int64 {
	if c := b.cold.Load(); c != nil {
		return *c
	}
	return nil
}

// setCold replaces the partners with which b is cold. Called under mu.
func (m *Pairs) setCold(b *Backend, cold map[*Backend]int64) {
	before := b.cold.Load() != nil
	if len(cold) == 0 {
		b.cold.Store(nil)
	} else {
		b.cold.Store(&cold)
	}
	switch after := len(cold) > 0; {
	case after && !before:
		m.colds.Add(1)
	case before && !after:
		m.colds.Add(-1)
	}
}

// isCold reports whether the pair has carried nothing since one of the two came up, and until
// when it is passed over for that. Either backend may know it.
func (x Pair) isCold() (until int64, cold bool) {
	byP, p := x.Prefill.coldWith()[x.Decode]
	byD, d := x.Decode.coldWith()[x.Prefill]
	return max(byP, byD), p || d
}

// warm makes the pair warm. Called under mu.
func (m *Pairs) warm(x Pair) {
	m.dropCold(x.Prefill, x.Decode)
	m.dropCold(x.Decode, x.Prefill)
}

func (m *Pairs) dropCold(b, partner *Backend) {
	if _, ok := b.coldWith()[partner]; ok {
		cold := maps.Clone(b.coldWith())
		delete(cold, partner)
		m.setCold(b, cold)
	}
}

// warmAll makes all pairs of b warm. Called under mu.
func (m *Pairs) warmAll(b *Backend, partners []*Backend) {
	m.setCold(b, nil)
	for _, o := range partners {
		m.dropCold(o, b)
	}
}

// known reports whether anything is known of any pair.
func (m *Pairs) known() bool { return m.bans.Load() != nil || m.colds.Load() > 0 }

// Chill makes all pairs of b cold, because its engine has just come up: see WarmUps. With avoid,
// requests pass over these pairs for a while if there are others.
func (m *Pairs) Chill(b *Backend, avoid bool) {
	r := m.router
	r.mu.Lock()
	defer r.mu.Unlock()
	until := int64(0)
	if avoid {
		until = r.now() + int64(coldFor)
	}
	// A backend that has left would never be warmed up or dropped.
	if now := r.Snapshot(); slices.Contains(now.Backends(b.Role), b) {
		m.chill(b, now.partners(b), until)
	}
}

// Warm makes a pair warm, whether or not its warm-up succeeded. From now on, its requests show how well
// it works.
func (m *Pairs) Warm(x Pair) {
	m.router.mu.Lock()
	defer m.router.mu.Unlock()
	m.warm(x)
}

// Partners returns the partners with which b is banned, each with the remaining time, and the partners
// with which b is cold.
func (s *Snapshot) Partners(b *Backend) (banned map[*Backend]time.Duration, cold []*Backend) {
	m := s.pairs
	if !m.known() {
		return nil, nil
	}
	now, pairs := s.router.now(), s.pairable()
	for _, o := range s.Backends(b.Role.partner()) {
		x := pairOf(b, o)
		if bn := m.banOf(x); bn != nil && bn.until.Load() > now {
			if banned == nil {
				banned = map[*Backend]time.Duration{}
			}
			banned[o] = time.Duration(bn.until.Load() - now)
		}
		if _, ok := x.isCold(); ok && pairs(x) {
			cold = append(cold, o)
		}
	}
	return banned, cold
}

// probeAhead is how long before the end of its ban a pair is probed, so that no request has to be
// the probe.
const probeAhead = 2 * time.Second

// WarmUps lists the pairs of s that are due for a request from the proxy itself. Both backends of each
// pair are Up. probes are the pairs whose ban is about to end. Each appears once. If it stays banned,
// it is due again at the end of the new ban. cold pairs stay due until Warm, or until they work.
func (m *Pairs) WarmUps(s *Snapshot) (probes, cold []Pair) {
	if !m.known() {
		return nil, nil
	}
	here := map[*Backend]bool{} // the backends of s; true: up
	for _, role := range []Role{Prefill, Decode} {
		for _, b := range s.Backends(role) {
			here[b] = b.State() == Up
		}
	}
	now, pairs := m.router.now(), s.pairable()
	if bans := m.bans.Load(); bans != nil {
		for x, bn := range *bans {
			until := bn.until.Load()
			due := !bn.ask.Load() && until <= now+int64(probeAhead) && here[x.Prefill] && here[x.Decode] && pairs(x)
			if due && bn.until.CompareAndSwap(until, now+int64(banFor)) {
				probes = append(probes, x)
			}
		}
	}
	for b := range here {
		for o := range b.coldWith() {
			if here[b] && here[o] && pairs(pairOf(b, o)) {
				cold = append(cold, pairOf(b, o))
			}
		}
	}
	sortPairs(probes)
	sortPairs(cold)
	return probes, slices.Compact(cold) // both backends may know of one cold pair
}

func sortPairs(pairs []Pair) {
	slices.SortFunc(pairs, func(a, b Pair) int {
		return cmp.Or(cmp.Compare(a.Prefill.URL, b.Prefill.URL), cmp.Compare(a.Decode.URL, b.Decode.URL))
	})
}
