package router

import (
	"math"
	"slices"

	"xpyd/router/prefix"
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

// openingBlocks are the blocks by which a prompt is known that has no conversation.
const openingBlocks = 16

// offers is what a prompt would cost at the backends, in tokens. The query is no part of
// it, see search.
type offers struct {
	own   float64 // the prompt's tokens
	block float64 // those of a block of it
	key   uint64

	decode bool
	rate   float64 // see backlog; for decode, see local
	each   float64 // what a request of others counts; for decode, a stream
	crowd  float64 // of decode: what each stream there adds to a token of the prompt, as a part of it

	low  float64  // least cost
	best *Backend // that ranks first by the key; before the ranking, the one of least cost
	rank float64
	top  uint64 // of 53 bits of hash: with a full share, one with less ranks behind best
}

// reckon takes what is known of the pool of b.
func (o *offers) reckon(b *Backend) {
	prices := &b.router.prices
	if o.decode = b.Role == Decode; o.decode {
		o.rate, o.each, o.crowd = rateOf(prices.LocalPace()), o.block, stallWeight*prices.StallShare()
		return
	}
	o.rate, o.each = rateOf(prices.Pace()), b.router.prompts[Prefill].Mean()
}

// price finds the least cost of those that compute all of the prompt.
func (o *offers) price(backends []*Backend, costs []float64, q *query) {
	if i := o.cost(backends, costs, q, o.own); i >= 0 {
		o.best, o.low = backends[i], costs[i]
	}
}

// priceHolders looks whether one that has a part costs less. It may have left the pool, or
// serve another model than before.
func (o *offers) priceHolders(backends []*Backend, q *query) {
	for i, m := range q.found.List() {
		b, cost := [1]*Backend{ownerOf(m)}, q.found.atHolders[i:i+1]
		if o.cost(b[:], cost, q, o.own-float64(m.Blocks)*o.block) == 0 && slices.Contains(backends, b[0]) {
			o.best, o.low = b[0], cost[0]
		}
	}
}

// cost fills in what each backend costs, and returns which is the least below low; −1: none.
// A cost is the load, for the share that the backend can take, and the fresh tokens, those of
// the prompt that it does not have. Nothing is divided out of the prompt itself: where all are
// idle, one with a smaller share would never get one.
//
// The load is the backlog and what others have there. For decode it is the prompts that it
// computes itself, and its streams: each slows the new one down, by about a block of its
// prompt, and stands still while that is computed.
//
// It is one loop over all, as a call for each would take longer than what it does.
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
		// One that is too dear as it is needs no closer look.
		if word >= q.plain && load+fresh*crowd <= low+o.block {
			share, external := q.closely(b)
			if share == 0 {
				costs[i] = math.Inf(1)
				continue
			}
			load = (load + o.each*external) / share
			crowd += o.crowd * external
		}
		if costs[i] = load + fresh*crowd; costs[i] < low {
			least, low = i, costs[i]
		}
	}
	return least
}

func (o *offers) rankHolders(backends []*Backend, q *query, most float64) {
	for i, m := range q.found.List() {
		if b := ownerOf(m); q.found.atHolders[i] <= most && slices.Contains(backends, b) {
			o.stand(b, q)
		}
	}
}

func ownerOf(m prefix.Match) *Backend { return m.Cache.Owner.(*Backend) }

// stand ranks b by rendezvous hashing in proportion to its share, see rendezvous. One that
// has become unfit meanwhile does not rank; that nobody does then is no harm, as one is best
// already.
func (o *offers) stand(b *Backend, q *query) {
	hash := mix(b.seed^o.key) >> 11
	if hash < o.top && b.inflight.word.Load() < q.plain {
		return // it has a full share, and ranks behind
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
