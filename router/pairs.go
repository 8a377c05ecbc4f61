package router

import (
	"maps"
	"slices"
	"sync/atomic"
	"time"
)

const (
	// kvWindow is how long a failed transfer counts.
	kvWindow = 60 * time.Second
	// This many failures of one pair ban it. If a backend has them with two or more partners, they
	// eject it.
	kvFailures = 3
)

// Pair is a prefill and a decode backend whose engines can hand blocks over.
type Pair struct{ Prefill, Decode *Backend }

func (x Pair) has(b *Backend) bool { return x.Prefill == b || x.Decode == b }

// pairOf is the pair of two backends, given in either order.
func pairOf(b, partner *Backend) Pair {
	if b.Role == Prefill {
		return Pair{b, partner}
	}
	return Pair{partner, b}
}

// kvFailure is a failed transfer. A later success of P with any D clears P, and one of D with any P
// clears D. A success of the same pair removes it.
type kvFailure struct {
	Pair
	at               int64
	pWorked, dWorked bool
}

// Pairs is what the router has learned about the pairs: which of them fail, and which are cold. For
// pairs that work, it keeps the number of transfers. It belongs to the router, and all snapshots share
// it.
type Pairs struct {
	router   *Router
	bans     atomic.Pointer[map[Pair]*ban] // nil: none; the map is replaced, never changed
	colds    atomic.Int64                  // backends that are cold with some partner
	avoid    atomic.Int64                  // until then some cold pair is passed over
	recent   atomic.Int64                  // len(failures)
	failures []kvFailure                   // guarded by Router.mu; at most kvFailures a pair
	chilled  int                           // guarded by Router.mu: see some

	transfers transfers
}

// Failed notes that the decode engine could not load the blocks of the prefill engine. Three failures
// within a minute count if no success comes between them. If one P fails with several Ds, P is at fault
// and is ejected. If one D fails with several Ps, D is at fault and is ejected. If a single pair fails,
// it is banned for a minute. A pair that has not worked since its last ban is banned again after a
// single failure.
func (m *Pairs) Failed(x Pair) {
	r, p, d := m.router, x.Prefill, x.Decode
	m.counted(x).failed.Add(1)
	r.mu.Lock()
	if !r.Snapshot().has(x) { // it has left, so nothing would ever drop the entry
		r.mu.Unlock()
		return
	}
	now := r.now()
	m.note(x, now)
	blameP := m.blames(func(f kvFailure) (bool, *Backend) {
		return f.Prefill == p && !f.pWorked, f.Decode
	})
	blameD := m.blames(func(f kvFailure) (bool, *Backend) {
		return f.Decode == d && !f.dWorked, f.Prefill
	})
	var ejectedP, ejectedD Ejection
	if blameP {
		ejectedP = r.ejectForKV(p)
	}
	if blameD {
		ejectedD = r.ejectForKV(d)
	}
	banned := m.banOf(x) != nil
	anew := !blameP && !blameD && (banned || m.count(x) >= kvFailures)
	if anew {
		m.ban(x, now)
	}
	r.mu.Unlock()
	if anew && !banned {
		r.reportBan(x, true)
	}
	r.report(ejectedP, false)
	r.report(ejectedD, false)
}

// ejectForKV ejects b. The failures that caused it count against no other backend.
func (r *Router) ejectForKV(b *Backend) Ejection {
	e := r.eject(b, EjectKVLoad)
	if e.For > 0 {
		r.pairs.dropFailures(func(x Pair) bool { return x.has(b) })
	}
	return e
}

// Worked notes that the decode engine has answered with the blocks. It costs a few loads while no
// transfer has failed and the pair is not cold.
func (m *Pairs) Worked(x Pair) {
	x.Decode.handed.Add(1)
	m.counted(x).ok.Add(1)
	_, cold := x.isCold()
	if m.recent.Load() == 0 && !cold && m.banOf(x) == nil {
		return
	}
	m.router.mu.Lock()
	m.expire(m.router.now())
	for i := range m.failures {
		f := &m.failures[i]
		f.pWorked = f.pWorked || f.Prefill == x.Prefill
		f.dWorked = f.dWorked || f.Decode == x.Decode
	}
	banned := m.banOf(x) != nil
	m.drop(func(y Pair) bool { return y == x })
	m.warm(x)
	m.router.mu.Unlock()
	if banned {
		m.router.reportBan(x, false)
	}
	m.router.serveAll() // a ban may have ended
}

// has reports whether both backends are in the pools.
func (s *Snapshot) has(x Pair) bool {
	return slices.Contains(s.prefill.backends, x.Prefill) && slices.Contains(s.decode.backends, x.Decode)
}

// note keeps the newest failures of the pair.
func (m *Pairs) note(x Pair, now int64) {
	m.expire(now)
	if m.count(x) == kvFailures {
		i := slices.IndexFunc(m.failures, func(f kvFailure) bool { return f.Pair == x })
		m.failures = slices.Delete(m.failures, i, i+1)
	}
	m.failures = append(m.failures, kvFailure{Pair: x, at: now})
	m.recent.Store(int64(len(m.failures)))
}

func (m *Pairs) expire(now int64) {
	old := func(f kvFailure) bool { return now-f.at >= int64(kvWindow) }
	m.failures = slices.DeleteFunc(m.failures, old)
	m.recent.Store(int64(len(m.failures)))
}

func (m *Pairs) count(x Pair) (n int) {
	for _, f := range m.failures {
		if f.Pair == x {
			n++
		}
	}
	return n
}

// blames reports whether enough failures count against a backend, with more than one partner.
// against says whether a failure counts, and which partner had it.
func (m *Pairs) blames(against func(kvFailure) (bool, *Backend)) bool {
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

// drop removes the failures and bans of the pairs that match.
func (m *Pairs) drop(match func(Pair) bool) {
	m.dropFailures(match)
	old := m.bans.Load()
	if old == nil {
		return
	}
	bans := maps.Clone(*old)
	maps.DeleteFunc(bans, func(x Pair, _ *ban) bool { return match(x) })
	m.publish(bans)
}

func (m *Pairs) dropFailures(match func(Pair) bool) {
	m.failures = slices.DeleteFunc(m.failures, func(f kvFailure) bool { return match(f.Pair) })
	m.recent.Store(int64(len(m.failures)))
}
