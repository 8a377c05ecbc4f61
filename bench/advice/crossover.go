package advice

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"xpyd/bench/result"
)

// Range is a part of the load over which the same target answers quickest.
type Range struct {
	From, To float64  // requests a second
	Best     []string // one target, or several that the repeats do not tell apart
}

// Crossover says which target of a group answers quickest, by the requested throughput.
type Crossover struct {
	Group
	Unit   string // "req/s" or "req/s a GPU"
	Few    bool   // cells were measured less than fewest times
	Ranges []Range
}

// Crossovers compares the targets of each group that has more than one. Between its measured points
// a target is taken to be on the line that joins them.
func Crossovers(runs []*result.Run, lat Latency) []Crossover {
	var all []Crossover
	for _, g := range Groups(runs, lat) {
		points, _ := g.Usable()
		c := Crossover{Group: g, Unit: "req/s"}
		if gpusDiffer(points) {
			c.Unit = "req/s a GPU"
		}
		curves := newCurves(points, gpusDiffer(points))
		if len(curves) < 2 {
			continue
		}
		for _, p := range points {
			c.Few = c.Few || len(p.Runs) < fewest
		}
		c.Ranges = ranges(curves)
		all = append(all, c)
	}
	return all
}

// curve is a target's latency by throughput. Both rise: a point that another point of the target
// beats in both is left out.
type curve struct {
	target string
	lowest float64 // measured rate, points included that are left out
	reach  float64 // highest rate of any repeat, and what counts as equal to it
	rates  []float64
	points []Point
}

func newCurves(points []Point, gpus bool) (curves []curve) {
	rate := func(p Point) float64 {
		if gpus {
			return p.Requests.Median / p.GPUs
		}
		return p.Requests.Median
	}
	var targets []string
	byTarget := map[string][]Point{}
	for _, p := range points {
		if byTarget[p.Target] == nil {
			targets = append(targets, p.Target)
		}
		byTarget[p.Target] = append(byTarget[p.Target], p)
	}
	for _, name := range targets {
		c := curve{target: name, lowest: math.Inf(1), points: efficient(byTarget[name], rate)}
		for _, p := range byTarget[name] {
			c.lowest = min(c.lowest, rate(p))
			c.reach = max(c.reach, rate(p)*p.Requests.Max/p.Requests.Median*(1+alike))
		}
		for _, p := range c.points {
			c.rates = append(c.rates, rate(p))
		}
		curves = append(curves, c)
	}
	return curves
}

// at is the latency at a rate; ok is false above the highest rate that the target reached. Below
// its lowest rate a target is taken to be as quick as at that rate.
func (c *curve) at(rate float64) (s Spread, ok bool) {
	i, found := slices.BinarySearch(c.rates, rate)
	switch {
	case i == len(c.rates) && rate <= c.reach:
		return c.points[i-1].Latency, true
	case i == len(c.rates):
		return Spread{}, false
	case found || i == 0:
		return c.points[i].Latency, true
	}
	a, b := c.points[i-1].Latency, c.points[i].Latency
	share := (rate - c.rates[i-1]) / (c.rates[i] - c.rates[i-1])
	between := func(x, y float64) float64 { return x + (y-x)*share }
	return Spread{between(a.Median, b.Median), between(a.Min, b.Min), between(a.Max, b.Max)}, true
}

// fewest is how many repeats it takes to judge chance. If two targets are equal, their ranges still
// fail to overlap in one case of three with two repeats, and in one of ten with three.
const fewest = 3

// steps is how finely the rates are searched for a change of the best target.
const steps = 2000

// ranges finds the best targets from the lowest rate at which all were measured to the highest that
// any of them reached.
func ranges(curves []curve) (all []Range) {
	from, to := 0.0, 0.0
	for _, c := range curves {
		from = max(from, c.lowest)
		to = max(to, c.rates[len(c.rates)-1])
	}
	from = min(from, to)
	for i := range steps + 1 {
		rate := min(from+(to-from)*float64(i)/steps, to)
		if n := len(all); n > 0 {
			all[n-1].To = rate
		}
		all = append(all, Range{From: rate, To: rate, Best: bestAt(curves, rate)})
	}
	return joined(all, (to-from)/100)
}

// joined makes one range of neighbours with the same targets. A range narrower than least joins the
// range before it: nobody can act on it.
func joined(all []Range, least float64) (ranges []Range) {
	var same []Range
	for _, r := range all {
		if n := len(same); n > 0 && slices.Equal(same[n-1].Best, r.Best) {
			same[n-1].To = r.To
		} else {
			same = append(same, r)
		}
	}
	for _, r := range same {
		if n := len(ranges); n > 0 && (r.To-r.From < least || slices.Equal(ranges[n-1].Best, r.Best)) {
			ranges[n-1].To = r.To
		} else {
			ranges = append(ranges, r)
		}
	}
	return ranges
}

// alike is the share by which two figures may differ and still count as equal, whatever the repeats
// say. No operator moves engines for less, and a few repeats of equals are often this far apart.
const alike = 0.02

// bestAt are the targets that may be the quickest: their quickest repeat is below the slowest one of
// the quickest target.
func bestAt(curves []curve, rate float64) (best []string) {
	bound := Spread{Median: math.Inf(1)}
	for _, c := range curves {
		if s, ok := c.at(rate); ok && s.Median < bound.Median {
			bound = s
		}
	}
	for _, c := range curves {
		if s, ok := c.at(rate); ok && s.Min <= max(bound.Max, bound.Median*(1+alike)) {
			best = append(best, c.target)
		}
	}
	return best
}

// String is the crossover in words, as in "collocated up to 3.1 req/s, 1P2D to 5.5, 1P1D above,
// to 7.2".
func (c Crossover) String() string {
	var words []string
	for i, r := range c.Ranges {
		name := strings.Join(r.Best, " or ")
		if len(r.Best) > 1 {
			name += " (no clear difference)"
		}
		last := i == len(c.Ranges)-1
		switch {
		case last && i == 0 && short(r.From) == short(r.To):
			words = append(words, fmt.Sprintf("%s at %s %s", name, short(r.To), c.Unit))
		case last && i == 0:
			words = append(words, fmt.Sprintf("%s from %s to %s %s", name, short(r.From), short(r.To), c.Unit))
		case i == 0:
			words = append(words, fmt.Sprintf("%s up to %s %s", name, short(r.To), c.Unit))
		case last:
			words = append(words, fmt.Sprintf("%s above, to %s", name, short(r.To)))
		default:
			words = append(words, fmt.Sprintf("%s to %s", name, short(r.To)))
		}
	}
	return strings.Join(words, ", ")
}

// short is a number with three significant digits.
func short(x float64) string { return fmt.Sprintf("%.3g", x) }
