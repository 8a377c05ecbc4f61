package versus

import (
	"fmt"
	"math"
	"strings"

	"xpyd/bench/report"
)

// Verdict is a bar and what was measured of it.
type Verdict struct {
	Shape     string
	Contender string
	What      string
	Limit     float64
	Measured  float64
	Spread    report.Spread
	Holds     bool
	Known     bool // false: what it compares with was not measured
	ratio     bool
	atLeast   bool
}

// goal is "what ≤ limit".
func (v Verdict) goal() string {
	sign := "≤"
	if v.atLeast {
		sign = "≥"
	}
	return fmt.Sprintf("%s %s %g%s", v.What, sign, v.Limit, v.unit())
}

func (v Verdict) unit() string {
	if v.ratio {
		return "×"
	}
	return ""
}

// measured is the median, and the least and the most of all rounds.
func (v Verdict) measured() string {
	if !v.Known {
		return "not measured"
	}
	return fmt.Sprintf("%s%s (%s–%s)", report.Short(v.Measured), v.unit(), report.Short(v.Spread.Min), report.Short(v.Spread.Max))
}

func (v Verdict) word() string {
	switch {
	case !v.Known:
		return "unknown"
	case v.Holds:
		return "holds"
	}
	return "**does not hold**"
}

func (v Verdict) String() string {
	return v.Contender + ": " + v.goal() + ": " + v.measured() + ": " + strings.Trim(v.word(), "*")
}

// verdicts judges every build of xpyd.
func (s *Shape) verdicts(r *Results) []Verdict {
	var all []Verdict
	for _, b := range s.bars {
		for _, c := range s.Contenders {
			if c.Build {
				all = append(all, s.judge(r, b, c))
			}
		}
	}
	return all
}

func (s *Shape) judge(r *Results, b bar, c *Measured) Verdict {
	v := Verdict{Shape: s.Name, Contender: c.Name, What: string(b.metric), Limit: b.limit, ratio: true, atLeast: b.atLeast}
	values := c.Values[b.metric]
	if b.above != "" {
		v.What += " above " + b.above
	}
	switch {
	case b.to != "":
		v.What += " to " + b.to
		values = report.Ratios(s.above(b, c), s.above(b, s.of(b.to)))
	case b.base != "":
		v.What += " to " + b.base
		var other *Measured
		if o := r.of(b.base); o != nil {
			other = o.of(c.Name)
		}
		values = report.Ratios(values, other.values(b.metric))
	default:
		v.ratio = false
		values = report.Present(values)
	}
	v.Spread = report.SpreadOf(values)
	v.Measured = v.Spread.Median
	v.Known = !math.IsNaN(v.Measured)
	v.Holds = v.Known && (v.Measured <= b.limit) != b.atLeast || v.Measured == b.limit
	return v
}

// above is a metric less that of the contender that the bar counts from, round by round.
func (s *Shape) above(b bar, c *Measured) []float64 {
	values := c.values(b.metric)
	if b.above == "" {
		return values
	}
	return differences(values, s.of(b.above).values(b.metric))
}

// values is none of a contender that took no part.
func (m *Measured) values(k metric) []float64 {
	if m == nil {
		return nil
	}
	return m.Values[k]
}
