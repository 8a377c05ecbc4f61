// Package way chooses the way of a request through engines that serve either way: which one computes its prompt, and which
// one makes its answer, which may be the same. A plan, made each second of the traffic of the last ones, says how many
// engines only prefill. Within it, each request takes the way of the least cost in seconds: what it still waits until its
// last token, and what it adds to the ends of others. It knows no HTTP and no leases, and its times are in seconds.
package way

import (
	"math"
	"slices"
	"sync"
)

// Candidate is an engine that may serve a request, and how many tokens of its prompt are in its cache.
type Candidate struct {
	Engine            *Engine
	Cached            int
	Prefills, Decodes bool // what it may do
	// NoPrompt and NoAnswer say that it takes no further one at the moment. It counts for the plan all the same.
	NoPrompt, NoAnswer bool
	// Share is the part of a full load that it takes, above 0 and up to 1: by its weight, and while it starts.
	Share float64
	// Requests is all that it has in any way, whoever sent it. Room is how many tokens its KV cache has, or 0.
	Requests, Room float64
}

// Request is what is known of a request before it has a way.
type Request struct {
	Prompt int  // tokens
	Most   int  // tokens of the answer, or 0
	Quiet  bool // the answer comes whole, and does not show when it began
	// Sender is a hash of who asks and for which model, as the lengths of answers differ by it; 0: not known.
	Sender uint64
}

// Fleet is the engines of one model. Its methods may be called at the same time.
type Fleet struct {
	mu       *sync.Mutex
	model    fitted
	traffic  traffic
	plan     Plan    // the zero one until enough of a traffic is known
	last     Plan    // the last one that was made, which stays while traffic begins anew
	changed  float64 // when the plan became another one
	changes  int     // how often it did
	next     float64 // when it is looked at again
	underway int     // trips
	turn     int     // the engine that is looked at first
	room     float64 // tokens of the KV cache of an engine, by what they say; 0 if none has said so
}

// New returns a fleet that knows nothing yet. An engine may be in several fleets, if these have one mutex.
func New(mu *sync.Mutex) *Fleet { return &Fleet{mu: mu} }

const (
	every   = 1.0  // between two looks at the plan
	better  = 0.03 // a plan must be better by that part to become the next one
	alike   = 0.02 // ways whose costs differ by less are alike
	fewest  = 3    // requests, before which there is no plan
	soonest = 0.2  // from the first request on; what comes at once shows no rate
	// unplanned is how many prompts like its own are expected to pause an answer before there is a plan. So the first answers
	// share few engines, and the others are free of answers if they are to prefill.
	unplanned = 6.0
	mostBusy  = 0.95 // an engine of which prompts take more is taken for as busy
)

// Choose finds the way of a request among engines that may serve it. It returns nil if none can.
func (f *Fleet) Choose(now float64, r Request, all []Candidate) *Trip {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.traffic.begins(now, f.underway) {
		f.plan, f.next = Plan{}, 0
	}
	m := f.model.model()
	t, most := &Trip{prompt: float64(r.Prompt), quiet: r.Quiet, who: who(r.Sender, float64(r.Prompt))}, float64(r.Most)
	if r.Most <= 0 {
		most = unbounded
	}
	t.says = f.traffic.expect(now, t.prompt, most, f.token(&m), t.who)
	fresh := t.prompt
	for _, c := range all {
		c.Engine.settle(now, f)
		fresh = min(fresh, max(1, t.prompt-float64(c.Cached)))
	}
	weigh(all)
	f.traffic.came(now, t.prompt, fresh, most)
	if now >= f.next {
		t.Planned = f.look(now, &m, all)
		m = f.model.model()
	}
	if !f.cheapest(now, t, &m, all) {
		return nil
	}
	f.underway++
	t.begin(now, &m)
	return t
}

// token is about how long a token of an answer takes.
func (f *Fleet) token(m *Model) float64 {
	return (m.Step + f.plan.Answers*m.Stream) / (1 - min(f.plan.Share, mostBusy))
}

// look makes a plan of what came lately, and reports whether it is another one.
func (f *Fleet) look(now float64, m *Model, all []Candidate) (changes bool) {
	f.next = now + min(every, (now-f.traffic.began)/4) // soon after the first request, much is new
	classes, n := f.traffic.classes(now, f.token(m))
	f.level(all)
	*m = f.model.model()
	if n < fewest || now-f.traffic.began < soonest {
		return false
	}
	least, most := 0, 0
	for _, c := range all {
		if !c.Decodes {
			least++
		}
		if c.Prefills {
			most++
		}
	}
	most = min(most, len(all)-1)
	f.room = meanRoom(all)
	best, other := m.best(len(all), least, most, classes, f.room)
	same := f.plan
	same.Engines, same.Prefill = len(all), min(max(same.Prefill, least), most)
	if same = m.evaluate(same, classes, f.room); best.Mean >= (1-better)*same.Mean {
		if best.Prefill != same.Prefill {
			other = best
		}
		best = same
	}
	best.Other, best.OtherMean = other.Prefill, other.Mean
	if changes = best.Prefill != f.last.Prefill || best.Engines != f.last.Engines; changes {
		f.changed = now
		f.changes++
	}
	f.last = best
	f.plan = best
	f.assign(all)
	return changes
}

// meanRoom is that of the engines that say how much they have.
func meanRoom(all []Candidate) float64 {
	sum, n := 0.0, 0.0
	for _, c := range all {
		if c.Room > 0 {
			sum, n = sum+c.Room, n+1
		}
	}
	if n == 0 {
		return usualRoom
	}
	return sum / n
}

// weigh makes the shares parts of the greatest one. An engine that is slower than those of the greatest share gets less for
// that already, so its share counts for the rest only: a weight that says how fast it is does not count twice.
func weigh(all []Candidate) {
	most, fastest := 0.0, 1.0
	for _, c := range all {
		switch slow := c.Engine.slow(); {
		case c.Share > most:
			most, fastest = c.Share, slow
		case c.Share == most:
			fastest = min(fastest, slow)
		}
	}
	for i, c := range all {
		if c.Share > 0 {
			all[i].Share = min(1, c.Share/most*max(1, c.Engine.slow()/fastest))
		}
	}
}

// level makes the middle one of the engines that have told something since the last time the measure of them: what they
// have in common is the model's. What is known of the others fades, so that they are tried again.
func (f *Fleet) level(all []Candidate) {
	slow := make([]float64, 0, len(all))
	for _, c := range all {
		if c.Engine.told {
			slow = append(slow, c.Engine.slow())
		}
	}
	if len(slow) < min(2, len(all)) { // one alone does not tell what it has in common with others
		return
	}
	slices.Sort(slow)
	by := slow[(len(slow)-1)/2]
	for _, c := range all {
		if e := c.Engine; e.told {
			e.slower, e.told = e.slow()/by-1, false
		} else {
			e.slower *= forgets
		}
	}
	f.model.prompt.scale(by)
	f.model.step.scale(by)
}

// assign says which engines prefill. One that does goes on, unless there are too many of them.
func (f *Fleet) assign(all []Candidate) {
	n := 0
	for _, c := range all {
		c.Engine.prefills = c.Prefills && (c.Engine.prefills || !c.Decodes)
		if c.Engine.prefills {
			n++
		}
	}
	for ; n > f.plan.Prefill; n-- {
		c := leastOf(all, func(c Candidate) (float64, bool) { return c.Engine.pending, c.Engine.prefills && c.Decodes })
		if c == nil {
			return
		}
		c.Engine.prefills = false
	}
	for ; n < f.plan.Prefill; n++ {
		c := leastOf(all, func(c Candidate) (float64, bool) {
			return c.Engine.answers + c.Engine.coming, !c.Engine.prefills && c.Prefills
		})
		if c == nil {
			return
		}
		c.Engine.prefills = true
	}
}

// leastOf is the one of least value among those that may be taken.
func leastOf(all []Candidate, value func(Candidate) (float64, bool)) (best *Candidate) {
	low := math.Inf(1)
	for i, c := range all {
		if v, ok := value(c); ok && v < low {
			best, low = &all[i], v
		}
	}
	return best
}

// pair is the two engines of least cost, so that there is another one beside that of the other part.
type pair struct {
	at   [2]int
	cost [2]float64
}

func noPair() pair { return pair{[2]int{-1, -1}, [2]float64{math.Inf(1), math.Inf(1)}} }

func (p *pair) offer(i int, cost float64) {
	switch {
	case cost < p.cost[0]:
		p.at, p.cost = [2]int{i, p.at[0]}, [2]float64{cost, p.cost[0]}
	case cost < p.cost[1]:
		p.at[1], p.cost[1] = i, cost
	}
}

// cheapest sets the way of t. The cost of a prompt and that of an answer add up, so the best engines for each make the best
// pair, unless they are one engine.
func (f *Fleet) cheapest(now float64, t *Trip, m *Model, all []Candidate) bool {
	t.Cost = math.Inf(1)
	prompts, answers := noPair(), noPair()
	take := func(i, j int, cost float64) {
		if i >= 0 && j >= 0 && cost < (1-alike)*t.Cost {
			t.Way, t.Cost = Way{all[i].Engine, all[j].Engine}, cost
			t.fresh, t.lacks = t.beside(all[i]), 0
			if i != j {
				t.lacks = t.beside(all[j])
			}
		}
	}
	first := f.begin(all)
	for k := range all {
		i := (k + first) % len(all)
		c, prompt, answer := all[i], 0.0, 0.0
		if c.Prefills && !c.NoPrompt {
			prompt = promptCost(now, c, t.beside(c), m)
			prompts.offer(i, prompt)
		}
		if c.Decodes && !c.NoAnswer {
			answer = f.answerCost(t, c, m)
			answers.offer(i, answer+m.Handoff+m.HandoffToken*(t.beside(c)+c.Engine.moving/c.Share)+m.Prompt*c.Engine.slow()*c.Engine.todo(now, m)/c.Share)
		}
		if c.Prefills && c.Decodes && !c.NoPrompt && !c.NoAnswer {
			take(i, i, prompt+answer)
		}
	}
	for x, i := range prompts.at {
		for y, j := range answers.at {
			if i != j {
				take(i, j, prompts.cost[x]+answers.cost[y])
			}
		}
	}
	return t.Way.Prefill != nil
}

// beside is the tokens of the prompt that the engine has not in its cache. It computes one at least.
func (t *Trip) beside(c Candidate) float64 { return max(1, t.prompt-float64(c.Cached)) }

// begin is the engine that is looked at first, so that engines that cost about the same take turns. One that takes a part of a
// full load takes that part of its turns.
func (f *Fleet) begin(all []Candidate) int {
	for range maxOffers {
		f.turn++
		e := all[f.turn%len(all)].Engine
		was := e.offered
		if e.offered += all[f.turn%len(all)].Share; math.Floor(e.offered) > math.Floor(was) {
			break
		}
	}
	return f.turn % len(all)
}

// maxOffers bounds the turns that one request looks at.
const maxOffers = 16

// promptCost is the time until an engine has computed so many tokens, and the pauses of its answers meanwhile. What it has
// counts for more, the less of a full load it takes.
func promptCost(now float64, c Candidate, fresh float64, m *Model) float64 {
	e := c.Engine
	work := m.Prompt * e.slow() * fresh
	return m.Prompt*e.slow()*e.todo(now, m)/c.Share + work + (e.answers+c.others())/c.Share*work
}

// answerCost is the time of the answer on an engine whose prompts take their share of its time, by how much it makes the
// steps of the other answers longer, and the wait for room in the KV cache.
func (f *Fleet) answerCost(t *Trip, c Candidate, m *Model) float64 {
	e, share := c.Engine, f.plan.Share
	if e.prefills {
		share = 1 - (1-min(f.plan.PrefillShare, mostBusy))*(1-min(f.plan.PrefillShare, mostBusy))
	}
	own := t.prompt + t.says/2
	others, context := (e.answers+e.coming+c.others())/c.Share, (e.context+c.others()*own)/c.Share
	token := m.step(others+1, context+own) / (1 - min(share, mostBusy))
	// For each time that the room is used once more, an answer ends.
	full := max(0, (e.context+c.others()*own+own)/c.room(f)-1)
	pauses := 0.0 // of the first answer of an engine, before there is a plan
	if f.plan.Engines == 0 && e.answers+e.coming == 0 {
		pauses = unplanned * m.Prompt * t.prompt
	}
	return e.slow() * (t.says*(token*(1+full)+others*(m.Stream+m.Context*own)) + pauses)
}

// others is how many answers it makes that came another way. A prompt of those counts as an answer.
func (c *Candidate) others() float64 { return max(0, c.Requests-c.Engine.trips) }

func (c *Candidate) room(f *Fleet) float64 {
	switch {
	case c.Room > 0:
		return c.Room
	case f.room > 0:
		return f.room
	}
	return usualRoom
}

// Now is the plan in force, since when, and how often there was another one.
func (f *Fleet) Now() (p Plan, since float64, changes int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last, f.changed, f.changes
}

// Model is what an engine takes for its steps.
func (f *Fleet) Model() Model {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.model.model()
}
