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

// Pair is a prefill and a decode backend whose engines can hand blocks over.
type Pair struct{ Prefill, Decode *Backend }

// chill makes the pairs of b with its partners cold: their next transfer is their
// first. They are passed over for a while unless all begin together. Called under mu.
func (m *pairMatrix) chill(b *Backend, partners []*Backend, until int64) {
	cold := maps.Clone(m.coldPairs())
	if cold == nil {
		cold = map[pair]int64{}
	}
	for _, o := range partners {
		cold[pairOf(b, o)] = max(cold[pairOf(b, o)], until)
	}
	m.setCold(cold)
}

func pairOf(b, partner *Backend) pair {
	if b.Role == Prefill {
		return pair{b, partner}
	}
	return pair{partner, b}
}

// coldPairs maps each cold pair to the end of the time in which it is passed over.
func (m *pairMatrix) coldPairs() map[pair]int64 {
	if c := m.cold.Load(); c != nil {
		return *c
	}
	return nil
}

func (m *pairMatrix) setCold(cold map[pair]int64) {
	if len(cold) == 0 {
		m.cold.Store(nil)
		return
	}
	m.cold.Store(&cold)
}

// warm ends the coldness of the pairs that match. Called under mu.
func (m *pairMatrix) warm(match func(pair) bool) {
	old := m.coldPairs()
	if old == nil {
		return
	}
	cold := maps.Clone(old)
	maps.DeleteFunc(cold, func(x pair, _ int64) bool { return match(x) })
	m.setCold(cold)
}

// known reports whether anything is known of any pair.
func (m *pairMatrix) known() bool { return m.bans.Load() != nil || m.cold.Load() != nil }

func (m *pairMatrix) isCold(x pair) bool { _, ok := m.coldPairs()[x]; return ok }

// Chill makes all pairs of b cold, as its engine has just come up: see WarmUps. avoid
// has them passed over for a while where others can be had.
func (s *Snapshot) Chill(b *Backend, avoid bool) {
	r := s.router
	r.mu.Lock()
	defer r.mu.Unlock()
	until := int64(0)
	if avoid {
		until = r.now() + int64(coldFor)
	}
	if now := r.Snapshot(); slices.Contains(now.Backends(b.Role), b) { // else nobody would warm it, or forget it
		r.pairs.chill(b, now.Backends(1-b.Role), until)
	}
}

// Warm ends the coldness of a pair, whatever became of its warm-up: requests tell from
// now on.
func (s *Snapshot) Warm(x Pair) {
	r := s.router
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pairs.warm(func(y pair) bool { return y == pair{x.Prefill, x.Decode} })
}

// Unprobed says that the probe of a banned pair could not be made: its ban ends now, and
// the next request is the probe.
func (s *Snapshot) Unprobed(x Pair) {
	if bn := s.router.pairs.banOf(pair{x.Prefill, x.Decode}); bn != nil {
		bn.ask.Store(true)
		bn.until.Store(s.router.now())
	}
}

// Partners tells with whom b has a ban, and for how long yet, and with whom it is cold.
func (s *Snapshot) Partners(b *Backend) (banned map[*Backend]time.Duration, cold []*Backend) {
	m := &s.router.pairs
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
		if _, ok := m.coldPairs()[x]; ok {
			cold = append(cold, o)
		}
	}
	return banned, cold
}

// probeAhead is how long before the end of a ban its pair is due for a probe, so that
// no request has to be the probe.
const probeAhead = 2 * time.Second

// WarmUps lists the pairs that are due for a request of nobody's: those that are cold,
// and those whose ban ends. Both sides are Up. A pair that stays banned after its probe
// is due again when its new ban ends.
func (s *Snapshot) WarmUps() []Pair {
	m := &s.router.pairs
	if m.cold.Load() == nil && m.bans.Load() == nil {
		return nil
	}
	var due []Pair
	now := s.router.now()
	up := func(x pair) bool {
		return x.p.State() == Up && x.d.State() == Up && s.has(x)
	}
	for x := range m.coldPairs() {
		if up(x) {
			due = append(due, Pair{x.p, x.d})
		}
	}
	if bans := m.bans.Load(); bans != nil {
		for x, bn := range *bans {
			until := bn.until.Load()
			if !bn.ask.Load() && until <= now+int64(probeAhead) && up(x) && bn.until.CompareAndSwap(until, now+int64(banFor)) {
				due = append(due, Pair{x.p, x.d})
			}
		}
	}
	slices.SortFunc(due, func(a, b Pair) int {
		return cmp.Or(cmp.Compare(a.Prefill.URL, b.Prefill.URL), cmp.Compare(a.Decode.URL, b.Decode.URL))
	})
	return due
}
