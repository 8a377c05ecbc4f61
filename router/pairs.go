package router

import (
	"maps"
	"slices"
	"sync/atomic"
	"time"
)

const (
	// banFor is how long a pair is avoided, before one request may try it again.
	banFor = 60 * time.Second
	// kvWindow is how long a failed transfer counts.
	kvWindow = 60 * time.Second
	// kvFailures of a pair ban it, of a backend with two partners or more eject it.
	kvFailures = 3
)

// pair is one way that KV blocks may take.
type pair struct{ p, d *Backend }

func (x pair) has(b *Backend) bool { return x.p == b || x.d == b }

// ban of a pair. A probe moves until on by banFor, so that no second request probes,
// and the next one does if the first never tells.
type ban struct {
	at    int64
	until atomic.Int64
	ask   atomic.Bool // a request has to be the probe
}

// kvFailure is a transfer that failed. A later success of P with any D clears it of P
// and so on; one of the same pair removes it.
type kvFailure struct {
	pair
	at               int64
	pWorked, dWorked bool
}

// pairMatrix knows which pairs fail or are cold. Nothing is kept of those that work.
type pairMatrix struct {
	bans     atomic.Pointer[map[pair]*ban] // nil: none. The map is replaced, never changed
	colds    atomic.Int64                  // backends that are cold with some partner
	avoid    atomic.Int64                  // until then some cold pair is passed over
	recent   atomic.Int64                  // len(failures)
	failures []kvFailure                   // guarded by Router.mu; at most kvFailures a pair
	chilled  int                           // guarded by Router.mu: where the next one's partners begin
}

// PairFailed notes that d could not load the blocks of p. Three within a minute, no
// success between: with one P on several D they are the fault of P, which is ejected,
// and the other way round; of one pair alone, the pair is banned for a minute. One
// failure bans a pair again that had a ban and has not worked since.
func (s *Snapshot) PairFailed(p, d *Backend) {
	r, x := s.router, pair{p, d}
	r.mu.Lock()
	if !r.Snapshot().has(x) { // nobody would forget it
		r.mu.Unlock()
		return
	}
	now := r.now()
	m := &r.pairs
	m.note(x, now)
	blameP := m.blames(func(f kvFailure) (bool, *Backend) { return f.p == p && !f.pWorked, f.d })
	blameD := m.blames(func(f kvFailure) (bool, *Backend) { return f.d == d && !f.dWorked, f.p })
	var ejectedP, ejectedD Ejection
	if blameP {
		ejectedP = r.ejectForKV(p)
	}
	if blameD {
		ejectedD = r.ejectForKV(d)
	}
	if !blameP && !blameD && (m.banOf(x) != nil || m.count(x) >= kvFailures) {
		m.ban(x, now)
	}
	r.mu.Unlock()
	r.report(ejectedP, false)
	r.report(ejectedD, false)
}

// ejectForKV ejects b. What it is ejected for speaks against nobody any more.
func (r *Router) ejectForKV(b *Backend) Ejection {
	e := r.eject(b, EjectKVLoad)
	if e.For > 0 {
		r.pairs.dropFailures(func(x pair) bool { return x.has(b) })
	}
	return e
}

// PairWorked notes that d has loaded the blocks of p. It costs a few loads while no
// transfer has failed and no pair is cold.
func (s *Snapshot) PairWorked(p, d *Backend) {
	r, x := s.router, pair{p, d}
	m := &r.pairs
	_, cold := x.isCold()
	if m.recent.Load() == 0 && !cold && m.banOf(x) == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	m.expire(r.now())
	for i := range m.failures {
		f := &m.failures[i]
		f.pWorked = f.pWorked || f.p == p
		f.dWorked = f.dWorked || f.d == d
	}
	m.drop(func(y pair) bool { return y == x })
	m.warm(x)
}

// Forget drops what is known against b, whose engine has started anew (another engine
// id): failures, ejection, bans. Its slow start begins; the active checks go on.
func (s *Snapshot) Forget(b *Backend) {
	r := s.router
	r.mu.Lock()
	now := r.now()
	b.failures.Store(0)
	b.ejections.Store(0)
	b.refusedUntil.Store(0) // ramp marks it
	b.ejectedUntil.Store(0)
	b.ramp(now)
	b.cache.Clear()
	r.pairs.drop(func(x pair) bool { return x.has(b) })
	r.pairs.warmAll(b, r.Snapshot().Backends(1-b.Role))
	r.mu.Unlock()
	r.serve(b.Role)
}

// has reports whether both are in the pools.
func (s *Snapshot) has(x pair) bool {
	return slices.Contains(s.prefill.backends, x.p) && slices.Contains(s.decode.backends, x.d)
}

// note keeps the newest failures of the pair.
func (m *pairMatrix) note(x pair, now int64) {
	m.expire(now)
	if m.count(x) == kvFailures {
		i := slices.IndexFunc(m.failures, func(f kvFailure) bool { return f.pair == x })
		m.failures = slices.Delete(m.failures, i, i+1)
	}
	m.failures = append(m.failures, kvFailure{pair: x, at: now})
	m.recent.Store(int64(len(m.failures)))
}

func (m *pairMatrix) expire(now int64) {
	m.failures = slices.DeleteFunc(m.failures, func(f kvFailure) bool { return now-f.at >= int64(kvWindow) })
	m.recent.Store(int64(len(m.failures)))
}

func (m *pairMatrix) count(x pair) (n int) {
	for _, f := range m.failures {
		if f.pair == x {
			n++
		}
	}
	return n
}

// blames reports whether the failures that count against a backend are enough, with
// more than one partner. against tells if one counts, and its partner.
func (m *pairMatrix) blames(against func(kvFailure) (bool, *Backend)) bool {
	var n int
	var first *Backend
	several := false
	for _, f := range m.failures {
		counts, partner := against(f)
		if !counts {
			continue
		}
		n++
		several = several || first != nil && partner != first
		first = partner
	}
	return several && n >= kvFailures
}

// drop forgets the pairs that match: their failures and bans.
func (m *pairMatrix) drop(match func(pair) bool) {
	m.dropFailures(match)
	old := m.bans.Load()
	if old == nil {
		return
	}
	bans := maps.Clone(*old)
	maps.DeleteFunc(bans, func(x pair, _ *ban) bool { return match(x) })
	m.publish(bans)
}

func (m *pairMatrix) dropFailures(match func(pair) bool) {
	m.failures = slices.DeleteFunc(m.failures, func(f kvFailure) bool { return match(f.pair) })
	m.recent.Store(int64(len(m.failures)))
}

func (m *pairMatrix) ban(x pair, now int64) {
	bans := map[pair]*ban{}
	if old := m.bans.Load(); old != nil {
		bans = maps.Clone(*old)
	}
	bn := &ban{at: now}
	bn.until.Store(now + int64(banFor))
	bans[x] = bn
	m.publish(bans)
}

func (m *pairMatrix) publish(bans map[pair]*ban) {
	if len(bans) == 0 {
		m.bans.Store(nil)
		return
	}
	m.bans.Store(&bans)
}

func (m *pairMatrix) banOf(x pair) *ban {
	if bans := m.bans.Load(); bans != nil {
		return (*bans)[x]
	}
	return nil
}

// pairQuery asks about the pairs of one request. bans is nil and cold false where none
// matters to it.
type pairQuery struct {
	bans     map[pair]*ban
	cold     bool
	peer     *Backend
	partners []*Backend // of the other role, all that serve the model
}

// ban is that of b with the peer. Before there is a peer it is that which ends first,
// where b has one with each partner that could become the peer.
func (q *pairQuery) ban(b *Backend) *ban {
	if q.peer != nil {
		return q.bans[pairOf(b, q.peer)]
	}
	var first *ban
	for _, o := range q.partners {
		if o.State() == Down {
			continue
		}
		bn := q.bans[pairOf(b, o)]
		if bn == nil {
			return nil
		}
		if first == nil || bn.until.Load() < first.until.Load() {
			first = bn
		}
	}
	return first
}

// isCold reports whether b is to be passed over as cold with the peer, or with every
// partner that could become the peer.
func (q *pairQuery) isCold(b *Backend, now int64) bool {
	if q.peer != nil {
		until, _ := pairOf(b, q.peer).isCold()
		return until > now
	}
	for _, o := range q.partners {
		if o.State() == Down {
			continue
		}
		if until, _ := pairOf(b, o).isCold(); until <= now {
			return false
		}
	}
	return len(q.partners) > 0
}

func (q *pairQuery) banned(b *Backend, now int64) bool {
	bn := q.ban(b)
	return bn != nil && bn.until.Load() > now
}

// probe is the claim on a pair whose ban has run out. The zero value claims nothing.
type probe struct {
	ban      *ban
	was, now int64 // ban.until
}

// probe claims the probe that choosing b means; false if another request has it.
func (q *pairQuery) probe(b *Backend, now int64) (probe, bool) {
	if q.bans == nil {
		return probe{}, true
	}
	bn := q.ban(b)
	if bn == nil {
		return probe{}, true
	}
	c := probe{ban: bn, was: bn.until.Load(), now: now + int64(banFor)}
	if c.was > now { // banned, but there was no other
		return probe{}, true
	}
	return c, bn.until.CompareAndSwap(c.was, c.now)
}

func (c probe) giveBack() {
	if c.ban != nil {
		c.ban.until.CompareAndSwap(c.now, c.was)
	}
}
