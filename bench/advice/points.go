// Package advice compares saved runs of several targets. It says which target is best at which load,
// and where the repeats do not allow an answer.
package advice

import (
	"cmp"
	"fmt"
	"slices"

	"xpyd/bench/result"
)

// Latency is the figure by which targets are compared, in ms.
type Latency struct {
	Name string
	Of   func(*result.Run) float64
}

// Token is the median time per output token.
func Token() Latency {
	return Latency{"median TPOT", func(r *result.Run) float64 { return r.Totals.MS[result.TPOT].Median }}
}

// FirstToken is the median time to the first token.
func FirstToken() Latency {
	return Latency{"median TTFT", func(r *result.Run) float64 { return r.Totals.MS[result.TTFT].Median }}
}

// Chunk is the time until n tokens have come, from the medians of both.
func Chunk(n int) Latency {
	return Latency{fmt.Sprintf("median TTFT + %d TPOT", n-1), func(r *result.Run) float64 {
		return FirstToken().Of(r) + float64(n-1)*Token().Of(r)
	}}
}

// Spread is a figure over the repeats of a cell.
type Spread struct{ Median, Min, Max float64 }

func newSpread(figures []float64) Spread {
	v := result.NewValues(figures)
	return Spread{Median: v.Median(), Min: v.Min(), Max: v.Max()}
}

// over divides a figure by a number of GPUs.
func (s Spread) over(gpus float64) Spread {
	return Spread{s.Median / gpus, s.Min / gpus, s.Max / gpus}
}

// Point is one cell: the repeats of one load on one target.
type Point struct {
	Target string
	Load   string        // as in "concurrency 8" or "4 req/s"
	Runs   []*result.Run // the repeats
	GPUs   float64       // 0: not known
	Failed float64       // share of the requests that failed
	// Unreached is how many of the runs never had as many requests open as their concurrency.
	Unreached int
	Latency   Spread // ms

	Requests, Output, Total, Good Spread // a second; Good is 0 where no bounds were given
}

// Group is a workload in a sweep, with all loads of one kind on all targets. Loads of different
// kinds do not mix: in a closed loop a slow target gets fewer requests.
type Group struct {
	Sweep, Workload string
	Open            bool    // the requests had a rate
	Latency         string  // what targets are compared by
	Points          []Point // by target in the order of the first run, then by load
	Unsound         int     // runs whose figures must not be trusted; they are in no point
}

type groupKey struct {
	sweep, workload string
	open            bool
}

// Place is the place of a run in its sweep. Outside a sweep its label and its shape make one.
func Place(r *result.Run) result.Cell {
	c := r.Config
	if c.Cell != nil {
		return *c.Cell
	}
	name := c.Label
	if name == "" {
		name = c.URL
	}
	return result.Cell{Target: name, Workload: fmt.Sprintf("%s %d/%d", c.Dataset, c.InputLen, c.OutputLen), Repeat: 1}
}

// Load names the load of a run.
func Load(c result.Config) string {
	var text string
	switch {
	case c.Ramp != nil:
		text = fmt.Sprintf("%g to %g req/s", c.Ramp.From, c.Ramp.To)
	case c.Rate != nil:
		text = fmt.Sprintf("%g req/s", *c.Rate)
	case c.Concurrency > 0:
		return fmt.Sprintf("concurrency %d", c.Concurrency)
	default:
		return fmt.Sprintf("%d at once", c.NumPrompts)
	}
	if c.Concurrency > 0 {
		text += fmt.Sprintf(", at most %d open", c.Concurrency)
	}
	return text
}

// Groups sorts runs into points. Answers of one token have no TPOT, so a group of them is compared
// by the time to the first token.
func Groups(runs []*result.Run, lat Latency) []Group {
	var order []groupKey
	byGroup := map[groupKey][]*result.Run{}
	for _, r := range runs {
		p := Place(r)
		key := groupKey{p.Sweep, p.Workload, r.Config.Rate != nil || r.Config.Ramp != nil}
		if byGroup[key] == nil {
			order = append(order, key)
		}
		byGroup[key] = append(byGroup[key], r)
	}
	var groups []Group
	for _, key := range order {
		groups = append(groups, newGroup(key, byGroup[key], lat))
	}
	return groups
}

func newGroup(key groupKey, runs []*result.Run, lat Latency) Group {
	if !slices.ContainsFunc(runs, func(r *result.Run) bool { return r.Totals.MS[result.TPOT].Max > 0 }) {
		lat = FirstToken()
	}
	g := Group{Sweep: key.sweep, Workload: key.workload, Open: key.open, Latency: lat.Name}
	type cell struct {
		target, load string
		prompts      int
		duration     int64
	}
	var targets []string
	var cells []cell
	byCell := map[cell][]*result.Run{}
	for _, r := range runs {
		if r.Verdict() != nil {
			g.Unsound++
			continue
		}
		c := cell{Place(r).Target, Load(r.Config), r.Config.NumPrompts, r.Config.DurationUS}
		if !slices.Contains(targets, c.target) {
			targets = append(targets, c.target)
		}
		if byCell[c] == nil {
			cells = append(cells, c)
		}
		byCell[c] = append(byCell[c], r)
	}
	for _, c := range cells {
		g.Points = append(g.Points, newPoint(c.target, c.load, byCell[c], lat))
	}
	slices.SortStableFunc(g.Points, func(a, b Point) int {
		return cmp.Or(slices.Index(targets, a.Target)-slices.Index(targets, b.Target), byLoad(a.Runs[0].Config, b.Runs[0].Config))
	})
	return g
}

// ByLoad returns the points in the order of their loads.
func ByLoad(points []Point) []Point {
	return slices.SortedStableFunc(slices.Values(points), func(a, b Point) int { return byLoad(a.Runs[0].Config, b.Runs[0].Config) })
}

func byLoad(a, b result.Config) int {
	rate := func(c result.Config) float64 {
		if c.Rate == nil {
			return 0
		}
		return *c.Rate
	}
	return cmp.Or(cmp.Compare(rate(a), rate(b)), a.Concurrency-b.Concurrency, a.NumPrompts-b.NumPrompts)
}

// Spread is a figure over the repeats of the point.
func (p Point) Spread(figure func(*result.Run) float64) Spread {
	var all []float64
	for _, r := range p.Runs {
		all = append(all, figure(r))
	}
	return newSpread(all)
}

func newPoint(target, load string, runs []*result.Run, lat Latency) Point {
	p := Point{Target: target, Load: load, Runs: runs, GPUs: Place(runs[0]).GPUs}
	failed, ended := 0, 0
	for _, r := range runs {
		if r.Unreached() {
			p.Unreached++
		}
		failed += r.Totals.Failed
		ended += r.Totals.Failed + r.Totals.Completed
	}
	p.Failed = float64(failed) / float64(max(ended, 1))
	p.Latency = p.Spread(lat.Of)
	p.Requests = p.Spread(func(r *result.Run) float64 { return r.Totals.RequestRate })
	p.Output = p.Spread(func(r *result.Run) float64 { return r.Totals.OutputRate })
	p.Total = p.Spread(func(r *result.Run) float64 { return r.Totals.TotalRate })
	p.Good = p.Spread(func(r *result.Run) float64 {
		if r.Totals.GoodRate == nil {
			return 0
		}
		return *r.Totals.GoodRate
	})
	return p
}

// mostFailed is the share of failed requests above which a point is no answer: a target that
// refuses half of its requests is quick with the other half.
const mostFailed = 0.01

// Usable are the points that may be compared.
func (g *Group) Usable() (points []Point, leftOut []Point) {
	for _, p := range g.Points {
		if p.Failed > mostFailed || p.Unreached > 0 {
			leftOut = append(leftOut, p)
		} else {
			points = append(points, p)
		}
	}
	return points, leftOut
}

// gpusDiffer says whether throughput must be compared per GPU: every target says how many GPUs it has,
// and the numbers differ.
func gpusDiffer(points []Point) bool {
	differ := false
	for _, p := range points {
		if p.GPUs == 0 {
			return false
		}
		differ = differ || p.GPUs != points[0].GPUs
	}
	return differ
}
