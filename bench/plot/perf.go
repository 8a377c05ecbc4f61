package plot

import (
	"fmt"
	"slices"

	"xpyd/bench/advice"
	"xpyd/bench/result"
)

// figure is one figure of a run.
type figure func(*result.Run) float64

func mean(metric string) figure {
	return func(r *result.Run) float64 { return r.Totals.MS[metric].Mean }
}

func median(metric string) figure {
	return func(r *result.Run) float64 { return r.Totals.MS[metric].Median }
}

func outputRate(r *result.Run) float64 { return r.Totals.OutputRate }
func inputRate(r *result.Run) float64  { return r.Totals.TotalRate - r.Totals.OutputRate }
func totalRate(r *result.Run) float64  { return r.Totals.TotalRate }

// loadAxis is the axis of a group's loads: its name in titles, its label, its name in files.
func loadAxis(g advice.Group) (title, label, file string, of figure) {
	if g.Open {
		return "QPS", "QPS (requested rate)", "qps", func(r *result.Run) float64 {
			switch c := r.Config; {
			case c.Rate != nil:
				return *c.Rate
			case c.Ramp != nil:
				return (c.Ramp.From + c.Ramp.To) / 2
			}
			return 0
		}
	}
	if slices.ContainsFunc(g.Points, func(p advice.Point) bool { return p.Runs[0].Config.Concurrency == 0 }) {
		return "Requests at Once", "Requests at once", "requests", func(r *result.Run) float64 { return float64(r.Totals.Open()) }
	}
	return "Concurrency", "Concurrency", "concurrency", func(r *result.Run) float64 { return float64(r.Config.Concurrency) }
}

// InferencePerf are the three plots of inference-perf, 900 pixels wide as in its guides: means, with
// a line for each target.
func InferencePerf(g advice.Group) []Figure {
	title, label, file, load := loadAxis(g)
	against := func(title, x, y string, fx, fy figure) panel {
		return newPanel(g, panel{title: title, x: x, y: y}, fx, fy, nil)
	}
	byLoad := func(what, y string, f figure) panel {
		p := against(what+" vs. "+title, label, y, load, f)
		p.ticks = loads(p)
		return p
	}
	over := title
	if g.Open {
		over = "Request Rate"
	}
	frame := Figure{Note: note(g), Width: 900, Height: 300}
	latency, throughput, both := frame, frame, frame
	latency.Name, latency.Title = "latency_vs_"+file, "Latency vs "+over
	latency.panels = []panel{
		byLoad("Time to First Token", "Mean TTFT (ms)", mean(result.TTFT)),
		byLoad("Norm. Time per Output Token", "Mean Norm. Time (ms/token)", mean(result.NTPOT)),
		byLoad("Inter-Token Latency", "Mean ITL (ms)", mean(result.ITL)),
	}
	throughput.Name, throughput.Title = "throughput_vs_"+file, "Throughput vs "+over
	throughput.panels = []panel{
		byLoad("Input Tokens/sec", "Tokens/sec", inputRate),
		byLoad("Output Tokens/sec", "Tokens/sec", outputRate),
		byLoad("Total Tokens/sec", "Tokens/sec", totalRate),
	}
	both.Name, both.Title = "throughput_vs_latency", "Throughput vs Latency"
	both.panels = []panel{
		against("Throughput vs. Norm. Time per Output Token", "Mean Norm. Time (ms/token)", "Output Tokens/sec", mean(result.NTPOT), outputRate),
		against("Throughput vs. Time to First Token", "Mean TTFT (ms)", "Output Tokens/sec", mean(result.TTFT), outputRate),
		against("Throughput vs. Inter-Token Latency", "Mean ITL (ms)", "Output Tokens/sec", mean(result.ITL), outputRate),
	}
	return []Figure{latency, throughput, both}
}

// newPanel fills a panel with a line for each target of a group. label is the text at a point; nil:
// no text.
func newPanel(g advice.Group, p panel, fx, fy figure, label func(advice.Point) string) panel {
	var targets []string
	byTarget := map[string][]point{}
	for _, q := range g.Points {
		if byTarget[q.Target] == nil {
			targets = append(targets, q.Target)
		}
		if q.Unreached > 0 {
			continue
		}
		one := newPoint(q, fx, fy)
		if label != nil {
			one.label = label(q)
		}
		byTarget[q.Target] = append(byTarget[q.Target], one)
	}
	for i, name := range targets {
		p.lines = append(p.lines, line{name: name, index: i, points: p.drawable(byTarget[name])})
	}
	return p
}

func newPoint(p advice.Point, fx, fy figure) point {
	x, y := p.Spread(fx), p.Spread(fy)
	return point{x: x.Median, xMin: x.Min, xMax: x.Max, y: y.Median, yMin: y.Min, yMax: y.Max, failed: p.Failed > 0}
}

// loads are the loads at which a panel's points were measured.
func loads(p panel) (all []float64) {
	for _, l := range p.lines {
		for _, q := range l.points {
			all = append(all, q.x)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// note says what the points of a group are.
func note(g advice.Group) string {
	if len(g.Points) == 0 {
		return "no run whose figures can be trusted"
	}
	low, high := len(g.Points[0].Runs), len(g.Points[0].Runs)
	for _, p := range g.Points {
		low, high = min(low, len(p.Runs)), max(high, len(p.Runs))
	}
	r := g.Points[0].Runs[0]
	text := "each point one run"
	switch {
	case low == high && low > 1:
		text = fmt.Sprintf("points: medians of %d repeats, bars: their range", low)
	case high > 1:
		text = fmt.Sprintf("points: medians of %d to %d repeats, bars: their range", low, high)
	}
	text = fmt.Sprintf("%s · %s · %s · %s", g.Title(), text, r.Tool, r.Started.UTC().Format("2006-01-02"))
	if g.Unsound > 0 {
		text += fmt.Sprintf(" · runs left out: %d", g.Unsound)
	}
	unreached := 0
	for _, p := range g.Points {
		unreached += min(1, p.Unreached)
	}
	if unreached > 0 {
		text += fmt.Sprintf(" · points left out, as their concurrency was never reached: %d", unreached)
	}
	return text
}
