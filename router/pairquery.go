package router

// pairQuery asks about the pairs of one request. If no pair matters, bans is nil and cold is false.
type pairQuery struct {
	bans     map[Pair]*ban
	cold     bool
	peer     *Backend
	partners []*Backend // of the other role, all that serve the model
	strict   bool       // only backends of one release make pairs
}

// mates reports whether o could become the peer of b.
func (q *pairQuery) mates(b, o *Backend) bool {
	return o.State() != Down && o.Connector == b.Connector && !SharesEngine(b, o) && (!q.strict || wireOf(o).suits(wireOf(b)))
}

// ban is the ban of b with the peer. Before there is a peer, b counts as banned only if it is
// banned with each partner that could become the peer. In that case it is the ban that ends first.
func (q *pairQuery) ban(b *Backend) *ban {
	if q.peer != nil {
		return q.bans[pairOf(b, q.peer)]
	}
	var first *ban
	for _, o := range q.partners {
		if !q.mates(b, o) {
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

// isCold reports whether b is passed over as cold: with the peer, or, before there is a peer, with
// each partner that could become it.
func (q *pairQuery) isCold(b *Backend, now int64) bool {
	if q.peer != nil {
		until, _ := pairOf(b, q.peer).isCold()
		return until > now
	}
	for _, o := range q.partners {
		if !q.mates(b, o) {
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
	was, now int64 // ban.until before and after the claim
}

// probe claims the probe that a choice of b means. It returns false if another request has it.
func (q *pairQuery) probe(b *Backend, now int64) (probe, bool) {
	if q.bans == nil {
		return probe{}, true
	}
	bn := q.ban(b)
	if bn == nil {
		return probe{}, true
	}
	c := probe{ban: bn, was: bn.until.Load(), now: now + int64(banFor)}
	if c.was > now { // still banned, and chosen because there is no other
		return probe{}, true
	}
	return c, bn.until.CompareAndSwap(c.was, c.now)
}

func (c probe) giveBack() {
	if c.ban != nil {
		c.ban.until.CompareAndSwap(c.now, c.was)
	}
}
