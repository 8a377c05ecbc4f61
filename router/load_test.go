package router

import (
	"container/heap"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"xpyd/internal/racetest"
)

// A load is requests at engines whose times are those of sim's profiles, in virtual time. What a way of choosing does to
// TTFT and TPOT shows in it without a machine's noise.
type load struct {
	*pricer
	card   card
	clock  float64 // seconds
	events events
	order  int
	all    []*arrival
	ways   contender
	ended  func(*arrival) // an answer has
	gaps   gaps
}

// contender chooses the way of each request, and hears what the proxy would tell the router.
type contender interface {
	choose(a *arrival) // sets on and to
	prefilled(a *arrival)
	first(a *arrival)
	done(a *arrival)
	lost(a *arrival) // an engine has died under it
}

// arrival is one request and what it took.
type arrival struct {
	tokens, answer  int
	at, first, done float64
	chat            *chat // whose turn it is, or nil
	turn            int

	on, to *engine // computes the prompt; makes the answer
	round  int     // how often engines died under it; what began in an earlier round is stale
	sent   float64 // to the engine that gives the first token
	toDo   int     // prompt tokens that no step has yet

	toCome int // tokens of the answer that no step has yet
	left   int // tokens of the answer that are not there yet
	last   float64

	p, d    Lease // of a contender that is routed
	ahead   int   // tokens before it where it is computed
	streams Streaming
}

type event struct {
	at    float64
	order int
	do    func()
}

// events are a heap by time, then by the order in which they were made.
type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].order < e[j].order
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := len(*e) - 1
	x := (*e)[last]
	*e = (*e)[:last]
	return x
}

func (l *load) after(seconds float64, do func()) {
	l.order++
	heap.Push(&l.events, event{l.clock + seconds, l.order, do})
}

func (l *load) run() {
	for len(l.events) > 0 {
		e := heap.Pop(&l.events).(event)
		l.clock = e.at
		l.now = time.Unix(1000, 0).Add(time.Duration(e.at * float64(time.Second)))
		e.do()
	}
}

func (l *load) since(at float64) time.Duration {
	return time.Duration((l.clock - at) * float64(time.Second))
}

// arrive begins a request, or begins it anew if an engine has died under it.
func (l *load) arrive(a *arrival) {
	if a.round == 0 {
		a.at = l.clock
	}
	a.sent, a.toCome, a.left = l.clock, a.answer, a.answer
	l.ways.choose(a)
	round := a.round
	l.after(requestTime, func() {
		if a.round == round {
			a.on.prompts = append(a.on.prompts, a)
			a.on.changed()
		}
	})
}

// prefilled ends a prefill leg, and begins the one at D.
func (l *load) prefilled(a *arrival) {
	a.on.keeps(a, a.tokens)
	l.ways.prefilled(a)
	a.sent = l.clock
	round := a.round
	l.after(requestTime, func() {
		if a.round == round {
			a.to.posts = append(a.to.posts, a)
			a.to.changed()
		}
	})
}

// token gives the answer its next token, and tells the contender what the proxy would tell the router.
func (l *load) token(a *arrival) {
	a.left--
	switch {
	case a.left == a.answer-1:
		if a.round == 0 || a.first == 0 {
			a.first = l.clock
		}
		l.ways.first(a)
	default:
		l.gaps.add(l.clock - a.last)
	}
	if a.last = l.clock; a.left == 0 {
		a.done = l.clock
		l.ways.done(a)
	}
}

// measured is the p90 of what the requests of one size took, and the mean of their whole answers, in milliseconds.
type measured struct{ ttft, tpot, whole float64 }

// size is the tokens of a prompt and of its answer.
type size struct{ prompt, answer int }

// The sizes of most loads.
var (
	long  = []size{{5000, 250}}
	mixed = []size{{5000, 250}, {200, 250}}
)

// offered is requests whose sizes take turns by chance, for a quarter of a minute.
type offered struct {
	card  card
	rate  float64
	open  int // requests that are always open, in place of a rate, until 64 have begun
	sizes []size
	slow  float64 // seconds that a token takes through a link that transfers share; 0: they go over NVLink
	warm  bool    // after a quarter of a minute of long and short prompts, which do not count
}

// measure is one load, which begins without prices unless it is warm.
func (tr offered) measure(t *testing.T, mode string, seed uint64) map[size]measured {
	l := &load{pricer: newPricer(t), card: tr.card, ended: func(*arrival) {}}
	p, d := newEngine(l), newEngine(l)
	if tr.slow > 0 {
		d.link = &link{l: l, token: tr.slow}
	}
	l.ways = &routed{l: l, t: t, pd: PD{Mode: mode, StallWeight: StallWeight}, at: map[*Backend]*engine{l.p: p, l.d: d}}
	rnd := rand.New(rand.NewPCG(seed, 1))
	next := func() *arrival {
		of := tr.sizes[rnd.IntN(len(tr.sizes))]
		a := &arrival{tokens: of.prompt, answer: of.answer}
		l.all = append(l.all, a)
		return a
	}
	if tr.warm {
		for at := rnd.ExpFloat64() / 4; at < 15; at += rnd.ExpFloat64() / 4 {
			of := mixed[rnd.IntN(2)]
			l.after(at, func() { l.arrive(&arrival{tokens: of.prompt, answer: of.answer}) })
		}
		l.run()
	}
	if tr.open > 0 {
		l.ended = func(*arrival) {
			if len(l.all) < 64 {
				l.arrive(next())
			}
		}
		for range tr.open {
			a := next()
			l.after(0, func() { l.arrive(a) })
		}
	} else {
		for at := rnd.ExpFloat64() / tr.rate; at < 15; at += rnd.ExpFloat64() / tr.rate {
			a := next()
			l.after(at, func() { l.arrive(a) })
		}
	}
	l.run()
	out := map[size]measured{}
	for _, of := range tr.sizes {
		var ttft, tpot []float64
		whole, n := 0.0, 0.0
		for _, a := range l.all {
			if a.tokens == of.prompt && a.answer == of.answer {
				ttft = append(ttft, (a.first-a.at)*1e3)
				tpot = append(tpot, (a.done-a.first)*1e3/float64(a.answer-1))
				whole, n = whole+(a.done-a.at)*1e3, n+1
			}
		}
		out[of] = measured{p90(ttft), p90(tpot), whole / n}
	}
	return out
}

func p90(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)*9/10]
}

// median is of the loads' figures for one size.
func (tr offered) median(t *testing.T, mode string) map[size]measured {
	const loads = 11
	ttft, tpot, whole, out := map[size][]float64{}, map[size][]float64{}, map[size][]float64{}, map[size]measured{}
	for seed := range uint64(loads) {
		for size, m := range tr.measure(t, mode, seed) {
			ttft[size], tpot[size], whole[size] = append(ttft[size], m.ttft), append(tpot[size], m.tpot), append(whole[size], m.whole)
		}
	}
	for _, size := range tr.sizes {
		slices.Sort(ttft[size])
		slices.Sort(tpot[size])
		slices.Sort(whole[size])
		out[size] = measured{ttft[size][loads/2], tpot[size][loads/2], whole[size][loads/2]}
	}
	return out
}

// auto's TTFT p90 and TPOT p90 stay within 6 % of the better of always and never, and short prompts beside
// long ones have their first tokens sooner than with either. The goal is 5 %; the rest is for the few loads.
func TestAutoIsWithinItsGoalFromTheStart(t *testing.T) {
	racetest.SkipPure(t)
	for name, gpu := range map[string]card{"h200": h200(), "h100": h100()} {
		for load, tr := range map[string]offered{
			"mixed 8":  {card: gpu, rate: 8, sizes: mixed},
			"mixed 12": {card: gpu, rate: 12, sizes: mixed},
			"long 4":   {card: gpu, rate: 4, sizes: long},
			"long 6":   {card: gpu, rate: 6, sizes: long},
		} {
			t.Run(name+" "+load, tr.isWithinGoal)
		}
	}
}

func (tr offered) isWithinGoal(t *testing.T) {
	always, auto, never := tr.median(t, PDAlways), tr.median(t, PDAuto), tr.median(t, PDNever)
	for _, size := range tr.sizes {
		a, b, n := auto[size], always[size], never[size]
		t.Logf("%v tokens: TTFT p90 %.0f, always %.0f, never %.0f ms; TPOT p90 %.2f, %.2f, %.2f ms", size, a.ttft, b.ttft, n.ttft, a.tpot, b.tpot, n.tpot)
		if a.ttft > 1.06*min(b.ttft, n.ttft) || a.tpot > 1.06*min(b.tpot, n.tpot) {
			t.Errorf("%v tokens: not within 6 %% of the better of always and never", size)
		}
		if size.prompt == 200 && a.ttft > 0.5*min(b.ttft, n.ttft) {
			t.Errorf("%v tokens: TTFT p90 %.0f ms, %.0f with always, %.0f with never", size, a.ttft, b.ttft, n.ttft)
		}
	}
}

// Under loads that were not used to develop auto, whole answers take at most 2 % longer than with the better mode, or 4 %
// if a number of requests is always open. TTFT p90 is at most 2 % above that of the worse one. TPOT p90 is within 6 or 7 %
// of that of always, unless answers have six tokens: those end sooner with some of their prompts on decode. On two H200s
// each prompt that was tried on decode alone cost the answers there a pause, and at one in twenty that was 1 % of all
// answers' time.
func TestAutoIsNeverTheWorst(t *testing.T) {
	racetest.SkipPure(t)
	for name, gpu := range map[string]card{"h200": h200(), "h100": h100()} {
		for load, tr := range map[string]offered{
			"long 2":       {rate: 2, sizes: long},
			"long 3":       {rate: 3, sizes: long},
			"mixed 4":      {rate: 4, sizes: mixed},
			"middling":     {rate: 10, sizes: []size{{2000, 100}}},
			"documents":    {rate: 6, sizes: []size{{10000, 100}, {1000, 300}, {1000, 300}, {1000, 300}, {1000, 300}}},
			"4 open":       {open: 4, sizes: long},
			"16 open":      {open: 16, sizes: long},
			"warm 4 open":  {open: 4, sizes: long, warm: true},
			"warm 16 open": {open: 16, sizes: long, warm: true},
			"short":        {rate: 20, sizes: []size{{1024, 6}}},
		} {
			tr.card = gpu
			t.Run(name+" "+load, tr.isNeverTheWorst)
		}
	}
}

func (tr offered) isNeverTheWorst(t *testing.T) {
	always, auto, never := tr.median(t, PDAlways), tr.median(t, PDAuto), tr.median(t, PDNever)
	whole, tpot := 1.02, 1.06
	if tr.open > 0 { // auto serves a burst sooner, so that its answers end together and the next burst is a denser one
		whole, tpot = 1.04, 1.07
	}
	for size, a := range auto {
		b, n := always[size], never[size]
		t.Logf("%v tokens: TTFT p90 %.0f, always %.0f, never %.0f ms; TPOT p90 %.2f, %.2f, %.2f ms; whole answer %.0f, %.0f, %.0f ms",
			size, a.ttft, b.ttft, n.ttft, a.tpot, b.tpot, n.tpot, a.whole, b.whole, n.whole)
		if a.whole > whole*min(b.whole, n.whole) || a.ttft > 1.02*max(b.ttft, n.ttft) || size.answer > 6 && a.tpot > tpot*b.tpot {
			t.Errorf("%v tokens: whole answers take over %.2f times as long as with the better mode, TTFT is above the worse one, or TPOT over %.2f times that of always", size, whole, tpot)
		}
	}
}

// However the first requests happen to come, whole answers take at most 5 % longer than with the better mode. The first
// prefills hardly tell what a token costs. For as long as auto took their noise for the price, in one start of twenty
// prompts on decode seemed to pause nobody, so it sent all there that came in the first seconds.
func TestAutoHasNoBadStart(t *testing.T) {
	racetest.SkipPure(t)
	for name, gpu := range map[string]card{"h200": h200(), "h100": h100()} {
		for load, tr := range map[string]offered{
			"long 3":   {rate: 3, sizes: long},
			"mixed 4":  {rate: 4, sizes: mixed},
			"middling": {rate: 10, sizes: []size{{2000, 100}}},
			"light":    {rate: 6, sizes: []size{{1000, 100}}},
			"busy":     {rate: 15, sizes: []size{{1000, 100}, {300, 200}}},
		} {
			tr.card = gpu
			t.Run(name+" "+load, func(t *testing.T) {
				for seed := uint64(100); seed < 120; seed++ {
					auto, always, never := tr.whole(t, PDAuto, seed), tr.whole(t, PDAlways, seed), tr.whole(t, PDNever, seed)
					if auto > 1.05*min(always, never) {
						t.Errorf("start %d: whole answers take %.0f ms, always %.0f, never %.0f", seed, auto, always, never)
					}
				}
			})
		}
	}
}

// whole is the mean of the sizes' means.
func (tr offered) whole(t *testing.T, mode string, seed uint64) float64 {
	sum := 0.0
	for _, m := range tr.measure(t, mode, seed) {
		sum += m.whole
	}
	return sum / float64(len(tr.sizes))
}
