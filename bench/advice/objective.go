package advice

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"xpyd/bench/result"
)

// Reach is how much load a target takes within an objective.
type Reach struct {
	Target   string
	Load     string  // of the cell with the most requests a second; "" if no cell keeps the objective
	Requests Spread  // a second, there
	GPUs     float64 // 0: not known
}

// Within finds for each target of a group the most requests a second at which the P90 of each metric keeps its bound, in
// ms: in the median of the repeats. The best target comes first: by GPU, if the numbers of GPUs differ.
func (g *Group) Within(bounds map[string]float64) (reach []Reach, perGPU bool) {
	points, _ := g.Usable()
	perGPU = gpusDiffer(points)
	best := map[string]Reach{}
	for _, p := range points {
		r, ok := best[p.Target]
		if !ok {
			r = Reach{Target: p.Target, GPUs: p.GPUs}
		}
		if p.keeps(bounds) && p.Requests.Median > r.Requests.Median {
			r.Load, r.Requests = p.Load, p.Requests
		}
		best[p.Target] = r
	}
	figure := func(r Reach) float64 {
		if perGPU {
			return r.Requests.Median / r.GPUs
		}
		return r.Requests.Median
	}
	return slices.SortedStableFunc(maps.Values(best), func(a, b Reach) int {
		return compareDown(figure(a), figure(b), a.Target, b.Target)
	}), perGPU
}

func (p Point) keeps(bounds map[string]float64) bool {
	for metric, bound := range bounds {
		if !(p.Spread(func(r *result.Run) float64 { return r.Totals.MS[metric].P90 }).Median <= bound) { // NaN keeps nothing
			return false
		}
	}
	return true
}

// Objective says for each group which target takes how much load within the bounds, a line each.
func Objective(runs []*result.Run, bounds map[string]float64) (lines []string) {
	for _, g := range Groups(runs, Token()) {
		reach, perGPU := g.Within(bounds)
		var words []string
		for _, r := range reach {
			switch {
			case r.Load == "":
				words = append(words, r.Target+" at no load that was measured")
			case perGPU:
				words = append(words, fmt.Sprintf("%s up to %s req/s, %s a GPU (%s)", r.Target, r.Requests, short(r.Requests.Median/r.GPUs), r.Load))
			default:
				words = append(words, fmt.Sprintf("%s up to %s req/s (%s)", r.Target, r.Requests, r.Load))
			}
		}
		if len(words) > 0 {
			lines = append(lines, g.Title()+", P90 within "+boundWords(bounds)+": "+strings.Join(words, "; "))
		}
	}
	return lines
}
