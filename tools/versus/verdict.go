package versus

import (
	"math"
	"slices"

	"xpyd/tools/report"
)

// verdict is a bar judged on the worse of the loads.
type verdict struct {
	report.Verdict
	load  string // the worse one
	other string // what was measured under the other one; "" if there is none
}

func (v verdict) String() string {
	text := v.Verdict.String()
	if v.load != "" {
		text += " [" + v.load + "]"
	}
	if v.other != "" {
		text += "; " + v.other
	}
	return text
}

// verdicts judges every build of xpyd by the bars of a shape. s is its result under any load.
func (r *Results) verdicts(s *Shape) []verdict {
	var all []verdict
	for _, b := range s.bars {
		for _, c := range s.Contenders {
			if c.Build {
				all = append(all, r.worse(s.Name, b, c.Name))
			}
		}
	}
	return all
}

// worse judges a bar under each load. One under which nothing was measured is the worst.
func (r *Results) worse(shape string, b bar, name string) verdict {
	var (
		all     []verdict
		badness = map[string]float64{}
	)
	for _, s := range r.Shapes {
		if s.Name != shape {
			continue
		}
		goal, values := s.goal(r, b, s.Contenders.Of(name))
		all = append(all, verdict{Verdict: goal.Judge(values, report.Short), load: s.Load})
		bad := report.SpreadOf(values).Median
		switch {
		case math.IsNaN(bad):
			bad = math.Inf(1)
		case b.atLeast:
			bad = -bad
		}
		badness[s.Load] = bad
	}
	slices.SortStableFunc(all, func(x, y verdict) int {
		switch a, b := badness[x.load], badness[y.load]; {
		case a > b:
			return -1
		case a < b:
			return 1
		}
		return 0
	})
	worst := all[0]
	if len(all) > 1 {
		worst.other = all[1].Measured + " [" + all[1].load + "]"
	}
	return worst
}

// goal returns what a build is judged by under the load of s, and its values, round by round.
func (s *Shape) goal(r *Results, b bar, c *report.Row) (report.Goal, []float64) {
	g := report.Goal{Of: c.Name, What: string(b.metric), Limit: b.limit, AtLeast: b.atLeast, Unit: "×"}
	if b.above != "" {
		g.What += " above " + b.above
	}
	switch {
	case b.to != "":
		to := s.yardstick(b.to)
		g.What += " to " + b.to
		if to != nil && to.Name != b.to {
			g.What = g.What[:len(g.What)-len(b.to)] + to.Name
		}
		return g, report.Ratios(s.values(c, b.metric, b.above), s.values(to, b.metric, b.above))
	case b.base != "":
		g.What += " to " + b.base
		var other *report.Row
		if o := r.of(b.base, s.Load); o != nil {
			other = o.Contenders.Of(c.Name)
		}
		return g, report.Ratios(c.Of(b.metric), other.Of(b.metric))
	}
	g.Unit = ""
	return g, report.Present(c.Of(b.metric))
}

// yardstick returns a contender; for nginx the form whose first figure, which is CPU where CPU is
// measured, is the lower.
func (s *Shape) yardstick(name string) *report.Row {
	row := s.Contenders.Of(name)
	if name != nameNginx {
		return row
	}
	other := s.Contenders.Of(nameBuffered)
	if other == nil {
		return row
	}
	if row == nil || other.Spread(s.Metrics[0]).Median < row.Spread(s.Metrics[0]).Median || math.IsNaN(row.Spread(s.Metrics[0]).Median) {
		return other
	}
	return row
}

// values returns a metric less that of the contender from which it is counted, round by round. ""
// stands for none.
func (s *Shape) values(c *report.Row, m metric, above string) []float64 {
	if above == "" {
		return c.Of(m)
	}
	return report.Differences(c.Of(m), s.Contenders.Of(above).Of(m))
}
