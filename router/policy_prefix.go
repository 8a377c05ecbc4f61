package router

import (
	"math"
	"slices"
)

// prefixed takes the backend that will be done with the prompt first: what it has yet to
// do there, for the share that it can take, and the tokens of the prompt that it has not in its
// prefix cache. What is hot moves on to others as soon as waiting for it takes longer than
// to compute it again. Among equals the conversation decides, so that all replicas of this
// process agree. A prompt of which nothing can be known goes where least is in flight.
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
		o.key = q.prefix[min(len(q.prefix), openingBlocks)-1]
	}
	o.price(backends, &q)
	cold := o.low
	o.priceHolders(backends, &q)
	most := o.low + o.block // a block more or less is no reason
	o.rankHolders(backends, &q, most)
	if cold <= most {
		o.rankAll(backends, &q, most)
	}
	return o.best
}

// openingBlocks are the blocks by which a prompt is known that has no conversation.
const openingBlocks = 16

// offers is what a prompt would cost at the backends, in tokens. The query is no part of
// it, see search.
type offers struct {
	own   float64 // the prompt's tokens
	block float64 // those of a block of it
	key   uint64
	pace  float64 // see backlog; for decode, see local
	crowd float64 // of decode: what each stream there adds to a token of the prompt, as a part of it

	low  float64  // least cost
	best *Backend // that ranks first by the key; before the ranking, the one of least cost
	rank float64
	top  uint64 // of 53 bits of hash: with a full share, one with less ranks behind best
}

// price finds the least cost of those that compute all of the prompt.
func (o *offers) price(backends []*Backend, q *query) {
	for _, b := range backends {
		if cost := o.cold(b, q); cost < o.low {
			o.best, o.low = b, cost
		}
	}
}

// reckon takes what is known of the pool of b.
func (o *offers) reckon(b *Backend) {
	prices := &b.router.prices
	if o.pace = prices.pace(); b.Role == Decode {
		o.pace, o.crowd = prices.localPace(), stallWeight*prices.drag.load()
	}
}

// cold is the cost at one that has nothing of the prompt.
func (o *offers) cold(b *Backend, q *query) float64 { return o.cost(b, q, o.own) }

// warm is the cost at one that has a part of it.
func (o *offers) warm(m prefixMatch, q *query) float64 {
	return o.cost(m.cache.backend, q, o.own-float64(m.blocks)*o.block)
}

// cost is b's backlog and what others have there, for the share that it can take, and the
// fresh tokens, those of the prompt that it does not have.
// Nothing is divided out of the prompt itself: where all are idle, one with a smaller
// share would never get one.
func (o *offers) cost(b *Backend, q *query, fresh float64) float64 {
	share := q.share(b)
	switch {
	case share == 0:
		return math.Inf(1)
	case b.Role == Decode:
		return o.decodeCost(b, q, fresh, share)
	}
	load := b.backlog(q.now, o.pace)
	if b.others.Load() != 0 {
		load += b.elsewhereTokens(q.now)
	}
	return load/share + fresh
}

// decodeCost counts the prompts that b computes itself, and its streams: each slows the
// new one down, by about a block of its prompt, and stands still while that is computed.
func (o *offers) decodeCost(b *Backend, q *query, fresh, share float64) float64 {
	wait, streams := b.local(q.now, o.pace), float64(b.inflight.Load())
	if b.others.Load() != 0 {
		streams += b.elsewhere(q.now)
	}
	return (wait+streams*o.block)/share + fresh*(1+o.crowd*streams)
}

// priceHolders looks whether one that has a part costs less. It may have left the pool, or
// serve another model than before.
func (o *offers) priceHolders(backends []*Backend, q *query) {
	for _, m := range q.found.list() {
		if cost := o.warm(m, q); cost < o.low && slices.Contains(backends, m.cache.backend) {
			o.best, o.low = m.cache.backend, cost
		}
	}
}

// rankAll ranks those that compute all for no more than most. Who was the cheapest a moment
// ago may be so no more; that nobody ranks then is no harm, as one is best already.
func (o *offers) rankAll(backends []*Backend, q *query, most float64) {
	for _, b := range backends {
		if b.inflight.word.Load() < q.plain && mix(b.seed^o.key)>>11 < o.top {
			continue // it has a full share, and ranks behind whatever it costs
		}
		if o.cold(b, q) <= most {
			o.stand(b, q.share(b))
		}
	}
}

func (o *offers) rankHolders(backends []*Backend, q *query, most float64) {
	for _, m := range q.found.list() {
		if o.warm(m, q) <= most && slices.Contains(backends, m.cache.backend) {
			o.stand(m.cache.backend, q.share(m.cache.backend))
		}
	}
}

// stand ranks b by rendezvous hashing in proportion to its share, see rendezvous.
func (o *offers) stand(b *Backend, share float64) {
	u := (float64(mix(b.seed^o.key)>>11) + 1) / (1 << 53)
	if share == 0 || (1-u)/share >= o.rank {
		return
	}
	if rank := -math.Log(u) / share; rank < o.rank {
		o.best, o.rank = b, rank
		o.top = uint64(max(0, math.Exp(-rank)*(1<<53)-8))
	}
}
