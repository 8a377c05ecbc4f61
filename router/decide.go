package router

import (
	"math"
	"math/bits"
	"sync/atomic"
	"time"

	"xpyd/router/price"
)

// PD says when a request gets a prefill of its own.
type PD struct {
	// Mode is always, never or auto. auto takes the way that it expects to be cheaper.
	Mode string `mapstructure:"mode"`
	// ThresholdTokens applies to the modes always and auto. If fewer tokens of a request are missing in
	// decode's cache, it goes to decode alone. With 0, no request does for this reason.
	ThresholdTokens int `mapstructure:"threshold_tokens"`
	// StallWeight applies to the mode auto. It weighs a second in which a running stream pauses against
	// a second in which a request waits for its first token.
	StallWeight float64 `mapstructure:"stall_weight"`
}

// StallWeight is the default of PD.StallWeight, because either second makes an answer end a second
// later. A weight of 0.05 had the lowest TTFT on two H200s, and a TPOT p90 of 1.2 to 3.6 times that of
// always.
const StallWeight = 1

// The modes of PD.
const (
	PDAlways = "always"
	PDNever  = "never"
	PDAuto   = "auto"
)

// PDModes lists the values of PD.Mode.
func PDModes() []string { return []string{PDAlways, PDNever, PDAuto} }

// Reason says why Decide chose a way. It is a label of a metric, and a header.
type Reason uint8

// The closed set of reasons. Reasons is their number.
const (
	ReasonAlways  Reason = iota // pd.mode is always, and no other reason applies
	ReasonNever                 // pd.mode is never
	ReasonShort                 // fewer tokens than pd.threshold_tokens
	ReasonPrice                 // the cheaper way
	ReasonExplore               // the more expensive way, so that the router learns its price
	Reasons
)

func (r Reason) String() string {
	return [Reasons]string{
		ReasonAlways: "none", ReasonNever: "pd_never", ReasonShort: "short_prompt", ReasonPrice: "price", ReasonExplore: "explore",
	}[r]
}

// Prompt is the size of a request in estimated tokens, and how many of them the caches of its two
// possible backends have.
type Prompt struct {
	Tokens, CachedPrefill, CachedDecode int
	// Whole says that the answer does not stream, so it does not show the time to its first token.
	Whole bool
	// AtOnce says that both legs begin together, which has no prices of its own.
	AtOnce bool
}

// Decision is the way that a request takes.
type Decision struct {
	Split  bool // a prefill first; otherwise decode alone
	Reason Reason
	// SplitCost and LocalCost are the expected costs of the two ways: the seconds to the first token,
	// plus the time that other requests lose. They are 0 if nothing was priced.
	SplitCost, LocalCost float64
}

const (
	// hysteresis is how much cheaper the other way must be to be taken, for prompts of about one
	// size.
	hysteresis = 0.1
	// The price of a way that is not taken grows old. Once it is older than exploreAfter, a request
	// may be spent on that way if it costs at most exploreRatio times the other, and if most of its
	// prompt is not in the cache of the cheaper way, which its conversation would lose. Once it is
	// older than exploreAnyway, a request is spent in any case. At most one in exploreShare
	// requests is spent, because where few come, both prices are always old. If it took less than half
	// of the price, one of the next exploreAgain is spent too.
	exploreAfter  = 5 * time.Second
	exploreRatio  = 4
	exploreAnyway = 20 * time.Second
	exploreShare  = 100
	exploreAgain  = 10
	// A transfer's price that is older than wholeTrusts says nothing of an answer that comes whole. No such answer could
	// correct it, and one slow transfer would keep all of them on decode for ever.
	wholeTrusts = 5 * time.Minute
	// No prompt whose prefill has ended waits for the blocks of others to spare running answers their pauses, if that takes
	// more than queueRatio times as long as its first token would take on D alone, and more than queueLeast. Otherwise
	// prompts would line up after slow transfers as soon as there are many answers.
	queueRatio = 4
	queueLeast = 250 * time.Millisecond
	// tryAfter is the least time between two prompts that are split because no prefill was as long. The first one tells,
	// unless its prefill fails.
	tryAfter = time.Second
)

// PD is the configuration that says when a request gets a prefill.
func (s *Snapshot) PD() PD { return s.pd }

// Splits reports whether any request gets a prefill of its own.
func (s *Snapshot) Splits() bool { return s.pd.Mode != PDNever }

// Prices reports whether Decide needs to know the prefill backend.
func (s *Snapshot) Prices() bool { return s.pd.Mode == PDAuto }

// chooser is what past decisions leave for later ones.
type chooser struct {
	local    atomic.Uint64 // a bit for each power of two of tokens: decode alone was cheaper
	explored atomic.Int64  // when a request was last spent, by the router's clock
	decided  atomic.Int64  // requests priced since
	trial    atomic.Int32  // trialOf the work whose price that request is to tell, or 0 once it has
	tried    atomic.Int64  // when a prompt longer than all before was last split, by the router's clock
}

// Decide prices both ways for a request. d would decode it, and p would prefill it if it is split. p is
// nil if no prefill backend is available, or if none is needed because nothing is priced. Without a
// prefill backend, Decide keeps the way that was cheaper while there was one.
func (s *Snapshot) Decide(p, d *Backend, prompt Prompt) Decision {
	pd := s.pd
	fresh := max(0, prompt.Tokens-prompt.CachedDecode)
	switch {
	case pd.Mode == PDNever:
		return Decision{Reason: ReasonNever}
	case fresh < pd.ThresholdTokens:
		return Decision{Reason: ReasonShort}
	case pd.Mode != PDAuto || prompt.AtOnce:
		return Decision{Split: true, Reason: ReasonAlways}
	case p == nil:
		return s.router.chooser.unpriced(fresh)
	}
	r := s.router
	out := Decision{Reason: ReasonPrice}
	now := r.now()
	pulls := d.pulling.look(now)
	split, wait, to := s.splitCost(p, prompt, pulls, now)
	own, pauses := r.localCost(d, fresh, pulls, to, now)
	out.SplitCost, out.LocalCost = split, own
	if wait <= max(queueRatio*own, queueLeast.Seconds()) {
		out.LocalCost += pd.StallWeight * pauses
	}
	out.Split = r.chooser.cheaper(out.SplitCost, out.LocalCost, fresh)
	if !out.Split && pulls.waited < exploreAfter && r.untried(p, prompt) && r.chooser.tries(now) {
		out.Split, out.Reason = true, ReasonExplore
		return out
	}
	// Those that wait will tell, unless one of them is stuck.
	if (pulls.waited < exploreAfter || pulls.waited > exploreAnyway) && r.explores(out, prompt) {
		out.Split, out.Reason = !out.Split, ReasonExplore
	}
	return out
}

// queued is b's part of the tokens that wait for a slot in its pool. A request that waits counts as
// long as those that b has in flight.
func (s *Snapshot) queued(b *Backend) float64 {
	n := float64(s.router.queues[b.Role].waiting.Load())
	each := float64(max(b.inflight.Load(), 1))
	ready := max(len(s.Backends(b.Role)), 1) // b may have become ready after s
	return n * float64(b.tokens.Load()) / each / float64(ready)
}

// splitCost is the time until P has computed the prompt and D has read its blocks. P first computes the pool's queue,
// what it has in flight, and its external load. D meanwhile reads the blocks of others. wait is how long it still does
// that when P is done. Its own blocks take no less than others have waited for theirs. to says when those come to D that
// wait for their prefill or their blocks: P computes one after the other, or each P its part of what D expects, and D
// reads them.
func (s *Snapshot) splitCost(p *Backend, prompt Prompt, pulls pullLoad, now int64) (cost, wait float64, to arrivals) {
	r := s.router
	ahead := s.queued(p) + p.backlog(now, rateOf(r.prices.Pace())) + p.externalTokens(now)
	prefill := r.prices.Cost(price.Prefill, ahead+float64(max(0, prompt.Tokens-prompt.CachedPrefill)))
	pull := r.prices.Cost(price.Transfer, float64(max(0, prompt.Tokens-prompt.CachedDecode)))
	if prompt.Whole && r.prices.Age(price.Transfer, now) > wholeTrusts {
		pull = 0 // as if it were not known
	}
	waited := pulls.waited.Seconds()
	reads := float64(pulls.before) * r.prices.PerToken(price.Transfer)
	wait = max(0, reads-prefill)
	cost = prefill + wait + max(pull, waited)
	to.n = float64(pulls.still)
	beforeLast := 1 - 1/max(to.n, 1)
	others := max(ahead, float64(pulls.coming)/float64(max(len(s.Backends(Prefill)), 1))*beforeLast) // some of it is done
	to.last = max(r.prices.Cost(price.Prefill, others)+max(pull, waited), reads)
	to.first = max(0, to.last-others*r.prices.PerToken(price.Prefill)*beforeLast)
	if !r.prices.Known(price.Transfer) {
		wait = waited
	}
	return cost, wait, to
}

// localCost is the time of the prompts that D computes itself and of this one, and what D's running streams lose
// meanwhile, external ones included. Those that come from P before it has computed the prompt lose what is then left.
// Blocks are held for as long as the prompt is computed, so all of it costs more the fewer blocks are left.
func (r *Router) localCost(b *Backend, fresh int, pulls pullLoad, to arrivals, now int64) (own, pauses float64) {
	wait := b.local(now, rateOf(r.prices.LocalPace()))
	own = r.prices.Cost(price.Local, float64(fresh)+wait)
	work := max(0, own-r.prices.Cost(price.Local, wait))
	streams := float64(max(0, b.inflight.Load()-1-pulls.still)) + b.externalAt(now)
	usage := 0.0
	if e := b.engineAt(now); e != nil {
		usage = e.KVUsage
	}
	return own * scarcity(usage), r.prices.StallShare() * (streams*work + to.lose(own, work))
}

// arrivals are n requests that come to D evenly from first to last, in seconds from now.
type arrivals struct{ n, first, last float64 }

// lose is what they lose if D computes one more prompt from busy-work to busy. Those that come before it begins lose all
// of work, and later ones what is left of it.
func (a arrivals) lose(busy, work float64) float64 {
	span := a.last - a.first
	if span <= 0 {
		return a.n * min(max(busy-a.last, 0), work)
	}
	begin, end := min(max(busy-work, a.first), a.last), min(max(busy, a.first), a.last)
	return a.n / span * ((begin-a.first)*work + (end-begin)*(busy-(begin+end)/2))
}

// scarcity is 1 for an empty cache and grows steeply as it fills: 1.8 at 90 %.
func scarcity(usage float64) float64 {
	return 1 / (1 - math.Pow(min(max(usage, 0), 0.99), 8))
}

// cheaper is true for the split. Prompts of one power of two share a memory.
func (c *chooser) cheaper(split, local float64, tokens int) bool {
	bit := sizeBit(tokens)
	was := c.local.Load()&bit != 0
	switch {
	case was && split*(1+hysteresis) < local:
		c.local.And(^bit)
		return true
	case !was && local*(1+hysteresis) < split:
		c.local.Or(bit)
		return false
	}
	return !was
}

func sizeBit(tokens int) uint64 { return uint64(1) << (bits.Len(uint(tokens)) & 63) }

// unpriced is the way of a request while no prefill backend can be had. A request that would have
// had a prefill is split, so that its caller degrades it. Requests up to a size at which decode
// alone was cheaper would not have used a prefill, so they are not degraded.
func (c *chooser) unpriced(tokens int) Decision {
	if c.local.Load() >= sizeBit(tokens) {
		return Decision{Reason: ReasonPrice}
	}
	return Decision{Split: true, Reason: ReasonAlways}
}

// untried reports that no prefill was a quarter as long as that of this prompt would be, and that P has
// no other such prompt in flight, which will tell.
func (r *Router) untried(p *Backend, prompt Prompt) bool {
	tokens := max(0, prompt.Tokens-prompt.CachedPrefill)
	return !r.prices.Seen(price.Prefill, tokens/4) && p.tokens.Load() < int64(tokens)
}

// tries lets one prompt in tryAfter pass.
func (c *chooser) tries(now int64) bool {
	last := c.tried.Load()
	return (last == 0 || time.Duration(now-last) >= tryAfter) && c.tried.CompareAndSwap(last, max(now, 1))
}

// explores reports whether this request is spent on the other way.
func (r *Router) explores(d Decision, prompt Prompt) bool {
	decided := r.chooser.decided.Add(1)
	if prompt.Whole {
		return false // nothing would be learned
	}
	this, other, cached := price.Prefill, price.Local, prompt.CachedPrefill
	cost, chosen := d.LocalCost, d.SplitCost
	if !d.Split {
		this, other, cached = price.Local, price.Transfer, prompt.CachedDecode
		cost, chosen = chosen, cost
	}
	if !r.prices.Known(this) {
		return false // one way after the other
	}
	now := r.now()
	age := r.prices.Age(other, now)
	dear := cost > exploreRatio*chosen || 2*cached > prompt.Tokens
	if decided < exploreShare || age < exploreAfter || age < exploreAnyway && dear {
		return false
	}
	last := r.chooser.explored.Load()
	if last != 0 && time.Duration(now-last) < exploreAfter {
		return false
	}
	if !r.chooser.explored.CompareAndSwap(last, max(now, 1)) {
		return false
	}
	r.chooser.decided.Store(0)
	r.chooser.trial.Store(trialOf(other))
	return true
}

func trialOf(w price.Work) int32 { return int32(w) + 1 }
