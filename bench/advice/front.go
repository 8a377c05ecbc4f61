package advice

import (
	"cmp"
	"slices"

	"xpyd/bench/result"
)

// Front is the Pareto front of a group: the points that no other point beats in both throughput and
// latency.
type Front struct {
	Group
	Unit string // of the throughput: "tok/s" or "tok/s a GPU", of output tokens
	Line []Point
}

// Pareto is the front of each group, the quickest point first. It goes by medians.
func Pareto(runs []*result.Run, lat Latency) []Front {
	var fronts []Front
	for _, g := range Groups(runs, lat) {
		points, _ := g.Usable()
		f := Front{Group: g, Unit: "tok/s"}
		rate := func(p Point) float64 { return p.Output.Median }
		if gpusDiffer(points) {
			f.Unit = "tok/s a GPU"
			rate = func(p Point) float64 { return p.Output.Median / p.GPUs }
		}
		f.Line = efficient(points, rate)
		fronts = append(fronts, f)
	}
	return fronts
}

// efficient keeps each point that has a higher rate than every quicker point, the quickest first.
func efficient(points []Point, rate func(Point) float64) (front []Point) {
	sorted := slices.SortedStableFunc(slices.Values(points), func(a, b Point) int {
		return cmp.Or(cmp.Compare(a.Latency.Median, b.Latency.Median), cmp.Compare(rate(b), rate(a)))
	})
	for _, p := range sorted {
		if len(front) == 0 || rate(p) > rate(front[len(front)-1]) {
			front = append(front, p)
		}
	}
	return front
}
