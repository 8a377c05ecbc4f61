package way

import (
	"math"
	"slices"
)

// Way is who computes the prompt of a request, and who makes its answer. Where both are one engine, it serves it whole.
type Way struct{ Prefill, Decode *Engine }

// Whole reports whether one engine does it all.
func (w Way) Whole() bool { return w.Prefill == w.Decode }

// Engine is what one engine has to do, as far as this process knows. The mutex of its fleets guards it. The zero value is idle.
type Engine struct {
	prompts []*Trip // that it is to compute, in their order
	pending float64 // tokens of them
	since   float64 // from when on it has computed the first of them
	moving  float64 // tokens whose blocks it reads

	answers float64 // that it makes
	coming  float64 // answers that it will make
	context float64 // tokens that both will have in the cache half-way
	running float64 // those of the former

	trips    float64 // requests that it serves in part or whole
	offered  float64 // turns by its share, see Fleet.begin
	slower   float64 // than the model, less 1
	told     bool    // it has shown how slow it is, since the last look at the plan
	prefills bool    // and makes no answers, by the plan
	computed float64 // tokens of prompts so far
	load     float64 // integral of streamTokens·answers + running over time, up to at
	at       float64
}

const (
	speedKeep  = 0.1  // of the difference to what was expected goes into the speed of an engine
	speedFades = 0.01 // of it fades: where one engine alone answers, the model and its speed tell the same
	forgets    = 0.98 // what stays at each look of the speed of an engine that tells nothing
	mostStep   = 4    // one sample tells of at most that factor
	mostSlow   = 32
)

// slow is by how much it is slower than the model.
func (e *Engine) slow() float64 { return 1 + e.slower }

// todo is the tokens of prompts that it has still to compute.
func (e *Engine) todo(now float64, m *Model) float64 {
	if len(e.prompts) == 0 {
		return 0
	}
	return e.pending - min((now-e.since)/(m.Prompt*e.slow()), e.prompts[0].fresh)
}

// move brings load up to now.
func (e *Engine) move(now float64) {
	e.load += (now - e.at) * (streamTokens*e.answers + e.running)
	e.at = now
}

// settle takes those prompts for computed whose end does not show and is due.
func (e *Engine) settle(now float64, f *Fleet) {
	for i := 0; i < len(e.prompts); {
		if t := e.prompts[i]; t.quiet && t.Way.Whole() && t.due <= now {
			t.answer(t.due, f)
			continue
		}
		i++
	}
}

// remove takes the prompt of t from its engine.
func (e *Engine) remove(now float64, t *Trip) {
	i := slices.Index(e.prompts, t)
	if i < 0 {
		return
	}
	if i == 0 {
		e.since = now
	}
	if e.prompts = slices.Delete(e.prompts, i, i+1); !t.Way.Whole() {
		e.trips--
	}
	e.pending -= t.fresh
	e.computed += t.fresh
	if len(e.prompts) == 0 {
		e.pending = 0
	}
}

// compare learns how slow the engine is, from what took y where the model says so much.
func (e *Engine) compare(y, says, weight float64) {
	ratio := min(max(y/max(says, 1e-6)/e.slow(), 1.0/mostStep), mostStep)
	slow := math.Pow(e.slow(), 1-weight*speedFades) * math.Pow(ratio, weight*speedKeep)
	e.told = true
	e.slower = min(max(slow, 1.0/mostSlow), mostSlow) - 1
}
