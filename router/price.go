package router

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// Work is a part of a completion whose time is learned from live traffic.
type Work uint8

// The three parts that decide whether a prefill of its own pays.
const (
	// PrefillWork is a prefill leg, over the uncached tokens of its prompt and of those
	// that its backend had before it.
	PrefillWork Work = iota
	// TransferWork is the time to D's first event with a handle, over the tokens pulled.
	TransferWork
	// LocalWork is the time to D's first event without one, over the uncached tokens of
	// its prompt and of those that D computes itself already.
	LocalWork
	workCount
)

// prices are what a token of each work costs, of all backends of a pool together.
type prices struct {
	lines [workCount]line
	drag  drag
}

// Prefilled learns from a prefill leg: its own uncached tokens, and those that its
// backend had before it when it was sent.
func (r *Router) Prefilled(ahead, own int, took time.Duration) {
	r.learn(PrefillWork, ahead+own, took)
	r.traffic.prefilled(r.now(), own, r.prices.own(PrefillWork, own))
}

// Pulled learns from a decode leg with a handle: the tokens that D did not have, and
// the time to its first event.
func (r *Router) Pulled(tokens int, took time.Duration) { r.learn(TransferWork, tokens, took) }

// Computed learns from a decode leg without a handle: its own uncached tokens, those
// that D was computing already, and the time to the first event; below 0 where the answer
// came whole.
func (r *Router) Computed(d *Backend, ahead, own int, took time.Duration) {
	r.learn(LocalWork, ahead+own, took)
	work := float64(own) * r.prices.one(LocalWork)
	d.localNanos.Add(int64(work * 1e9))
	r.traffic.computed(r.now(), own, work)
}

func (r *Router) learn(w Work, tokens int, took time.Duration) {
	if tokens >= 0 && took >= 0 {
		r.prices.lines[w].add(float64(tokens), took.Seconds(), r.now())
	}
}

// own is what the tokens alone cost, without waits and what each request costs.
func (p *prices) own(w Work, tokens int) float64 {
	return float64(tokens) * math.Float64frombits(p.lines[w].each.Load())
}

// cost is the expected time of work over so many tokens, in seconds. What was never
// seen costs what a prefill does where it computes, and nothing where it moves blocks.
func (p *prices) cost(w Work, tokens float64) float64 {
	return p.line(w).at(tokens)
}

// one is what a token costs by cost, without what each request does.
func (p *prices) one(w Work) float64 { return math.Float64frombits(p.line(w).each.Load()) }

// line is the one to go by.
func (p *prices) line(w Work) *line {
	if w == LocalWork && !p.lines[w].known() {
		return &p.lines[PrefillWork]
	}
	return &p.lines[w]
}

// The memory of a line: short enough to follow an engine that slows down within a
// minute though it is asked only now and then, long enough not to follow one request.
const (
	lineHalfLife  = 5 * time.Second
	lineMaxWeight = 48  // samples that count at most
	lineRare      = 8   // the same where the last one is older than lineRareAge
	lineMinKeep   = 0.5 // of what was known, however late the next sample comes
	lineRareAge   = 2 * time.Second
	lineOutlier   = 10 // a sample of more than so many times the expected time counts as that
	lineSettled   = 8  // samples before anything counts as an outlier
)

// line is y = fixed + each·x, fitted to the samples of the last seconds.
type line struct {
	mu              sync.Mutex
	w, x, y, xx, xy float64 // decaying sums
	last            int64   // time of the last sample, of the router's clock

	fixed, each atomic.Uint64 // seconds, as bits of a float64
	sampled     atomic.Int64  // 1 + last; 0: never
}

func (l *line) known() bool { return l.sampled.Load() != 0 }

// since is the age of the last sample; a line without one is as old as the router.
func (l *line) since(now int64) time.Duration {
	return time.Duration(now - max(0, l.sampled.Load()-1))
}

func (l *line) at(x float64) float64 {
	return math.Float64frombits(l.fixed.Load()) + x*math.Float64frombits(l.each.Load())
}

func (l *line) add(x, y float64, now int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.w > lineSettled {
		y = min(y, lineOutlier*l.at(x)+0.05)
	}
	age, most := time.Duration(now-l.last), float64(lineMaxWeight)
	if age > lineRareAge {
		most = lineRare
	}
	keep := max(lineMinKeep, math.Exp2(-float64(age)/float64(lineHalfLife)))
	keep = min(keep, (most-1)/max(l.w, 1))
	l.w = l.w*keep + 1
	l.x = l.x*keep + x
	l.y = l.y*keep + y
	l.xx = l.xx*keep + x*x
	l.xy = l.xy*keep + x*y
	l.last = now
	fixed, each := l.fit()
	l.fixed.Store(math.Float64bits(fixed))
	l.each.Store(math.Float64bits(each))
	l.sampled.Store(now + 1)
}

// fit is the line of least squares, neither part negative. Prompts of about one length
// do not tell the parts apart: then all of it is by the token.
func (l *line) fit() (fixed, each float64) {
	x, y := l.x/l.w, l.y/l.w
	spread := l.xx/l.w - x*x
	if spread > 0.01*x*x {
		each = max(0, (l.xy/l.w-x*y)/spread)
		if fixed = y - each*x; fixed >= 0 {
			return fixed, each
		}
	}
	if x <= 0 {
		return y, 0
	}
	return 0, y / x
}

// drag is how much of the time that D spends on a prefill of its own its running
// streams lose: T = tokens·itl + drag·local over the streams that ended lately, T the
// time of a stream behind its first event, local the seconds of prefill meanwhile.
type drag struct {
	mu                 sync.Mutex
	kk, kl, ll, kt, lt float64
	share              atomic.Uint64 // bits; 0 while nothing is known
}

// Before anything is known a prefill holds the streams up for as long as it takes.
const dragUnknown = 1

// dragKeep is the weight of a sample in that of the next.
const dragKeep = 1 - 1.0/64

func (d *drag) add(tokens, local, took float64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.kk = d.kk*dragKeep + tokens*tokens
	d.kl = d.kl*dragKeep + tokens*local
	d.ll = d.ll*dragKeep + local*local
	d.kt = d.kt*dragKeep + tokens*took
	d.lt = d.lt*dragKeep + local*took
	det := d.kk*d.ll - d.kl*d.kl
	if det <= 0.01*d.kk*d.ll {
		return // streams with and without prefills beside them are needed
	}
	share := (d.kk*d.lt - d.kl*d.kt) / det
	d.share.Store(math.Float64bits(1 + min(max(share, 0), 4)))
}

// load is the share, 0 to 4.
func (d *drag) load() float64 {
	if v := d.share.Load(); v != 0 {
		return math.Float64frombits(v) - 1
	}
	return dragUnknown
}

// StallShare is how much of the time that a decode engine spends on a prefill of its own
// its running streams lose, as far as is known; 1 until something is.
func (r *Router) StallShare() float64 { return r.prices.drag.load() }

// StreamEnded learns from a stream of d that had so many tokens and took so long behind
// its first event, during which d's LocalTime grew by local.
func (r *Router) StreamEnded(tokens int, local, took time.Duration) {
	if tokens > 0 && took > 0 {
		r.prices.drag.add(float64(tokens), local.Seconds(), took.Seconds())
	}
}

// LocalTime is the time that a decode backend has spent on prefills of its own, as far
// as xpyd sent them.
func (b *Backend) LocalTime() time.Duration { return time.Duration(b.localNanos.Load()) }

// Price is what work costs now, in seconds: a part for each leg and one for each token.
type Price struct {
	Fixed    float64 `json:"per_leg_seconds"`
	PerToken float64 `json:"per_token_seconds"`
	// Age of the last leg that told, in seconds.
	Age float64 `json:"age_seconds"`
}

// String is the label and log value.
func (w Work) String() string { return [...]string{"prefill", "transfer", "local"}[w] }

// Prices lists what is known, by Work.
func (r *Router) Prices() map[string]Price {
	all := map[string]Price{}
	for w := range workCount {
		l := &r.prices.lines[w]
		if l.known() {
			all[w.String()] = Price{
				Fixed: l.at(0), PerToken: math.Float64frombits(l.each.Load()), Age: l.since(r.now()).Seconds(),
			}
		}
	}
	return all
}
