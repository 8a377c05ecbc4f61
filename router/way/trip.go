package way

// Trip is a request on its way. Its methods belong to the request, and may be called in any order and again; those that
// come too late do nothing.
type Trip struct {
	Way  Way
	Cost float64 // expected seconds until its last token, and those that it adds to others
	// Planned says that the plan became another one with this request.
	Planned bool

	prompt, says, fresh, lacks float64 // tokens: of the prompt, of the answer, to compute, and to move
	who                        uint64  // see traffic.expect
	quiet                      bool
	due                        float64 // when the prompt should have been computed
	handed, first              float64 // times: to the engine whose turn it is, and of the first token
	behind                     float64 // tokens before it, of prompts or of blocks
	computed, load             float64 // of the engine that answers, at first
	stage                      stage
}

type stage uint8

const (
	prefilling stage = iota
	moving
	answering
	over
)

func (t *Trip) halfway() float64 { return t.prompt + t.says/2 }

func (t *Trip) begin(now float64, m *Model) {
	p, d := t.Way.Prefill, t.Way.Decode
	if len(p.prompts) == 0 {
		p.since = now
	}
	t.handed, t.behind = now, p.pending
	t.due = now + m.Step + m.Prompt*p.slow()*(p.todo(now, m)+t.fresh)
	p.prompts = append(p.prompts, t)
	p.pending += t.fresh
	if !t.Way.Whole() {
		p.trips++
	}
	d.trips++
	d.coming++
	d.context += t.halfway()
}

// Prefilled notes that the prompt has been computed where that is not the engine that answers, and that this one has
// been asked to read its blocks.
func (f *Fleet) Prefilled(now float64, t *Trip) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if t.stage != prefilling || t.Way.Whole() {
		return
	}
	f.learnPrompt(now, t)
	t.Way.Prefill.remove(now, t)
	t.stage, t.handed, t.behind = moving, now, t.Way.Decode.moving
	t.Way.Decode.moving += t.lacks
}

// Whole notes that the engine that answers computes the prompt too, whatever was chosen, or that it computes it only now.
func (f *Fleet) Whole(now float64, t *Trip, fresh int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if t.stage == answering || t.stage == over || t.Way.Whole() {
		return
	}
	if t.stage == moving {
		t.Way.Decode.moving -= t.lacks
	}
	t.Way.Prefill.remove(now, t)
	d := t.Way.Decode
	d.trips--
	d.coming--
	d.context -= t.halfway()
	m := f.model.model()
	t.Way.Prefill, t.stage, t.fresh = d, prefilling, max(1, float64(fresh))
	t.begin(now, &m)
}

// First notes the first token of the answer.
func (f *Fleet) First(now float64, t *Trip) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case t.stage == prefilling && !t.quiet:
		f.learnPrompt(now, t)
	case t.stage == moving && !t.quiet:
		f.model.handoff.add(t.behind+t.lacks, now-t.handed, 1, usualHandoff())
	}
	t.answer(now, f)
}

// answer begins the answer.
func (t *Trip) answer(now float64, f *Fleet) {
	e := t.Way.Decode
	switch t.stage {
	case prefilling:
		t.Way.Prefill.remove(now, t)
	case moving:
		e.moving -= t.lacks
	default:
		return
	}
	e.move(now)
	e.coming--
	e.answers++
	e.running += t.halfway()
	f.traffic.begun(t.prompt, now)
	t.stage, t.first, t.computed, t.load = answering, now, e.computed, e.load
}

// Ended notes that the request is over, and that its answer had so many tokens; 0 if it did not end well.
func (f *Fleet) Ended(now float64, t *Trip, tokens int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if t.stage == over {
		return
	}
	f.underway--
	t.answer(now, f) // if none has begun
	e := t.Way.Decode
	e.move(now)
	e.trips--
	e.answers--
	e.running -= t.halfway()
	e.context -= t.halfway()
	f.traffic.answered(t.prompt, t.first, tokens, t.who)
	if tokens > 1 && !t.quiet {
		f.learnStep(now, t, float64(tokens-1))
	}
	t.stage = over
}

func (f *Fleet) learnPrompt(now float64, t *Trip) {
	e, x, y := t.Way.Prefill, t.behind+t.fresh, now-t.handed
	if e.answers == 0 { // otherwise these take a part of the time
		says := f.model.prompt.or(usualPrompt())
		e.compare(y, says.at(x), 1)
	}
	f.model.prompt.add(x, y/e.slow(), 1, usualPrompt())
}

// learnStep learns from an answer of n further tokens: what its engine's prompts did not take of its time.
func (f *Fleet) learnStep(now float64, t *Trip, n float64) {
	e, m, took := t.Way.Decode, f.model.model(), now-t.first
	prompts := m.Prompt * e.slow() * (e.computed - t.computed)
	if took <= 0 || prompts > took/2 { // of the rest, too much is an error in the price of prompts
		return
	}
	x, y, weight := (e.load-t.load)/took, (took-prompts)/n, min(1, n/64)
	says := f.model.step.or(usualStep())
	e.compare(y, says.at(x), weight)
	f.model.step.add(x, y/e.slow(), weight, usualStep())
}
