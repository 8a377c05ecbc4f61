package router

import (
	"slices"
	"sync/atomic"
	"time"
)

// Want is what a leg asks of a pool.
type Want struct {
	Role   Role
	Tokens int        // estimated size of the prompt
	Skip   []*Backend // never these: tried before by this request
	// Model is the model that the backend must serve; nil: any. Kept for the length of
	// the call only.
	Model []byte
	// Key is the hash of what keeps a client's requests together, such as a session id;
	// 0: nothing does.
	Key uint64
	// Prefix are chained hashes of the prompt's blocks: the n-th stands for the first n+1
	// blocks. nil: unknown. Kept for the length of the call only.
	Prefix []uint64
	// Peer is the backend of the other role that the request has a lease on: those
	// banned with it are avoided. Alone: the request has no other leg.
	Peer  *Backend
	Alone bool
}

// query is a Want at one moment, as policies read it. Passed by value: through the
// interface a pointer would cost an allocation.
type query struct {
	skip      []*Backend
	tokens    int
	key       uint64
	prefix    []uint64
	turns     *atomic.Uint64 // of the list that is chosen from: where the next one begins
	now       int64          // of the router's clock, nanoseconds
	limit     int64          // of leases on one backend; 0: none
	slowStart time.Duration
	pairs     pairQuery
}

func (s *Snapshot) query(w *Want) query {
	p := s.pool(w.Role)
	q := query{
		skip: w.Skip, tokens: w.Tokens, key: w.Key, prefix: w.Prefix, turns: p.turns,
		now: s.router.now(), limit: p.limit, slowStart: s.health.SlowStart,
	}
	if m := &s.router.pairs; !w.Alone && m.known() {
		q.pairs = pairQuery{cold: m.avoid.Load() > q.now, peer: w.Peer, partners: s.Backends(1 - w.Role)}
		if bans := m.bans.Load(); bans != nil {
			q.pairs.bans = *bans
		}
	}
	return q
}

// fit reports whether nothing speaks against b.
func (q *query) fit(b *Backend) bool {
	return b.State() != Down &&
		b.refusedUntil.Load() <= q.now && b.ejectedUntil.Load() <= q.now &&
		!q.full(b) && !slices.Contains(q.skip, b) &&
		(q.pairs.bans == nil || !q.pairs.banned(b, q.now)) &&
		(!q.pairs.cold || !q.pairs.isCold(b, q.now))
}

func (q *query) full(b *Backend) bool { return q.limit > 0 && b.inflight.Load() >= q.limit }

// blemish is what speaks against a backend that could be asked if there is no other.
type blemish uint8

// From the least to the worst: a refused dial costs no more than another dial, a
// transfer that fails costs a prefill.
const (
	blemishNone blemish = iota
	blemishRefused
	blemishBanned
	blemishEjected
)

// blemish returns the worst that is known of b, and since when.
func (q *query) blemish(b *Backend) (blemish, int64) {
	if b.ejected(q.now) {
		return blemishEjected, b.ejectedAt.Load()
	}
	if q.pairs.bans != nil {
		if bn := q.pairs.ban(b); bn != nil && bn.until.Load() > q.now {
			return blemishBanned, bn.at
		}
	}
	if until := b.refusedUntil.Load(); until > q.now {
		return blemishRefused, until
	}
	return blemishNone, 0
}

// choose names the backend to ask. Nobody but a fit one is taken while there is one;
// then comes the one least blemished, of several the one for the longest time.
func (p *pool) choose(q query) (*Backend, error) {
	if len(p.backends) == 0 {
		return nil, ErrNoBackend
	}
	if b := p.policy.pick(p.backends, q); b != nil {
		return b, nil
	}
	if q.pairs.cold {
		q.pairs.cold = false // all are: as if none were
		if b := p.policy.pick(p.backends, q); b != nil {
			return b, nil
		}
	}
	return p.leastBlemished(q)
}

func (p *pool) leastBlemished(q query) (*Backend, error) {
	var (
		best            *Backend
		worst           blemish
		since           int64
		alive, busy, ok bool // some not Down; some full; one of these worth waiting for
	)
	for _, b := range p.backends {
		if b.State() == Down {
			continue
		}
		alive = true
		if slices.Contains(q.skip, b) {
			continue
		}
		what, when := q.blemish(b)
		switch {
		case q.full(b):
			busy, ok = true, ok || what <= blemishRefused
		case best == nil || what < worst || what == worst && when < since:
			best, worst, since = b, what, when
		}
	}
	switch {
	case best != nil && (worst <= blemishRefused || !ok):
		return best, nil
	case busy:
		return nil, ErrBusy
	case !alive:
		return nil, ErrAllDown
	}
	return nil, ErrNoBackend
}

// Pick names a backend of the role for a call that takes no slot, whatever the caps
// say: nothing is counted, and its end is not fed into any health. nil: none is left.
func (s *Snapshot) Pick(role Role, skip []*Backend) *Backend {
	q := s.query(&Want{Role: role, Skip: skip, Alone: true})
	q.limit = 0
	b, err := s.pool(role).choose(q)
	if err != nil {
		return nil
	}
	return b
}

// Acquire is AcquireFor for a leg to which no pair matters.
func (s *Snapshot) Acquire(role Role, tokens int, skip []*Backend, l *Lease) error {
	return s.AcquireFor(Want{Role: role, Tokens: tokens, Skip: skip, Alone: true}, l)
}

// AcquireFor takes a lease on a backend into l, or returns at once: ErrAllDown,
// ErrBusy (only full ones are left, or others wait for them), else ErrNoBackend.
func (s *Snapshot) AcquireFor(w Want, l *Lease) error {
	if s.pool(w.Role).limit > 0 && s.router.queues[w.Role].waiting.Load() > 0 {
		return ErrBusy // ahead of whom it would be served otherwise
	}
	return s.acquire(&w, l)
}

func (s *Snapshot) acquire(w *Want, l *Lease) error {
	if l.held.Load() {
		panic("BUG: lease acquired twice")
	}
	for {
		q := s.query(w)
		b, err := s.pool(w.Role).choose(q)
		if err != nil {
			return err
		}
		// Lost to another request: what it changed, the next choice sees.
		probe, ok := q.pairs.probe(b, q.now)
		if !ok {
			continue
		}
		if !b.reserve(q.limit) {
			probe.giveBack()
			continue
		}
		l.hold(b, w.Tokens)
		return nil
	}
}
