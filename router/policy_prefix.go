package router

import (
	"math"
	"slices"

	"xpyd/router/prefix"
)

// prefixed takes the backend that will be done with the prompt first. It adds what the backend has
// still to do, for the share that it takes, and the tokens of the prompt that are not in its prefix
// cache. So a hot prefix moves to another backend as soon as waiting for it takes longer than computing
// it again. Among equals the conversation decides, so all replicas of this process agree. A prompt
// about which nothing can be known goes where the least is in flight.
type prefixed struct{ least }

func (p prefixed) pick(backends []*Backend, q query) *Backend {
	if q.found == nil {
		return p.least.pick(backends, q)
	}
	o := offers{
		key: q.conversation, own: float64(q.tokens), block: blockTokens(int(q.tokens), len(q.prefix)),
		low: math.Inf(1), rank: math.Inf(1),
	}
	o.reckon(backends[0])
	if o.key == 0 {
		o.key = q.begins()
	}
	costs := q.found.room(len(backends))
	o.priceHolders(backends, &q)
	o.price(backends, costs, &q)
	most := o.low + o.block // a block more or less is no reason
	o.rankHolders(backends, &q, most)
	for i, cost := range costs {
		if cost <= most {
			o.stand(backends[i], &q)
		}
	}
	return o.best
}

// begins is a key for a prompt whose conversation is not known: the hash up to the first block that
// no backend has. What comes before is shared with others, such as a system prompt, and what comes
// after is longer at each turn. So a replica that gets a later turn finds the same key.
func (q *query) begins() uint64 {
	known := 0
	for _, m := range q.found.List() {
		known = max(known, m.Blocks)
	}
	return q.prefix[min(prefix.After(known), len(q.prefix))-1]
}

// crowdWeight weighs a second in which a stream stands still against a second of computing. It only
// chooses among engines that would all compute, so it is far below StallWeight: caches count first.
const crowdWeight = 0.05

// offers is what a prompt would cost at the backends, in tokens. It does not hold the query, see
// search.
type offers struct {
	own   float64 // tokens of the prompt
	block float64 // tokens of a block of it
	key   uint64

	decode bool
	rate   float64 // see backlog; for decode, see local
	each   float64 // tokens that an external request counts for; for decode, a stream
	// crowd is for decode: what each stream there adds to the cost of a token, as a part of it.
	crowd float64

	low  float64  // least cost
	best *Backend // first by the key; before the ranking, the one of least cost
	rank float64
	top  uint64 // of 53 bits of hash: with a full share, a backend with less ranks after best
}

// reckon reads what is known of the pool of b.
func (o *offers) reckon(b *Backend) {
	prices := &b.router.prices
	if o.decode = b.Role == Decode; o.decode {
		o.rate, o.each, o.crowd = rateOf(prices.LocalPace()), o.block, crowdWeight*prices.StallShare()
		return
	}
	o.rate, o.each = rateOf(prices.Pace()), b.router.prompts[Prefill].Mean()
}

// price finds the least cost among backends that compute all of the prompt.
func (o *offers) price(backends []*Backend, costs []float64, q *query) {
	if i := o.cost(backends, costs, q, o.own); i >= 0 {
		o.best, o.low = backends[i], costs[i]
	}
}

// priceHolders finds whether a backend that has a part of the prompt costs less. It may have left
// the pool meanwhile, or may serve another model now.
func (o *offers) priceHolders(backends []*Backend, q *query) {
	for i, m := range q.found.List() {
		b, cost := [1]*Backend{ownerOf(m)}, q.found.atHolders[i:i+1]
		if o.cost(b[:], cost, q, o.own-float64(m.Blocks)*o.block) == 0 && slices.Contains(backends, b[0]) {
			o.best, o.low = b[0], cost[0]
		}
	}
}

// cost fills in what each backend costs. It returns which of them costs least and less than low, or
// −1 if none does. A cost is the load, divided by the share that the backend takes, plus the fresh
// tokens: those of the prompt that it does not have. The fresh tokens are not divided, because
// otherwise a backend with a smaller share would never get a prompt while all are idle.
//
// The load is the backlog and the external load. For decode it is the prompts that the backend
// computes itself, and its streams. Each stream slows the new one down, by about a block of its
// prompt, and stands still while that is computed.
//
// It is one loop, because a call for each backend would take longer than the sum itself.
func (o *offers) cost(backends []*Backend, costs []float64, q *query, fresh float64) (least int) {
	least, low := -1, o.low
	for i, b := range backends {
		load, crowd, word := 0.0, 1.0, b.inflight.word.Load()
		if o.decode {
			streams := float64(countOf(word))
			if load = streams * o.block; b.computesAny(q.now) {
				load += b.local(q.now, o.rate)
			}
			crowd += o.crowd * streams
		} else {
			load = b.backlog(q.now, o.rate)
		}
		// A backend that is too dear by this alone needs no closer look.
		if word >= q.plain && load+fresh*crowd <= low+o.block {
			share, external := q.closely(b)
			if share == 0 {
				costs[i] = math.Inf(1)
				continue
			}
			if !o.decode && external > 0 {
				external = min(external, b.engine.Load().lasting())
			}
			load = (load + o.each*external + besidesWork(b, q.now, o.block)) / share
			crowd += o.crowd * external
		}
		if costs[i] = load + fresh*crowd; costs[i] < low {
			least, low = i, costs[i]
		}
	}
	return least
}

// rankHolders ranks the holders of a part of the prompt that cost no more than most.
func (o *offers) rankHolders(backends []*Backend, q *query, most float64) {
	for i, m := range q.found.List() {
		if b := ownerOf(m); q.found.atHolders[i] <= most && slices.Contains(backends, b) {
			o.stand(b, q)
		}
	}
}

// ownerOf is the backend whose cache has matched.
func ownerOf(m prefix.Match) *Backend { return m.Cache.Owner.(*Backend) }

// stand ranks b by rendezvous hashing in proportion to its share, see rendezvous. A backend that
// has become unfit meanwhile does not rank. It does no harm if none ranks, because one is best
// already.
func (o *offers) stand(b *Backend, q *query) {
	hash := mix(b.seed^o.key) >> 11
	if hash < o.top && b.inflight.word.Load() < q.plain {
		return // it has a full share, and ranks after best
	}
	share := q.share(b)
	u := (float64(hash) + 1) / (1 << 53)
	if share == 0 || (1-u)/share >= o.rank {
		return
	}
	if rank := -math.Log(u) / share; rank < o.rank {
		o.best, o.rank = b, rank
		o.top = uint64(max(0, math.Exp(-rank)*(1<<53)-8))
	}
}
