// Package price learns from live traffic what the parts of a completion cost: the time of a
// token in each, what a decode engine's own prefills cost its running streams, and how many
// tokens a prompt has. It knows no backends.
package price

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// Work is a part of a completion. Its time is learned from live traffic.
type Work uint8

// The three parts that decide whether a separate prefill pays.
const (
	// Prefill is a prefill leg. Its tokens are the uncached tokens of its prompt, and those that its
	// backend had to compute first.
	Prefill Work = iota
	// Transfer is the time to the first event of a decode engine that got a handle. Its tokens are
	// those that the engine pulled, for this request and for others meanwhile.
	Transfer
	// Local is the time to the first event of a decode engine that got no handle. Its tokens are the
	// uncached tokens of its prompt, and those that the engine was already computing.
	Local
	workCount
)

// Prices is what a token of each work costs, learned over all backends of a pool together.
type Prices struct {
	lines [workCount]line
	drag  drag
}

// Learn updates the price of a work by one leg: its tokens together with those ahead of it, and its
// time. A time below 0 means that the answer came whole and showed no time. now is the router's clock.
func (p *Prices) Learn(w Work, tokens int, took time.Duration, now int64) {
	if tokens < 0 || took < 0 {
		return
	}
	var prior *line
	if w == Local && p.lines[Prefill].known() {
		prior = &p.lines[Prefill]
	}
	p.lines[w].add(float64(tokens), took.Seconds(), now, prior)
}

// StreamEnded learns from a stream with the given number of tokens. batch is the streams of its engine, itself
// included, averaged over its time. took is the time after its first event, and local the part of it that the
// engine spent on its own prefills.
func (p *Prices) StreamEnded(tokens int, batch float64, local, took time.Duration) {
	if tokens > 0 && took > 0 {
		p.drag.add(float64(tokens), batch, local.Seconds(), took.Seconds())
	}
}

// Token is the time of a token of an engine's only answer, and what each further answer of the engine adds to it; 0 and 0 if not
// known.
func (p *Prices) Token() (each, crowd float64) {
	d := &p.drag
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.streams < dragProven {
		return 0, 0
	}
	return max(0, d.each), max(0, d.crowd)
}

// StallShare is the share of the time of a decode engine's own prefills that its running streams lose.
// It is 1 at first, and changes as streams that run beside such prefills show it.
func (p *Prices) StallShare() float64 { return p.drag.load() }

// Known reports whether a price exists, because at least one leg of this work has ended.
func (p *Prices) Known(w Work) bool { return p.lines[w].known() }

// Seen reports whether a leg of this work had at least that many tokens. For many more tokens than any leg
// had, a price is mostly the fixed cost of a leg, multiplied.
func (p *Prices) Seen(w Work, tokens int) bool { return p.lines[w].longest.Load() >= int64(tokens) }

// Age is the time since the last leg of this work, or since the start of the router if there was none.
func (p *Prices) Age(w Work, now int64) time.Duration { return p.lines[w].since(now) }

// Own is the time of the tokens alone, without waits and without the fixed cost of a request.
func (p *Prices) Own(w Work, tokens int) float64 {
	return float64(tokens) * math.Float64frombits(p.lines[w].each.Load())
}

// Cost is the expected time of that many tokens, in seconds. Before the first local leg, local work
// costs as much as a prefill. Before the first transfer, transfers cost nothing.
func (p *Prices) Cost(w Work, tokens float64) float64 {
	return p.line(w).at(tokens)
}

// PerToken is the part of Cost that each token adds.
func (p *Prices) PerToken(w Work) float64 { return math.Float64frombits(p.line(w).each.Load()) }

// Pace is how many nanoseconds a token of a prefill takes, or 0 if that is not known.
func (p *Prices) Pace() float64 { return p.Own(Prefill, 1) * 1e9 }

// LocalPace is the Pace of prompts that decode engines compute themselves.
func (p *Prices) LocalPace() float64 { return p.PerToken(Local) * 1e9 }

// line is the fitted line of the work.
func (p *Prices) line(w Work) *line {
	if w == Local && !p.lines[w].known() {
		return &p.lines[Prefill]
	}
	return &p.lines[w]
}

// The memory of a line is short enough to follow, within a minute, an engine that slows down and
// gets few requests (but not just a trial now and then), and long enough not to follow a single request.
const (
	lineHalfLife  = 5 * time.Second
	lineMaxWeight = 48  // the most samples that count
	lineRare      = 8   // the same if the last sample is older than lineRareAge
	lineMinKeep   = 0.5 // of what was known, however late the next sample comes
	lineRareAge   = 2 * time.Second
	lineOutlier   = 10 // a sample counts as at most this many times the expected time
	lineProven    = 8  // samples since the first ones, whatever they weigh, before anything counts as an outlier
)

// A line with a prior takes two points of it for samples, of less weight than any real one. They give
// the slope where all samples are short: the price of a token is not the time of a whole leg divided
// by the few tokens that it had.
const (
	priorWeight = 0.5
	priorReach  = 8192 // tokens of the second point; the first has none
)

// zeroWeight is the weight of a further sample, of no tokens and no time, in the slope of a line without a prior. The
// first samples differ more by noise than by their tokens. Without this one they may say that tokens cost nothing, and
// then a prompt on decode seems to pause nobody. It also makes everything the price of the tokens if all samples have
// about as many.
const zeroWeight = 0.5

// line is y = fixed + each·x, fitted to the samples of the last seconds.
type line struct {
	mu     sync.Mutex
	seen   sums
	last   int64 // time of the last sample, of the router's clock
	misses misses

	fixed, each atomic.Uint64 // seconds, as bits of a float64
	sampled     atomic.Int64  // 1 + last; 0 if there is no sample
	longest     atomic.Int64  // the most tokens of a sample
}

// sums are what a fit needs to know of samples. They decay.
type sums struct{ w, x, y, xx, xy float64 }

func (s *sums) keep(part float64) {
	*s = sums{s.w * part, s.x * part, s.y * part, s.xx * part, s.xy * part}
}

func (s *sums) add(x, y, w float64) {
	s.w += w
	s.x += w * x
	s.y += w * y
	s.xx += w * x * x
	s.xy += w * x * y
}

func (l *line) known() bool { return l.sampled.Load() != 0 }

// since is the age of the last sample. A line without one is as old as the router.
func (l *line) since(now int64) time.Duration {
	return time.Duration(now - max(0, l.sampled.Load()-1))
}

func (l *line) at(x float64) float64 {
	return math.Float64frombits(l.fixed.Load()) + x*math.Float64frombits(l.each.Load())
}

func (l *line) add(x, y float64, now int64, prior *line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seen.w > 1 {
		l.misses.add(l.at(x), y)
	}
	if l.misses.n >= lineProven {
		y = min(y, lineOutlier*l.at(x)+0.05)
	}
	age, most := time.Duration(now-l.last), float64(lineMaxWeight)
	if age > lineRareAge {
		most = lineRare
	}
	keep := max(lineMinKeep, math.Exp2(-float64(age)/float64(lineHalfLife)))
	l.seen.keep(min(keep, (most-1)/max(l.seen.w, 1)))
	l.seen.add(x, y, 1)
	l.longest.Store(max(l.longest.Load(), int64(x)))
	l.last = now
	fixed, each := l.fit(prior)
	l.fixed.Store(math.Float64bits(fixed))
	l.each.Store(math.Float64bits(each))
	l.sampled.Store(now + 1)
}

// fit is the line of the samples, with a slope of least squares. The prior, or zeroWeight, counts as samples too.
func (l *line) fit(prior *line) (fixed, each float64) {
	fit := l.seen
	if prior != nil {
		fit.add(0, prior.at(0), priorWeight)
		fit.add(priorReach, prior.at(priorReach), priorWeight)
		return fit.line(fit.slope())
	}
	fit.add(0, 0, zeroWeight)
	return l.seen.line(fit.slope())
}

// slope is that of the line of least squares.
func (s sums) slope() float64 {
	x := s.x / s.w
	return (s.xy/s.w - x*s.y/s.w) / max(s.xx/s.w-x*x, 1e-9)
}

// line is the one with this slope through the mean of the samples. No part is negative: without a fixed part, everything
// is the price of the tokens.
func (s sums) line(each float64) (fixed, slope float64) {
	x, y := s.x/s.w, s.y/s.w
	each = max(0, each)
	if fixed = y - each*x; fixed >= 0 || x <= 0 {
		return max(0, fixed), each
	}
	return 0, y / x
}

// drag is the part of the time of a decode engine's own prefills that its running streams lose.
// It is fitted over the streams that ended lately: T = tokens·(each + crowd·batch) + share·local. T is the
// time of a stream after its first event, batch the streams of its engine meanwhile, and local the seconds
// of prefill in that time.
type drag struct {
	mu                     sync.Mutex
	nn, nb, bb, nl, bl, ll float64 // sums of products: n is tokens, b is tokens·batch, l is local
	nt, bt, lt             float64 // t is T
	each, crowd            float64
	streams                int           // so far, up to dragProven
	odd                    int           // outliers since the last stream that was none
	share                  atomic.Uint64 // bits of 1 + share; 0 if not measured
}

// dragUnknown assumes that a prefill stops all streams for as long as it takes.
const dragUnknown = 1

// dragPrior is what dragUnknown counts for among the streams, in square seconds of prefill beside a stream.
// Streams beside few prompts differ by more than by these seconds, and a share of 0 would send long prompts
// to decode.
const dragPrior = 1

// dragCrowd is what a crowd of 0 counts for, in square streams for each square token. It keeps streams with the
// same batch from telling what a larger one costs.
const dragCrowd = 1e-3

// dragKeep is the weight that a sample keeps with each later one.
const dragKeep = 1 - 1.0/64

// A stream whose client reads slowly, or that stood still for a while, takes many times as long as the others. Some
// hundred others would be needed to make good what one such stream says, so it does not count, unless the last ones
// were all like that.
const (
	dragOutlier = 4 // times the expected time
	dragProven  = 8 // streams before any is an outlier, and outliers in a row before the next one counts
)

// strange reports whether a stream is an outlier. d.mu is held.
func (d *drag) strange(tokens, batch, local, took float64) bool {
	if d.streams < dragProven {
		d.streams++
		return false
	}
	if took <= dragOutlier*(tokens*max(0, d.each+d.crowd*batch)+d.load()*local) {
		d.odd = 0
		return false
	}
	d.odd++
	return d.odd <= dragProven
}

func (d *drag) add(tokens, batch, local, took float64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.strange(tokens, batch, local, took) {
		return
	}
	n, b := tokens, tokens*batch
	d.nn, d.nb, d.bb = d.nn*dragKeep+n*n, d.nb*dragKeep+n*b, d.bb*dragKeep+b*b
	d.nl, d.bl, d.ll = d.nl*dragKeep+n*local, d.bl*dragKeep+b*local, d.ll*dragKeep+local*local
	d.nt, d.bt, d.lt = d.nt*dragKeep+n*took, d.bt*dragKeep+b*took, d.lt*dragKeep+local*took
	d.fit()
}

// fit solves the normal equations. If larger batches seem to be faster, it is noise, and batches do not count. d.mu is
// held.
func (d *drag) fit() {
	if d.solve(d.decoding); d.crowd < 0 {
		d.solve(func(ny, _ float64) (float64, float64) { return ny / d.nn, 0 })
	}
}

// solve finds the share, and then the rest with the share that it may have.
func (d *drag) solve(decoding func(ny, by float64) (each, crowd float64)) {
	eachL, crowdL := decoding(d.nl, d.bl)
	eachT, crowdT := decoding(d.nt, d.bt)
	own := d.ll + dragPrior - eachL*d.nl - crowdL*d.bl // of local, what decoding does not explain
	share := (d.lt + dragPrior*dragUnknown - eachT*d.nl - crowdT*d.bl) / own
	share = min(max(share, 0), 4)
	d.each, d.crowd = eachT-share*eachL, crowdT-share*crowdL
	d.share.Store(math.Float64bits(1 + share))
}

// decoding fits y = n·each + b·crowd, where ny and by are the sums of the products with y.
func (d *drag) decoding(ny, by float64) (each, crowd float64) {
	bb := d.bb + dragCrowd*d.nn
	det := d.nn*bb - d.nb*d.nb
	return (ny*bb - by*d.nb) / det, (by*d.nn - ny*d.nb) / det
}

// load is the share, 0 to 4.
func (d *drag) load() float64 {
	if v := d.share.Load(); v != 0 {
		return math.Float64frombits(v) - 1
	}
	return dragUnknown
}

// Price is what work costs now, in seconds: one part for each leg and one for each token.
type Price struct {
	Fixed    float64 `json:"per_leg_seconds"`
	PerToken float64 `json:"per_token_seconds"`
	// Age is the time since the last leg that changed the price, in seconds.
	Age float64 `json:"age_seconds"`
	// Error is how far the price was from the times of the last legs before it learned from them: the
	// median of |time - price| / price. It is null until there were minMisses legs.
	Error *float64 `json:"median_error_ratio"`
}

// String is the work in labels and logs.
func (w Work) String() string { return [...]string{"prefill", "transfer", "local"}[w] }

// List maps the name of each work to its price, if that is known.
func (p *Prices) List(now int64) map[string]Price {
	all := map[string]Price{}
	for w := range workCount {
		l := &p.lines[w]
		if l.known() {
			all[w.String()] = Price{
				Fixed: l.at(0), PerToken: math.Float64frombits(l.each.Load()), Age: l.since(now).Seconds(), Error: l.miss(),
			}
		}
	}
	return all
}
