package versus

import (
	"fmt"
	"math"
)

// Verdict is a bar and what was measured of it.
type Verdict struct {
	Shape     string  `json:"shape"`
	Contender string  `json:"contender"`
	What      string  `json:"what"`
	Limit     float64 `json:"limit"`
	Measured  float64 `json:"-"`
	Spread    spread  `json:"-"`
	Holds     bool    `json:"holds"`
	Known     bool    `json:"known"` // false: what it compares with was not measured
	ratio     bool
	atLeast   bool
}

func (v Verdict) String() string {
	sign, unit := "≤", ""
	if v.atLeast {
		sign = "≥"
	}
	if v.ratio {
		unit = "×"
	}
	line := fmt.Sprintf("%s: %s %s %g%s: ", v.Contender, v.What, sign, v.Limit, unit)
	switch {
	case !v.Known:
		return line + "not measured"
	case v.Holds:
		return line + fmt.Sprintf("%.3g%s [%.3g–%.3g]: holds", v.Measured, unit, v.Spread.Min, v.Spread.Max)
	}
	return line + fmt.Sprintf("%.3g%s [%.3g–%.3g]: DOES NOT HOLD", v.Measured, unit, v.Spread.Min, v.Spread.Max)
}

// verdicts judges every build of xpyd.
func (s *Shape) verdicts(r *Results) []Verdict {
	var all []Verdict
	for _, b := range s.bars {
		for _, c := range s.Contenders {
			if c.xpyd {
				all = append(all, s.judge(r, b, c))
			}
		}
	}
	return all
}

func (s *Shape) judge(r *Results, b bar, c *Measured) Verdict {
	v := Verdict{Shape: s.Name, Contender: c.Name, What: string(b.metric), Limit: b.limit, ratio: true, atLeast: b.atLeast}
	values := c.Values[b.metric]
	switch {
	case b.to != "":
		v.What += " to " + b.to
		values = against(values, s.of(b.to), b.metric)
	case b.base != "":
		v.What += " to " + b.base
		var other *Measured
		if o := r.of(b.base); o != nil {
			other = o.of(c.Name)
		}
		values = against(values, other, b.metric)
	default:
		v.ratio = false
		values = present(values)
	}
	v.Spread = spreadOf(values)
	v.Measured = v.Spread.Median
	v.Known = !math.IsNaN(v.Measured)
	v.Holds = v.Known && (v.Measured <= b.limit) != b.atLeast || v.Measured == b.limit
	return v
}

func against(values []float64, other *Measured, m metric) []float64 {
	if other == nil {
		return nil
	}
	return ratios(values, other.Values[m])
}
