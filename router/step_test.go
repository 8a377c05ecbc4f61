package router

import "slices"

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
// to the first token. A step takes step, and context for each token of the prompts and answers that run.
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

// engine takes steps: a token for each running answer, the prompts that fit, and the transfers that it
// posts. A step is put together when the one before it begins.
type engine struct {
	l       *load
	slower  float64 // than its card
	dead    bool
	prompts []*arrival
	running []*arrival
	posts   []*arrival        // their blocks are to be pulled
	held    map[*arrival]bool // those whose tokens are in the KV cache
	free    int               // tokens of it
	busy    bool
	next    *taken
	link    *link         // what transfers to it go through, or nil if they hold each other up only where they are posted
	chats   map[*chat]int // tokens in the prefix cache; that of nil is what all begin with
}

// taken is what one step does.
type taken struct {
	took            float64
	tokens, pulling []*arrival
	rounds          []int // of tokens, as the step was put together
}

func newEngine(l *load) *engine {
	return &engine{l: l, slower: 1, free: cacheTokens, held: map[*arrival]bool{}, chats: map[*chat]int{}}
}

func (e *engine) changed() {
	switch {
	case e.dead:
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
		lacks := a.tokens - e.cached(a)
		posted += e.l.card.post.at(lacks)
		round := a.round
		here := func() {
			if a.round == round {
				e.keeps(a, a.tokens)
				e.running = append(e.running, a)
				e.changed()
			}
		}
		if k := e.link; k != nil {
			e.l.after(posted, func() { k.carry(a.tokens, here) })
			continue
		}
		e.l.after(posted+e.l.card.pull.at(lacks)-e.l.card.post.at(lacks)-e.l.card.step, here)
	}
	e.l.after(s.took*e.slower, func() { e.end(s) })
}

// form puts a step together of what there is, or returns nil.
func (e *engine) form() *taken {
	s := &taken{tokens: slices.Clone(e.running)}
	for len(e.posts) > 0 && e.holds(e.posts[0]) {
		s.pulling, e.posts = append(s.pulling, e.posts[0]), e.posts[1:]
		a := s.pulling[len(s.pulling)-1]
		s.took += e.l.card.post.at(a.tokens - e.cached(a))
	}
	room, began := batchTokens-len(e.running), len(e.running) > 0
	if began {
		s.took += e.l.card.step
	}
	for _, a := range e.running {
		s.took += e.l.card.stream + e.l.card.context*float64(a.tokens+a.answer-a.toCome)
	}
	for room > 0 && len(e.prompts) > 0 && e.starts(e.prompts[0]) {
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
		s.rounds = append(s.rounds, a.round)
	}
	e.running = slices.DeleteFunc(e.running, func(a *arrival) bool { return a.toCome == 0 || a.to != e })
	if !began && len(s.pulling) == 0 {
		return nil
	}
	return s
}

// starts reports that the prompt has been begun, or that it can be.
func (e *engine) starts(a *arrival) bool {
	if e.held[a] {
		return true
	}
	a.toDo = a.tokens - e.cached(a)
	return e.holds(a)
}

// holds takes the place of a and its answer in the KV cache, if there is one.
func (e *engine) holds(a *arrival) bool {
	if a.tokens+a.answer > e.free {
		return false
	}
	e.free -= a.tokens + a.answer
	e.held[a] = true
	return true
}

func (e *engine) drop(a *arrival) {
	if e.held[a] {
		e.free += a.tokens + a.answer
		delete(e.held, a)
	}
}

func (e *engine) end(s *taken) {
	if e.dead {
		return
	}
	for i, a := range s.tokens {
		if a.round != s.rounds[i] { // it has begun anew
			continue
		}
		if a.to != e {
			e.drop(a)
			a.toCome = a.answer
			e.l.prefilled(a)
			continue
		}
		if e.l.token(a); a.left == 0 {
			e.drop(a)
			e.keeps(a, a.tokens+a.answer)
			e.l.ended(a)
		}
	}
	e.begin()
}

// die takes the engine away. What it had begins anew.
func (e *engine) die() {
	e.dead = true
	for _, a := range e.l.all {
		if a.left == 0 || a.on == nil || a.on != e && a.to != e {
			continue
		}
		for _, x := range []*engine{a.on, a.to} {
			if x != e && !x.dead {
				x.forget(a)
			}
		}
		e.l.ways.lost(a)
		a.round++
		e.l.arrive(a)
	}
}

// forget takes a out of all that the engine does.
func (e *engine) forget(a *arrival) {
	is := func(x *arrival) bool { return x == a }
	e.drop(a)
	e.running, e.posts, e.prompts = slices.DeleteFunc(e.running, is), slices.DeleteFunc(e.posts, is), slices.DeleteFunc(e.prompts, is)
}

// gaps counts the times between two tokens of an answer, by half a millisecond.
type gaps struct {
	counts [8192]int
	n      int
}

func (g *gaps) add(seconds float64) {
	g.counts[min(int(seconds*2e3), len(g.counts)-1)]++
	g.n++
}

// p99 is in milliseconds.
func (g *gaps) p99() float64 {
	for i, seen := 0, 0; i < len(g.counts); i++ {
		if seen += g.counts[i]; seen*100 >= g.n*99 {
			return float64(i+1) / 2
		}
	}
	return 0
}
