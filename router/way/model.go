package way

import "math"

// Model is the time of a step of an engine, in seconds: Step, Stream for each running answer, Context for each token that
// these have in the cache, and Prompt for each token of prompts. Handing blocks over takes Handoff and HandoffToken for
// each token. It is that of all engines of one model and release; Engine.slower is by how much one of them differs.
type Model struct {
	Step, Stream, Context, Prompt, Handoff, HandoffToken float64
}

// streamTokens is how many cached tokens cost as much as one more answer. Both are fitted together, because where there
// are more answers there are more tokens.
const streamTokens = 320

// usual is the model before the first sample: about an 8B model on one GPU. Samples scale it as a whole before they change
// its shape, so a step of many answers has a price before there was one.
func usual() Model {
	return Model{Step: 6e-3, Stream: streamTokens * 4e-8, Context: 4e-8, Prompt: 28e-6, Handoff: 15e-3, HandoffToken: 3e-6}
}

// step is the time of a step of so many answers with so many tokens in the cache.
func (m *Model) step(answers, context float64) float64 {
	return m.Step + m.Stream*answers + m.Context*context
}

// fitted is a Model that learns. The zero value knows what usual says.
type fitted struct {
	prompt, step, handoff line
}

func (f *fitted) model() Model {
	p, s, h := f.prompt.or(usualPrompt()), f.step.or(usualStep()), f.handoff.or(usualHandoff())
	return Model{s.fixed, s.each * streamTokens, s.each, p.each, h.fixed + p.fixed, h.each}
}

// point is a line that a fit starts from: reach is a usual x.
type point struct{ fixed, each, reach float64 }

func usualPrompt() point  { return point{6e-3, usual().Prompt, 8192} }
func usualStep() point    { return point{usual().Step, usual().Context, 1e5} }
func usualHandoff() point { return point{usual().Handoff, usual().HandoffToken, 8192} }

const (
	lineMemory  = 64 // samples that count
	lineOutlier = 10 // a sample counts as at most this many times what was expected
	lineProven  = 8  // samples before that
	priorWeight = 1  // of each of the two points of the usual line, scaled to the samples
)

// line is y = fixed + each·x.
type line struct {
	w, x, y, xx, xy float64
	samples         int
	fixed, each     float64
}

func (l *line) or(p point) line {
	if l.samples == 0 {
		return line{fixed: p.fixed, each: p.each}
	}
	return *l
}

func (l *line) at(x float64) float64 { return l.fixed + l.each*x }

func (l *line) add(x, y, weight float64, from point) {
	if weight <= 0 || y < 0 {
		return
	}
	if l.samples++; l.samples > lineProven {
		y = min(y, lineOutlier*l.at(x))
	}
	keep := min(1, (lineMemory-weight)/max(l.w, 1e-9))
	l.w, l.x, l.y, l.xx, l.xy = l.w*keep+weight, l.x*keep+weight*x, l.y*keep+weight*y, l.xx*keep+weight*x*x, l.xy*keep+weight*x*y
	l.fit(from)
}

func (l *line) fit(from point) {
	scale := l.y / (l.w*from.fixed + l.x*from.each)
	w, x, y, xx, xy := l.w, l.x, l.y, l.xx, l.xy
	for _, at := range [2]float64{0, from.reach} {
		v := scale * (from.fixed + from.each*at)
		w, x, y, xx, xy = w+priorWeight, x+priorWeight*at, y+priorWeight*v, xx+priorWeight*at*at, xy+priorWeight*at*v
	}
	l.each = max(0, (xy/w-x*y/w/w)/max(xx/w-x*x/w/w, 1e-9))
	l.fixed = l.y/l.w - l.each*l.x/l.w
	if l.fixed < 0 {
		l.fixed, l.each = 0, l.y/max(l.x, 1e-9)
	}
}

// scale makes all times longer.
func (l *line) scale(by float64) {
	l.y, l.xy, l.fixed, l.each = l.y*by, l.xy*by, l.fixed*by, l.each*by
}

// delayed is the mean wait for a server that is busy for that part of its time, within the horizon: jobs take mean seconds,
// as seen by one that waits. It is that of a queue whose arrivals are random, and where they are more than it can serve,
// what has piled up half a horizon later.
func delayed(busy, mean, horizon float64) float64 {
	if mean <= 0 || busy <= 0 {
		return 0
	}
	over := busy - 1
	return horizon / 4 * (over + math.Sqrt(over*over+4*busy*mean/horizon))
}
