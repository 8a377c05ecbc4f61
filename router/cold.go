package router

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// coldFor is how long a pair that has carried no blocks yet is passed over for others.
// Short: where a whole rack came back, the first warm pair must not carry it alone.
const coldFor = 10 * time.Second

// warmPartners is with how many of a larger pool an engine that comes up is warmed: 256
// on each side would be 65,536 warm-ups. No pair is passed over there.
const warmPartners = 16

// chill makes the pairs of b with its partners cold: their next transfer is their
// first. They are passed over for a while unless all begin together. Called under mu.
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

// some are warmPartners of the partners, those first that are not down, and others each
// time, so that each is a partner of some. Called under mu.
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

// coldWith maps the partners with whom b has been cold since it came up to the end of
// the time in which the pair is passed over. Read only.
func (b *Backend) coldWith() map[*Backend]int64 {
	if c := b.cold.Load(); c != nil {
		return *c
	}
	return nil
}

// setCold replaces what b is cold with. Called under mu.
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

// isCold reports whether the pair has carried nothing since one of the two came up, and
// until when it is passed over for that. Either may know of it.
func (x Pair) isCold() (until int64, cold bool) {
	byP, p := x.Prefill.coldWith()[x.Decode]
	byD, d := x.Decode.coldWith()[x.Prefill]
	return max(byP, byD), p || d
}

// warm ends the coldness of the pair. Called under mu.
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

// warmAll ends the coldness of all pairs of b. Called under mu.
func (m *Pairs) warmAll(b *Backend, partners []*Backend) {
	m.setCold(b, nil)
	for _, o := range partners {
		m.dropCold(o, b)
	}
}

// known reports whether anything is known of any pair.
func (m *Pairs) known() bool { return m.bans.Load() != nil || m.colds.Load() > 0 }

// Chill makes all pairs of b cold, as its engine has just come up: see WarmUps. avoid
// has them passed over for a while where others can be had.
func (m *Pairs) Chill(b *Backend, avoid bool) {
	r := m.router
	r.mu.Lock()
	defer r.mu.Unlock()
	until := int64(0)
	if avoid {
		until = r.now() + int64(coldFor)
	}
	if now := r.Snapshot(); slices.Contains(now.Backends(b.Role), b) { // else nobody would warm it, or forget it
		m.chill(b, now.partners(b), until)
	}
}

// Warm ends the coldness of a pair, whatever became of its warm-up: requests tell from
// now on.
func (m *Pairs) Warm(x Pair) {
	m.router.mu.Lock()
	defer m.router.mu.Unlock()
	m.warm(x)
}

// Partners tells with whom b has a ban, and for how long yet, and with whom it is cold.
func (s *Snapshot) Partners(b *Backend) (banned map[*Backend]time.Duration, cold []*Backend) {
	m := s.pairs
	if !m.known() {
		return nil, nil
	}
	now := s.router.now()
	for _, o := range s.Backends(1 - b.Role) {
		x := pairOf(b, o)
		if bn := m.banOf(x); bn != nil && bn.until.Load() > now {
			if banned == nil {
				banned = map[*Backend]time.Duration{}
			}
			banned[o] = time.Duration(bn.until.Load() - now)
		}
		if _, ok := x.isCold(); ok {
			cold = append(cold, o)
		}
	}
	return banned, cold
}

// probeAhead is how long before the end of a ban its pair is due for a probe, so that
// no request has to be the probe.
const probeAhead = 2 * time.Second

// WarmUps lists the pairs of s that are due for a request of nobody's. Both sides are Up.
// probes are those whose ban ends, each listed once: one that stays banned is due again
// when its new ban ends. cold pairs stay due until Warm, or until one works.
func (m *Pairs) WarmUps(s *Snapshot) (probes, cold []Pair) {
	if !m.known() {
		return nil, nil
	}
	here := map[*Backend]bool{} // up, and in the pools
	for _, role := range []Role{Prefill, Decode} {
		for _, b := range s.Backends(role) {
			here[b] = b.State() == Up
		}
	}
	now := m.router.now()
	if bans := m.bans.Load(); bans != nil {
		for x, bn := range *bans {
			until := bn.until.Load()
			if !bn.ask.Load() && until <= now+int64(probeAhead) && here[x.Prefill] && here[x.Decode] && bn.until.CompareAndSwap(until, now+int64(banFor)) {
				probes = append(probes, x)
			}
		}
	}
	for b := range here {
		for o := range b.coldWith() {
			if here[b] && here[o] {
				cold = append(cold, pairOf(b, o))
			}
		}
	}
	sortPairs(probes)
	sortPairs(cold)
	return probes, slices.Compact(cold) // a cold pair may be known to both
}

func sortPairs(pairs []Pair) {
	slices.SortFunc(pairs, func(a, b Pair) int {
		return cmp.Or(cmp.Compare(a.Prefill.URL, b.Prefill.URL), cmp.Compare(a.Decode.URL, b.Decode.URL))
	})
}
