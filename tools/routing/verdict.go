package routing

import (
	"fmt"
	"math"
	"strings"

	"xpyd/tools/report"
)

// Goals of the candidate.
const (
	nearBest   = 1.03 // of the best TTFT p90, if caches are of no use or there is no better choice
	nearOracle = 0.95 // of the oracle's hits
	nearBetter = 0.05 // off the better of always and never, in what is not the time to the first token
	turned     = 0.75 // of the long prompts that are split, where splitting has become dear
)

// verdicts judges the candidate on this workload.
func (m *Measurement) verdicts() []report.Verdict {
	if m.Slower {
		return []report.Verdict{m.judgeRatio(ttftThen, splits, false), m.judgeNear(ttftThen, neverSplits), m.judgeTurn()}
	}
	all := []report.Verdict{m.judgeBest(), m.judgeBetter(tpot90, false), m.judgeBetter(tokensS, true)}
	if !m.Split && !m.Random {
		all = append(all, m.judgeHits(splits), m.judgeHits(candidate))
	}
	if m.Split {
		for _, other := range []string{splits, neverSplits} {
			all = append(all, m.judgeRatio(ttft90, other, false), m.judgeRatio(tokensS, other, true))
		}
	}
	return all
}

// judgeBest compares with the best of all others that have the engines in two pools, by their medians.
func (m *Measurement) judgeBest() report.Verdict {
	best, name := math.Inf(1), ""
	for _, row := range m.Rows {
		if row.Name == wholeEngines || row.Name == noRoles {
			continue
		}
		if v := row.Spread(ttft90).Median; !strings.HasPrefix(row.Name, nameOracle) && row.Name != candidate && v < best {
			best, name = v, row.Name
		}
	}
	g := report.Goal{Of: candidate, What: string(ttft90) + " to the best other", Limit: 1}
	if m.Random {
		g.Limit = nearBest
	}
	v := m.compare(g, ttft90, name)
	if v.Known {
		v.Measured += " to " + name
	}
	return v
}

// judgeBetter requires that the candidate is about as good as the better of always and never, by their medians:
// a first token must not be bought with the ones that follow.
func (m *Measurement) judgeBetter(k metric, atLeast bool) report.Verdict {
	better := splits
	if always, never := m.Rows.Of(splits).Spread(k).Median, m.Rows.Of(neverSplits).Spread(k).Median; atLeast && never > always || !atLeast && never < always {
		better = neverSplits
	}
	limit := 1 + nearBetter
	if atLeast {
		limit = 1 - nearBetter
	}
	return m.compare(report.Goal{Of: candidate, What: fmt.Sprintf("%s to %s", k, better), Limit: limit, AtLeast: atLeast}, k, better)
}

// judgeHits judges the candidate, which has decode engines compute some prompts, and its variant
// that computes prompts where the oracle does.
func (m *Measurement) judgeHits(name string) report.Verdict {
	return m.compare(report.Goal{Of: name, What: fmt.Sprintf("%s to %s", hits, nameOracle), Limit: nearOracle, AtLeast: true}, hits, nameOracle)
}

// judgeRatio requires that the candidate is not worse than another.
func (m *Measurement) judgeRatio(k metric, to string, atLeast bool) report.Verdict {
	return m.compare(report.Goal{Of: candidate, What: fmt.Sprintf("%s to %s", k, to), Limit: 1, AtLeast: atLeast}, k, to)
}

// judgeNear requires that the candidate is about as good as another.
func (m *Measurement) judgeNear(k metric, to string) report.Verdict {
	return m.compare(report.Goal{Of: candidate, What: fmt.Sprintf("%s to %s", k, to), Limit: nearBest}, k, to)
}

// compare compares two contenders round by round.
func (m *Measurement) compare(g report.Goal, k metric, to string) report.Verdict {
	g.Unit = "×"
	of := m.Rows.Of(g.Of)
	v := g.Judge(report.Ratios(of.Of(k), m.Rows.Of(to).Of(k)), report.ThreeDecimals)
	// Requests that failed have no times, so dropping the slow ones must not look quick.
	if n := sum(report.Present(of.Of(failed))); v.Known && n > 0 {
		v.Holds = false
		v.Measured += fmt.Sprintf(", with %.0f errors", n)
	}
	return v
}

// judgeTurn requires that the way of the long prompts changes with the price of transfers.
func (m *Measurement) judgeTurn() report.Verdict {
	row := m.Rows.Of(candidate)
	g := report.Goal{Of: candidate, What: string(splitThen) + " to before", Limit: turned, Unit: "×"}
	return g.Judge(report.Ratios(row.Of(splitThen), row.Of(splitBefore)), report.ThreeDecimals)
}
