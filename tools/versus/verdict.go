package versus

import "xpyd/tools/report"

// verdicts judges every build of xpyd.
func (s *Shape) verdicts(r *Results) []report.Verdict {
	var all []report.Verdict
	for _, b := range s.bars {
		for _, c := range s.Contenders {
			if c.Build {
				all = append(all, s.judge(r, b, c))
			}
		}
	}
	return all
}

func (s *Shape) judge(r *Results, b bar, c *report.Row) report.Verdict {
	g := report.Goal{Of: c.Name, What: string(b.metric), Limit: b.limit, AtLeast: b.atLeast, Unit: "×"}
	values := c.Of(b.metric)
	if b.above != "" {
		g.What += " above " + b.above
	}
	switch {
	case b.to != "":
		g.What += " to " + b.to
		values = report.Ratios(s.values(c, b.metric, b.above), s.values(s.Contenders.Of(b.to), b.metric, b.above))
	case b.base != "":
		g.What += " to " + b.base
		var other *report.Row
		if o := r.of(b.base); o != nil {
			other = o.Contenders.Of(c.Name)
		}
		values = report.Ratios(values, other.Of(b.metric))
	default:
		g.Unit = ""
		values = report.Present(values)
	}
	return g.Judge(values, report.Short)
}

// values returns a metric less that of the contender from which it is counted, round by round. ""
// stands for none.
func (s *Shape) values(c *report.Row, m metric, above string) []float64 {
	if above == "" {
		return c.Of(m)
	}
	return report.Differences(c.Of(m), s.Contenders.Of(above).Of(m))
}
