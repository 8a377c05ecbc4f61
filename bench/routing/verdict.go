package routing

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"xpyd/bench/report"
)

// verdict is a goal and what was measured of it.
type verdict struct {
	on, work string
	goal     string
	measured string
	holds    bool
	known    bool // false: what it compares was not measured
}

func (v verdict) word() string {
	switch {
	case !v.known:
		return "unknown"
	case v.holds:
		return "holds"
	}
	return "**does not hold**"
}

func (v verdict) String() string {
	return v.goal + ": " + v.measured + ": " + strings.Trim(v.word(), "*")
}

// Goals of the candidate.
const (
	nearBest   = 1.03 // of the best TTFT p90, where caches are of no use
	nearOracle = 0.95 // of the oracle's hits
	turned     = 0.75 // of the long prompts that are split, where splitting has become dear
)

// verdicts judges the candidate on one workload.
func (r *Results) verdicts(m *Measurement) []verdict {
	var all []verdict
	switch {
	case m.Slower:
		all = append(all, m.judgeRatio(ttftThen, splits, 1, false), m.judgeRatio(ttftThen, neverSplits, 1, false), m.judgeTurn())
	default:
		all = append(all, m.judgeBest())
		if !m.Split && !m.Random {
			all = append(all, m.judgeHits(splits), m.judgeHits(candidate))
		}
		if m.Split {
			for _, other := range []string{splits, neverSplits} {
				all = append(all, m.judgeRatio(ttft90, other, 1, false), m.judgeRatio(tokensS, other, 1, true))
			}
		}
	}
	for i := range all {
		all[i].on, all[i].work = m.Topology, m.Title
	}
	return all
}

// judgeBest compares with the best of all others by their medians.
func (m *Measurement) judgeBest() verdict {
	best, name := math.Inf(1), ""
	for _, row := range m.Rows {
		v := report.Median(report.Present(row.values(ttft90)))
		if row.Name != nameOracle && row.Name != candidate && v < best {
			best, name = v, row.Name
		}
	}
	limit := 1.0
	if m.Random {
		limit = nearBest
	}
	v := m.judgeRatio(ttft90, name, limit, false)
	v.goal = fmt.Sprintf("%s: %s to the best other ≤ %g×", candidate, ttft90, limit)
	if v.known {
		v.measured += " to " + name
	}
	return v
}

// judgeHits is of the candidate, part of whose prompts decode engines compute, and of its
// like that computes them where the oracle does.
func (m *Measurement) judgeHits(name string) verdict {
	return m.compare(name, hits, nameOracle, nearOracle, true)
}

func (m *Measurement) judgeRatio(k metric, to string, limit float64, atLeast bool) verdict {
	return m.compare(candidate, k, to, limit, atLeast)
}

// compare does so round by round.
func (m *Measurement) compare(name string, k metric, to string, limit float64, atLeast bool) verdict {
	sign := "≤"
	if atLeast {
		sign = "≥"
	}
	v := verdict{goal: fmt.Sprintf("%s: %s to %s %s %g×", name, k, to, sign, limit), measured: "not measured"}
	q := report.Ratios(m.of(name).values(k), m.of(to).values(k))
	q = slices.DeleteFunc(q, math.IsNaN)
	if len(q) == 0 {
		return v
	}
	s := report.SpreadOf(q)
	v.known, v.measured = true, fmt.Sprintf("%.3f× (%.3f–%.3f)", s.Median, s.Min, s.Max)
	v.holds = s.Median <= limit
	if atLeast {
		v.holds = s.Median >= limit
	}
	// Requests that failed have no times: whoever drops the slow ones is not quick.
	if n := sum(report.Present(m.of(name).values(failed))); n > 0 {
		v.holds = false
		v.measured += fmt.Sprintf(", with %.0f errors", n)
	}
	return v
}

// judgeTurn wants the way of the long prompts to change with the price of transfers.
func (m *Measurement) judgeTurn() verdict {
	v := verdict{goal: fmt.Sprintf("%s: %s to before ≤ %g×", candidate, splitThen, turned), measured: "not measured"}
	row := m.of(candidate)
	q := slices.DeleteFunc(report.Ratios(row.values(splitThen), row.values(splitBefore)), math.IsNaN)
	if len(q) == 0 {
		return v
	}
	s := report.SpreadOf(q)
	v.known, v.holds, v.measured = true, s.Median <= turned, fmt.Sprintf("%.3f× (%.3f–%.3f)", s.Median, s.Min, s.Max)
	return v
}
