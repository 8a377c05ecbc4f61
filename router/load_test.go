package router

import (
	"container/heap"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// A load is requests at one prefill and one decode engine whose times are those of sim's profiles, in virtual time.
// What auto does to TTFT and TPOT shows in it without a machine's noise.
type load struct {
	*pricer
	card   card
	t      *testing.T
	pd     PD
	clock  float64 // seconds
	events events
	order  int
	all    []*arrival

	prefill, decode *engine
	link            *link  // what transfers go through, or nil if they hold each other up only where they are posted
	ended           func() // an answer has
}

// arrival is one request and what it took.
type arrival struct {
	tokens, answer  int
	at, first, done float64
	split           bool

	p, d  Lease
	ahead int     // tokens before it where it is computed
	sent  float64 // to the engine that gives the first token
	toDo  int     // prompt tokens that no step has yet

	toCome  int // tokens of the answer that no step has yet
	left    int // tokens of the answer that are not there yet
	streams Streaming
}

// curve is milliseconds by tokens, with straight lines between the points.
type curve [][2]float64

func (c curve) at(tokens int) float64 {
	i, x := 1, float64(tokens)
	for i < len(c)-1 && c[i][0] < x {
		i++
	}
	a, b := c[i-1], c[i]
	return (a[1] + (b[1]-a[1])*(x-a[0])/(b[0]-a[0])) / 1e3
}

// card is the times of an engine on one GPU, by tokens, in milliseconds. pull is that of an idle engine, from the handle
// to the first token. A step takes step, and context for each token of a running answer's prompt.
type card struct {
	prefill, post, pull   curve
	step, stream, context float64 // seconds
}

func h200() card {
	return card{
		prefill: curve{{0, 4}, {200, 10}, {1000, 30}, {2000, 48}, {5000, 125}, {10000, 273}},
		post:    curve{{0, 0.1}, {200, 0.3}, {5000, 4.9}, {10000, 9.7}},
		pull:    curve{{0, 10.5}, {1000, 13.1}, {5000, 22.8}, {10000, 35.8}},
		step:    0.00495, stream: 0.00001, context: 0.000031e-3,
	}
}

func h100() card {
	return card{
		prefill: curve{{0, 7}, {200, 11}, {1000, 31}, {2000, 51}, {5000, 130}, {10000, 281}},
		post:    curve{{0, 0.1}, {200, 0.6}, {1000, 2.7}, {5000, 5.2}, {10000, 9.7}},
		pull:    curve{{0, 15}, {1000, 19.7}, {5000, 28.2}, {10000, 42.7}},
		step:    0.007, context: 0.0000475e-3,
	}
}

const (
	requestTime = 0.006 // of a request outside the steps of an engine
	batchTokens = 8192
	cacheTokens = 232_960 // of 32 GiB
)

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

func (l *load) acquire(role Role, tokens int, lease *Lease) {
	if err := l.s.AcquireFor(Want{Role: role, Tokens: tokens}, lease); err != nil {
		l.t.Fatal(err)
	}
}

func (l *load) arrive(a *arrival) {
	a.at, a.sent, a.toDo, a.toCome, a.left = l.clock, l.clock, a.tokens, a.answer, a.answer
	l.acquire(Decode, a.tokens, &a.d)
	prompt := Prompt{Tokens: a.tokens}
	way := l.decide(l.pd, l.p, l.d, prompt)
	a.d.Expect(way, prompt)
	if a.split = way.Split; !a.split {
		a.ahead = a.d.Compute(a.tokens, true)
		l.after(requestTime, func() { l.decode.prompts = append(l.decode.prompts, a); l.decode.changed() })
		return
	}
	l.acquire(Prefill, a.tokens, &a.p)
	l.after(requestTime, func() { l.prefill.prompts = append(l.prefill.prompts, a); l.prefill.changed() })
}

// prefilled ends a prefill leg, and begins the one at D.
func (l *load) prefilled(a *arrival) {
	l.r.Prefilled(a.p.Ahead(), a.tokens, l.since(a.sent))
	a.p.Release(OK)
	a.sent = l.clock
	a.d.Pull(a.tokens, true)
	l.after(requestTime, func() { l.decode.posts = append(l.decode.posts, a); l.decode.changed() })
}

// engine takes steps: a token for each running answer, the prompts that fit, and the transfers that it
// posts. A step is put together when the one before it begins.
type engine struct {
	l        *load
	prefills bool // and has no answers
	prompts  []*arrival
	running  []*arrival
	posts    []*arrival // their blocks are to be pulled
	held     int        // tokens in the KV cache
	busy     bool
	next     *taken
}

// taken is what one step does.
type taken struct {
	took            float64
	tokens, pulling []*arrival
}

func (e *engine) changed() {
	switch {
	case !e.busy:
		e.begin()
	case e.next == nil:
		e.next = e.form()
	}
}

func (e *engine) begin() {
	s := e.next
	if s == nil {
		s = e.form()
	}
	e.next, e.busy = nil, s != nil
	if !e.busy {
		return
	}
	e.next = e.form()
	posted := 0.0
	for _, a := range s.pulling {
		posted += e.l.card.post.at(a.tokens)
		here := func() { e.running = append(e.running, a); e.changed() }
		if k := e.l.link; k != nil {
			e.l.after(posted, func() { k.carry(a.tokens, here) })
			continue
		}
		e.l.after(posted+e.l.card.pull.at(a.tokens)-e.l.card.post.at(a.tokens)-e.l.card.step, here)
	}
	e.l.after(s.took, func() { e.end(s) })
}

// form puts a step together of what there is, or returns nil.
func (e *engine) form() *taken {
	s := &taken{tokens: slices.Clone(e.running)}
	for len(e.posts) > 0 && e.holds(e.posts[0]) {
		s.pulling, e.posts = append(s.pulling, e.posts[0]), e.posts[1:]
		s.took += e.l.card.post.at(s.pulling[len(s.pulling)-1].tokens)
	}
	room, began := batchTokens-len(e.running), len(e.running) > 0
	if began {
		s.took += e.l.card.step
	}
	for _, a := range e.running {
		s.took += e.l.card.stream + e.l.card.context*float64(a.tokens)
	}
	for room > 0 && len(e.prompts) > 0 && (e.prompts[0].toDo < e.prompts[0].tokens || e.holds(e.prompts[0])) {
		if !began {
			s.took, began = s.took+e.l.card.prefill.at(0), true
		}
		a := e.prompts[0]
		part := min(room, a.toDo)
		s.took += e.l.card.prefill.at(a.tokens-a.toDo+part) - e.l.card.prefill.at(a.tokens-a.toDo)
		room -= part
		if a.toDo -= part; a.toDo == 0 {
			s.tokens, e.running, e.prompts = append(s.tokens, a), append(e.running, a), e.prompts[1:]
		}
	}
	for _, a := range s.tokens {
		a.toCome--
	}
	e.running = slices.DeleteFunc(e.running, func(a *arrival) bool { return a.toCome == 0 || e.prefills })
	if !began && len(s.pulling) == 0 {
		return nil
	}
	return s
}

// holds takes the place of a and its answer in the KV cache, if there is one.
func (e *engine) holds(a *arrival) bool {
	if e.held+a.tokens+a.answer > cacheTokens {
		return false
	}
	e.held += a.tokens + a.answer
	return true
}

func (e *engine) end(s *taken) {
	for _, a := range s.tokens {
		if e.prefills {
			e.held -= a.tokens + a.answer
			a.toDo, a.toCome = a.tokens, a.answer
			e.l.prefilled(a)
			continue
		}
		if e.l.token(a); a.left == 0 {
			e.held -= a.tokens + a.answer
		}
	}
	e.begin()
}

// token gives the answer its next token, and tells the router what the proxy would.
func (l *load) token(a *arrival) {
	a.left--
	switch {
	case a.left == a.answer-1:
		a.first = l.clock
		a.d.Computed()
		if a.split {
			l.r.Pulled(a.d.Beside(), a.tokens, l.since(a.sent))
		} else {
			l.r.Computed(l.d, a.ahead, a.tokens, l.since(a.sent))
		}
		a.streams = l.d.Streams()
	case a.left == 0:
		a.done = l.clock
		l.r.StreamEnded(l.d, a.streams, a.answer-1)
		a.d.Release(OK)
		l.ended()
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
	l := &load{pricer: newPricer(t), card: tr.card, t: t, pd: PD{Mode: mode, StallWeight: StallWeight}, ended: func() {}}
	l.prefill, l.decode = &engine{l: l, prefills: true}, &engine{l: l}
	if tr.slow > 0 {
		l.link = &link{l: l, token: tr.slow}
	}
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
		l.ended = func() {
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
