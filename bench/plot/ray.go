package plot

import (
	"cmp"
	"fmt"
	"slices"

	"xpyd/bench/advice"
	"xpyd/bench/result"
)

// Modes of the latency of the third panel.
const (
	Token      = "token"
	FirstToken = "first_token"
	Chunk      = "chunk"
)

// Modes lists the modes.
func Modes() []string { return []string{Token, FirstToken, Chunk} }

// The throughputs that the third panel may show.
const (
	OutputTokens = "output"
	InputTokens  = "input"
	TotalTokens  = "total"
	Requests     = "requests"
)

// Throughputs lists them.
func Throughputs() []string { return []string{OutputTokens, InputTokens, TotalTokens, Requests} }

// ChunkSize is how many tokens a chunk has by default.
const ChunkSize = 16

// nodeGPUs is the number of GPUs of the node that throughput is normalised to.
const nodeGPUs = 8

// Pareto is what the third panel shows.
type Pareto struct {
	Mode          string // of latency: Token, FirstToken or Chunk; "": Token
	Interactivity bool   // 1000/TPOT in place of the latency
	Raw           bool   // throughput of the whole target, not of a node of 8 GPUs
	Chunk         int    // tokens of a chunk; 0: ChunkSize
	Throughput    string // OutputTokens, InputTokens, TotalTokens or Requests; "": OutputTokens
}

func (p Pareto) chunk() int { return cmp.Or(p.Chunk, ChunkSize) }

// rate is what the y axis of the third panel shows: its name, its unit and the figure.
func (p Pareto) rate() (name, unit string, of figure) {
	switch p.Throughput {
	case InputTokens:
		return "Input Throughput", "token", func(r *result.Run) float64 { return r.Totals.TotalRate - r.Totals.OutputRate }
	case TotalTokens:
		return "Total Throughput", "token", func(r *result.Run) float64 { return r.Totals.TotalRate }
	case Requests:
		return "Request Throughput", "request", func(r *result.Run) float64 { return r.Totals.RequestRate }
	}
	return "Output Throughput", "token", func(r *result.Run) float64 { return r.Totals.OutputRate }
}

// Latency is the latency that compares targets.
func (p Pareto) Latency() advice.Latency {
	switch {
	case p.Mode == FirstToken && !p.Interactivity:
		return advice.FirstToken()
	case p.Mode == Chunk && !p.Interactivity:
		return advice.Chunk(p.chunk())
	}
	return advice.Token()
}

// axis is the label of the latency, its name in titles, and the figure. The labels are those of Ray's own viz.py.
func (p Pareto) axis() (label, title string, of figure) {
	switch {
	case p.Interactivity:
		return "Interactivity (token/s/usr)", "Interactivity", func(r *result.Run) float64 {
			if tpot := r.Totals.MS[result.TPOT].Median; tpot > 0 {
				return 1000 / tpot
			}
			return 0
		}
	case p.Mode == FirstToken:
		return "TTFT (ms)", "TTFT", median(result.TTFT)
	case p.Mode == Chunk:
		return fmt.Sprintf("Chunk Latency (ms, size=%d)", p.chunk()), "Chunk Latency", advice.Chunk(p.chunk()).Of
	}
	return "TPOT (ms)", "TPOT", median(result.TPOT)
}

// perNode is the unit of normalised throughput.
const perNode = "/s/node"

// scale is the factor for throughput, and its unit.
func (p Pareto) scale(g advice.Group) (by func(*result.Run) float64, unit string) {
	whole := func(*result.Run) float64 { return 1 }
	if p.Raw || slices.ContainsFunc(g.Points, func(q advice.Point) bool { return q.GPUs == 0 }) {
		return whole, "/s"
	}
	return func(r *result.Run) float64 { return nodeGPUs / advice.Place(r).GPUs }, perNode
}

// Ray is the figure of three panels that compares topologies: TPOT and TTFT against the load, and
// throughput against latency. There each point shows its requests a second, on the same scale as the
// throughput.
func Ray(g advice.Group, p Pareto) Figure {
	title, label, _, load := loadAxis(g)
	byLoad := func(metric, name string) panel {
		q := newPanel(g, panel{title: name + " Median vs " + title, x: label, y: name + " Median (ms)", logY: true}, load, median(metric), nil)
		q.ticks = loads(q)
		return q
	}
	by, unit := p.scale(g)
	xLabel, xTitle, x := p.axis()
	name, of, y := p.rate()
	throughput := func(r *result.Run) float64 { return y(r) * by(r) }
	axes := panel{title: name + " vs " + xTitle, x: xLabel, y: name + " (" + of + unit + ")", logX: true}
	third := newPanel(g, axes, x, throughput, func(q advice.Point) string {
		return fmt.Sprintf("%.1f", q.Spread(func(r *result.Run) float64 { return r.Totals.RequestRate * by(r) }).Median)
	})
	usable := g
	usable.Points, _ = g.Usable()
	third.lines = append([]line{front(newPanel(usable, axes, x, throughput, nil), p.Interactivity)}, third.lines...)
	labels := " · labels: requests" + unit
	if unit == perNode {
		labels += fmt.Sprintf(" · a node has %d GPUs", nodeGPUs)
	}
	return Figure{
		Name: "ray", Title: g.Title(), Note: note(g) + labels, Width: 1500, Height: 420,
		panels: []panel{byLoad(result.TPOT, "TPOT"), byLoad(result.TTFT, "TTFT"), third},
	}
}

// front are the points that no other point beats on both axes. More is better on the y axis, and on
// the x axis if upwards.
func front(p panel, upwards bool) line {
	var all []point
	for _, l := range p.lines {
		all = append(all, l.points...)
	}
	slices.SortStableFunc(all, func(a, b point) int {
		x := cmp.Compare(a.x, b.x)
		if upwards {
			x = -x
		}
		return cmp.Or(x, cmp.Compare(b.y, a.y))
	})
	f := line{front: true}
	for _, q := range all {
		if n := len(f.points); n == 0 || q.y > f.points[n-1].y {
			f.points = append(f.points, point{x: q.x, xMin: q.x, xMax: q.x, y: q.y, yMin: q.y, yMax: q.y})
		}
	}
	return f
}
