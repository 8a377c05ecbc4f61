package router

import (
	"slices"
	"sync/atomic"
	"time"
)

// Want says what a leg needs from a pool.
type Want struct {
	Role   Role
	Tokens int        // estimated size of the prompt
	Skip   []*Backend // the request has tried them and does not get them again
	// Model is the model that the backend must serve, or nil for any. The router keeps it only during
	// the call.
	Model []byte
	// Key is a hash of the value that keeps a client's requests together, such as a session id. It is 0
	// if there is none.
	Key uint64
	// Prefix is the chained hashes of the prompt's blocks: the n-th stands for the first n+1 blocks. It
	// is nil if they are unknown. The router keeps it only during the call.
	Prefix []uint64
	// Conversation is a hash that stays the same for a whole chat, or 0 if it is unknown.
	Conversation uint64
	// Peer is the backend of the other role on which the request has a lease. The router avoids
	// backends that are banned with it. Alone says that the request has no other leg.
	Peer  *Backend
	Alone bool
	// Like is the backend of the request's other leg, whose connector the backend must have. It is nil if
	// any connector will do. Gone are prefill backends that the request does not get again. The router
	// prefers a decode backend that can make a pair with others.
	Like *Backend
	// To is the backend that the leg gets if that may be taken at the moment, whatever the policy says; see Errand.
	To   *Backend
	Gone []*Backend
	// Unbound says, for decode, that the request has no prefill at all, so the backend must serve it
	// alone.
	Unbound bool
	// Flow names the sender of the request, a client or its key, for the queue and for Route. Priority is the place
	// of the request in the queue of its sender; lower is sooner, as in vLLM.
	Flow     uint64
	Priority int
	// Degraded says, for decode, that the request should have had a prefill. It counts against the
	// share of such requests, see Degrade.
	Degraded bool
	// roleless says, for decode, that only engines without a role may serve the request: the share of the others is spent.
	roleless bool
}

// query is a Want at one moment, as policies read it. It is passed by value, because a pointer
// would escape through the interface and cost an allocation.
type query struct {
	skip         []*Backend
	plain        int64 // a counter below it belongs to a fit backend with a full share
	tokens       int64
	key          uint64
	conversation uint64
	prefix       []uint64
	found        *lookup        // which backend has how much of prefix; nil if nothing is remembered
	turns        *atomic.Uint64 // of the list that is chosen from: the next turn of its rotation
	cycle        uint64         // of the list, see cycleOf
	peeks        bool           // the choice takes no turns, as nothing comes of it
	peeked       uint64         // turns looked at while peeking
	now          int64          // of the router's clock, nanoseconds
	limit        int64          // of leases on one backend; 0 means none
	slowStart    time.Duration
	pairs        pairQuery
	wires        []wire // if bounded, those that the backend may pair with
	bounded      bool
	apart        *Backend // of the request's other leg; it gets no backend on the same engine; nil if none could be
	alone        bool     // the backend must serve the request without a prefill, and some of the list do not
	roleless     bool     // the backend's engine must have no role, see Want.roleless
}

// query turns w into a query of p, which is its pool or a part of it.
func (s *Snapshot) query(w *Want, p *pool) query {
	q := query{
		skip: w.Skip, tokens: int64(w.Tokens),
		key: w.Key, prefix: w.Prefix, conversation: w.Conversation, turns: p.turns, cycle: p.cycle,
		now: s.router.now(), limit: p.limit, slowStart: s.health.SlowStart,
	}
	strict := s.strict(w)
	if m := w.mate(); m != nil {
		if strict {
			q.wires, q.bounded = []wire{wireOf(m)}, true
		}
		if s.router.shared.Load() {
			q.apart = m
		}
	}
	if m := s.pairs; !w.Alone && m.known() {
		partners := s.poolFor(w.Role.partner(), w).backends
		q.pairs = pairQuery{cold: m.avoid.Load() > q.now, peer: w.Peer, partners: partners, strict: strict}
		if bans := m.bans.Load(); bans != nil {
			q.pairs.bans = *bans
		}
	}
	q.roleless = w.roleless
	q.alone = w.Unbound && slices.ContainsFunc(p.backends, func(b *Backend) bool { return b.Bound.Load() })
	q.ready()
	return q
}

// ready sets plain from the other fields.
func (q *query) ready() {
	q.plain = marked
	if q.limit > 0 {
		q.plain = min(q.limit, marked)
	}
	if len(q.skip) > 0 || q.pairs.cold || q.pairs.bans != nil || q.bounded || q.apart != nil || q.alone || q.roleless {
		q.plain = 0
	}
}

// turn takes the next turn of the rotation.
func (q *query) turn() uint64 {
	if q.peeks {
		q.peeked++
		return q.turns.Load() + q.peeked - 1
	}
	return q.turns.Add(1) - 1
}

// fit reports whether nothing speaks against b.
func (q *query) fit(b *Backend) bool { return q.share(b) > 0 }

// share is the part of a full share that b takes, above 0 and up to 1, or 0 if it is not fit.
func (q *query) share(b *Backend) float64 {
	if b.inflight.word.Load() < q.plain {
		return 1
	}
	share, _ := q.closely(b)
	return share
}

// closely is share for a backend whose count alone does not decide. It also returns the external
// load there.
func (q *query) closely(b *Backend) (share, external float64) {
	share = 1
	if b.inflight.word.Load() >= marked {
		external = b.externalAt(q.now)
		if share = b.part(q); share == 1 && external == 0 && b.Twin() == nil {
			b.unmark(q)
		}
	}
	if q.full(b) || q.plain == 0 && !q.allows(b) {
		return 0, external
	}
	return share, external
}

// allows reports that the request itself does not rule b out.
func (q *query) allows(b *Backend) bool {
	return !q.barred(b) &&
		(q.pairs.bans == nil || !q.pairs.banned(b, q.now)) &&
		(!q.pairs.cold || !q.pairs.isCold(b, q.now)) && q.pairsUp(b)
}

// barred reports that the request has tried b, or has its other leg on the same engine.
func (q *query) barred(b *Backend) bool {
	return slices.Contains(q.skip, b) || q.apart != nil && SharesEngine(q.apart, b)
}

// pairsUp reports that b has a wire that can be of use, serves the request alone if it must, and has no role if it may not.
func (q *query) pairsUp(b *Backend) bool {
	return (!q.roleless || b.Twin() != nil) && (!q.bounded || slices.ContainsFunc(q.wires, wireOf(b).suits)) && (!q.alone || unbound(b))
}

func (q *query) full(b *Backend) bool { return q.limit > 0 && occupied(b) >= q.limit }

// demerit is a reason to use a backend only if there is no other.
type demerit uint8

// From the least to the worst. A refused connection costs only another dial. A failed transfer
// costs a prefill.
const (
	demeritNone demerit = iota
	demeritRefused
	demeritBanned
	demeritEjected
)

// demerit returns the worst demerit of b, and since when it has it.
func (q *query) demerit(b *Backend) (demerit, int64) {
	if b.ejected(q.now) {
		return demeritEjected, b.ejectedAt.Load()
	}
	if q.pairs.bans != nil {
		if bn := q.pairs.ban(b); bn != nil && bn.until.Load() > q.now {
			return demeritBanned, bn.at
		}
	}
	if until := b.refusedUntil.Load(); until > q.now {
		return demeritRefused, until
	}
	return demeritNone, 0
}

// choose names the backend to ask. A fit backend comes before all others. Without one, the
// backend with the least demerit is asked, and among several the one that has had it longest.
func (p *pool) choose(q query) (*Backend, error) {
	if b := p.pick(q); b != nil {
		return b, nil
	}
	if q.pairs.cold {
		q.pairs.cold = false // if all are cold, none is passed over
		q.ready()
		if b := p.pick(q); b != nil {
			return b, nil
		}
	}
	return p.leastDemerit(q)
}

// pick asks the policy, unless a key ties the request to a backend. No policy is asked about an empty pool.
func (p *pool) pick(q query) *Backend {
	if len(p.backends) == 0 {
		return nil
	}
	if q.key != 0 {
		return rendezvous(p.backends, &q, q.key)
	}
	return p.policy.pick(p.backends, q)
}

func (p *pool) leastDemerit(q query) (*Backend, error) {
	var (
		best            *Backend
		worst           demerit
		since           int64
		alive, busy, ok bool // some are not Down; some are full; one of these is worth a wait
	)
	for _, b := range p.backends {
		if b.State() == Down || b.Closed() || !q.pairsUp(b) {
			continue
		}
		alive = true
		if q.barred(b) {
			continue
		}
		what, when := q.demerit(b)
		switch {
		case q.full(b):
			busy, ok = true, ok || what <= demeritRefused
		case best == nil || what < worst || what == worst && when < since:
			best, worst, since = b, what, when
		}
	}
	switch {
	case best != nil && (worst <= demeritRefused || !ok):
		return best, nil
	case busy:
		return nil, ErrBusy
	case !alive && len(p.backends) > 0:
		return nil, ErrAllDown
	}
	return nil, ErrNoBackend
}

// Pick returns a backend for a call that takes no slot and ignores the caps, or nil if none is left. It
// counts nothing and takes no turn. The outcome of the call does not affect health.
func (s *Snapshot) Pick(w Want) *Backend {
	w.Alone = true
	p := s.poolFor(w.Role, &w)
	q := s.query(&w, p)
	q.limit, q.peeks = 0, true
	if q.found = s.router.lookUp(p, &w); q.found != nil {
		defer s.router.lookups.Put(q.found)
	}
	q.ready()
	if b := wanted(p, &q, &w); b != nil {
		return b
	}
	b, err := s.choose(p, q, &w)
	if err == nil {
		return b
	}
	if now := s.newer(); now != nil {
		return now.Pick(w)
	}
	return nil
}

// Acquire is AcquireFor for a leg without a pair.
func (s *Snapshot) Acquire(role Role, tokens int, skip []*Backend, l *Lease) error {
	return s.AcquireFor(Want{Role: role, Tokens: tokens, Skip: skip, Alone: true}, l)
}

// AcquireFor takes a lease on a backend into l. It never waits. Its errors are ErrAllDown, ErrBusy
// (only full backends are left, or other requests wait for them) and ErrNoBackend.
func (s *Snapshot) AcquireFor(w Want, l *Lease) error {
	if s.pool(w.Role).limit > 0 && s.router.queues[w.Role].waiting.Load() > 0 {
		return ErrBusy // it must not overtake those that wait
	}
	if s.line(&w) == degradedLine {
		return s.acquireDegraded(&w, l)
	}
	return s.acquire(&w, l)
}

// acquire takes the lease. A degraded request takes a part of the share first.
func (s *Snapshot) acquire(w *Want, l *Lease) error {
	if !w.Degraded || s.roleless {
		return s.reserve(w, l)
	}
	if !s.takeShare() {
		whole := *w
		if whole.roleless = true; s.reserve(&whole, l) != nil {
			return ErrBusy
		}
		return nil
	}
	defer func() { // also if the choice panics
		if l.degraded = l.Held() && l.Backend.Twin() == nil; !l.degraded {
			s.router.degraded.Add(-1)
		}
	}()
	return s.reserve(w, l)
}

func (s *Snapshot) reserve(w *Want, l *Lease) error {
	if l.held.Load() {
		panic("BUG: lease acquired twice")
	}
	p := s.poolFor(w.Role, w)
	found := s.router.lookUp(p, w)
	if found != nil {
		defer s.router.lookups.Put(found)
	}
	for {
		q := s.query(w, p)
		q.found = found
		b, err := wanted(p, &q, w), error(nil)
		if b == nil {
			b, err = s.choose(p, q, w)
		}
		if err != nil {
			if now := s.newer(); now != nil {
				return now.reserve(w, l)
			}
			return err
		}
		// Another request was quicker. The next choice sees the change.
		probe, ok := q.pairs.probe(b, q.now)
		if !ok {
			continue
		}
		if !reserveWithin(b, q.limit) {
			probe.giveBack()
			continue
		}
		if probe.ban != nil {
			s.router.wakeAt(probe.now)
		}
		l.hold(b, w, s.sent(p, w, b, found, q.now))
		return nil
	}
}
