package routing

import (
	"fmt"

	"xpyd/tools/report"
)

// Results are what a run has measured.
type Results struct {
	report.Run
	LengthS      float64        `json:"length_seconds"`
	Parallel     int            `json:"parallel"`
	Seed         uint64         `json:"seed"`
	Notes        report.Notes   `json:"notes"`
	Measurements []*Measurement `json:"measurements"`
}

// Measurement is a workload over a topology.
type Measurement struct {
	Topology string      `json:"topology"`
	Workload string      `json:"workload"`
	Title    string      `json:"title"`
	Requests int         `json:"requests"` // of the first round
	Rate     float64     `json:"requests_per_second"`
	Random   bool        `json:"random,omitempty"` // caches are of no use
	Split    bool        `json:"split,omitempty"`  // judged by when requests are split
	Slower   bool        `json:"slower,omitempty"` // transfers become slower
	Rows     report.Rows `json:"rows"`             // of contenders, and the oracle's
}

func newResults(o Options) *Results {
	return &Results{
		Run: report.Begin(o.Version, o.Rounds), Notes: report.Notes{},
		LengthS: o.Length.Seconds(), Parallel: o.Parallel, Seed: o.Seed,
	}
}

func (r *Results) add(s *scenario, contenders []contender) *Measurement {
	m := &Measurement{
		Topology: s.on.String(), Workload: s.name, Title: s.title, Requests: len(s.requests), Rate: s.rate,
		Random: s.random, Split: s.split, Slower: s.slower > 0,
	}
	for _, c := range contenders {
		m.Rows = append(m.Rows, report.NewRow(c.name))
	}
	for _, o := range oracles() {
		m.Rows = append(m.Rows, report.NewRow(o.name))
	}
	r.Measurements = append(r.Measurements, m)
	return m
}

// disturbance says whether the machine kept up.
func (m *Measurement) disturbance() string {
	most := 0.0
	for _, row := range m.Rows {
		for _, v := range report.Present(row.Of(late)) {
			most = max(most, v)
		}
	}
	text := fmt.Sprintf("requests were sent at most %.1f ms late (p99 of the worst measurement)", most)
	if most > lateBound {
		text += ": the machine was too busy"
	}
	return text
}

// lateBound is the ms by which a request may be sent late without harm to any figure.
const lateBound = 20

// maxProblems is how many of a round's problems are kept.
const maxProblems = 5

// record adds a round.
func (m *Measurement) record(name string, f figures, problems []string, err error) {
	row := m.Rows.Of(name)
	row.Record(metrics(), f, err)
	row.Problems = append(row.Problems, problems[:min(len(problems), maxProblems)]...)
}
