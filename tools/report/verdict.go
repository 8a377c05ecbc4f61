package report

import (
	"fmt"
	"math"
	"strings"
)

// Goal is a bound on the median of the rounds.
type Goal struct {
	Of      string // the contender that it is for
	What    string
	Limit   float64
	AtLeast bool
	Unit    string // after the limit and the measured value
}

// String is "what ≤ limit".
func (g Goal) String() string {
	sign := "≤"
	if g.AtLeast {
		sign = "≥"
	}
	return fmt.Sprintf("%s %s %g%s", g.What, sign, g.Limit, g.Unit)
}

// Judge compares the values of the rounds, none of them NaN. number writes them.
func (g Goal) Judge(values []float64, number func(float64) string) Verdict {
	s := SpreadOf(values)
	if math.IsNaN(s.Median) {
		return Verdict{Of: g.Of, Goal: g.String(), Measured: "not measured"}
	}
	holds := s.Median <= g.Limit
	if g.AtLeast {
		holds = s.Median >= g.Limit
	}
	return Verdict{Of: g.Of, Goal: g.String(), Measured: s.Text(number, g.Unit), Known: true, Holds: holds}
}

// Verdict is a goal and what was measured of it.
type Verdict struct {
	Of       string // the contender
	Goal     string
	Measured string
	Known    bool // false if what it compares was not measured
	Holds    bool
}

// Word says in Markdown whether the goal holds.
func (v Verdict) Word() string {
	switch {
	case !v.Known:
		return "unknown"
	case v.Holds:
		return "holds"
	}
	return "**does not hold**"
}

func (v Verdict) String() string {
	return strings.Join([]string{v.Of, v.Goal, v.Measured, strings.Trim(v.Word(), "*")}, ": ")
}
