package advice

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"xpyd/bench/result"
)

// Best is the target of a group with the most throughput.
type Best struct {
	Group
	Unit  string
	Cells []Point // the best cell, and cells of other targets that the repeats cannot tell from it
	Rates []Spread
}

// Throughput finds the best target of each group. With bounds of goodput it counts the requests that
// keep them, otherwise output tokens. Where the targets' GPUs differ, it compares per GPU.
func Throughput(runs []*result.Run) []Best {
	var all []Best
	for _, g := range Groups(runs, Token()) {
		points, _ := g.Usable()
		if len(points) > 0 {
			all = append(all, newBest(g, points))
		}
	}
	return all
}

func newBest(g Group, points []Point) Best {
	b := Best{Group: g, Unit: "tok/s"}
	rate := func(p Point) Spread { return p.Output }
	if bounds := points[0].Runs[0].Config.Goodput; len(bounds) > 0 {
		b.Unit = "req/s that keep " + boundWords(bounds)
		rate = func(p Point) Spread { return p.Good }
	}
	figure := rate
	if gpusDiffer(points) {
		b.Unit += ", a GPU"
		figure = func(p Point) Spread { return rate(p).over(p.GPUs) }
	}
	best := map[string]Point{}
	for _, p := range points {
		if old, ok := best[p.Target]; !ok || figure(p).Median > figure(old).Median {
			best[p.Target] = p
		}
	}
	order := slices.SortedStableFunc(maps.Values(best), func(a, b Point) int {
		return compareDown(figure(a).Median, figure(b).Median, a.Target, b.Target)
	})
	for _, p := range order {
		if best := figure(order[0]); figure(p).Max >= min(best.Min, best.Median*(1-alike)) {
			b.Cells = append(b.Cells, p)
			b.Rates = append(b.Rates, figure(p))
		}
	}
	return b
}

func compareDown(a, b float64, nameA, nameB string) int {
	switch {
	case a > b:
		return -1
	case a < b:
		return 1
	}
	return strings.Compare(nameA, nameB)
}

func boundWords(bounds map[string]float64) string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(bounds)) {
		words = append(words, fmt.Sprintf("%s %g ms", strings.ToUpper(name), bounds[name]))
	}
	return strings.Join(words, " and ")
}

// String is the best target in words.
func (b Best) String() string {
	var words []string
	for i, p := range b.Cells {
		words = append(words, fmt.Sprintf("%s at %s with %s (%s)", p.Target, p.Load, b.Rates[i], repeats(len(p.Runs))))
	}
	text := words[0]
	if len(words) > 1 {
		text = "no winner: " + strings.Join(words, "; ")
	}
	return text + ", in " + b.Unit
}

func repeats(n int) string {
	if n == 1 {
		return "measured once"
	}
	return fmt.Sprintf("%d repeats", n)
}

// String is a median with the range of the repeats, where they differ.
func (s Spread) String() string {
	if short(s.Min) == short(s.Max) {
		return short(s.Median)
	}
	return fmt.Sprintf("%s [%s to %s]", short(s.Median), short(s.Min), short(s.Max))
}

// Title names a group.
func (g *Group) Title() string {
	loop := "closed loop"
	if g.Open {
		loop = "open loop"
	}
	return strings.TrimSpace(g.Sweep+" "+g.Workload) + ", " + loop
}

// Words are the whole advice, line by line, with the quickest target by each of the latencies.
func Words(runs []*result.Run, lats ...Latency) (lines []string) {
	for _, g := range Groups(runs, lats[0]) {
		own := g.runs()
		lines = append(lines, g.Title()+":")
		for _, b := range Throughput(own) {
			lines = append(lines, "  most throughput: "+b.String())
		}
		few := false
		for _, lat := range lats {
			for _, c := range Crossovers(own, lat) {
				line := "  quickest by " + c.Latency + ": " + c.String()
				if !slices.Contains(lines, line) { // without a TPOT both go by the TTFT
					lines = append(lines, line)
				}
				few = few || c.Few
			}
		}
		lines = append(lines, g.caveats(few)...)
	}
	return lines
}

// runs are the runs of the group's points.
func (g *Group) runs() (runs []*result.Run) {
	for _, p := range g.Points {
		runs = append(runs, p.Runs...)
	}
	return runs
}

// caveats name the runs that the advice leaves out, and say when it rests on few repeats.
func (g *Group) caveats(few bool) (lines []string) {
	_, leftOut := g.Usable()
	for _, p := range leftOut {
		if p.Unreached > 0 {
			open := p.Spread(func(r *result.Run) float64 { return float64(r.Totals.Open()) })
			lines = append(lines, fmt.Sprintf("  left out: %s at %s, which was never reached: no more than %s requests were open at once", p.Target, p.Load, open))
			continue
		}
		lines = append(lines, fmt.Sprintf("  left out: %s at %s, where %.3g %% of the requests failed", p.Target, p.Load, p.Failed*100))
	}
	if g.Unsound > 0 {
		lines = append(lines, fmt.Sprintf("  left out, because they were interrupted, late, or without an answer: %d of the runs", g.Unsound))
	}
	if few {
		lines = append(lines, fmt.Sprintf("  some cells were measured fewer than %d times: a small difference may be chance", fewest))
	}
	return lines
}
