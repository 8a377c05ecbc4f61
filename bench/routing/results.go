package routing

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"time"

	"xpyd/bench/report"
)

// Results are what a run has measured.
type Results struct {
	Began        string         `json:"began"`   // RFC 3339
	Version      string         `json:"version"` // of xpyd
	Machine      report.Machine `json:"machine"`
	Rounds       int            `json:"rounds"`
	LengthS      float64        `json:"length_seconds"`
	Parallel     int            `json:"parallel"`
	Seed         uint64         `json:"seed"`
	Notes        []string       `json:"notes"`
	Measurements []*Measurement `json:"measurements"`
}

// Measurement is a workload over a topology.
type Measurement struct {
	Topology string  `json:"topology"`
	Workload string  `json:"workload"`
	Title    string  `json:"title"`
	Requests int     `json:"requests"` // of the first round
	Rate     float64 `json:"requests_per_second"`
	Random   bool    `json:"random,omitempty"` // caches are of no use
	Split    bool    `json:"split,omitempty"`  // judged by when requests are split
	Slower   bool    `json:"slower,omitempty"` // transfers become slower
	Rows     []*Row  `json:"rows"`
}

// Row is one contender's figures, a value a round, or the oracle's.
type Row struct {
	Name     string                   `json:"name"`
	Values   map[metric]report.Series `json:"values"` // null: not measured
	Errors   []string                 `json:"errors,omitempty"`
	Problems []string                 `json:"problems,omitempty"` // of requests: the first few of each round
}

func newResults(o Options) *Results {
	return &Results{
		Began: time.Now().UTC().Format(time.RFC3339), Version: o.Version, Machine: report.ThisMachine(), Notes: []string{},
		Rounds: o.Rounds, LengthS: o.Length.Seconds(), Parallel: o.Parallel, Seed: o.Seed,
	}
}

func (r *Results) add(s *scenario, contenders []contender) *Measurement {
	m := &Measurement{
		Topology: s.on.String(), Workload: s.name, Title: s.title, Requests: len(s.requests), Rate: s.rate,
		Random: s.random, Split: s.split, Slower: s.slower > 0,
	}
	for _, c := range contenders {
		m.Rows = append(m.Rows, &Row{Name: c.name, Values: map[metric]report.Series{}})
	}
	m.Rows = append(m.Rows, &Row{Name: nameOracle, Values: map[metric]report.Series{}})
	r.Measurements = append(r.Measurements, m)
	return m
}

// of is nil if the contender took no part.
func (m *Measurement) of(name string) *Row {
	if i := slices.IndexFunc(m.Rows, func(r *Row) bool { return r.Name == name }); i >= 0 {
		return m.Rows[i]
	}
	return nil
}

// disturbance tells whether the machine kept up.
func (m *Measurement) disturbance() string {
	most := 0.0
	for _, row := range m.Rows {
		most = max(most, report.SpreadOf(append([]float64{0}, report.Present(row.values(late))...)).Max)
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

// record adds a round. One that failed leaves a gap in each metric, so that rounds stay
// side by side.
func (row *Row) record(f figures, problems []string, err error) {
	if err != nil {
		row.Errors = append(row.Errors, err.Error())
	}
	row.Problems = append(row.Problems, problems[:min(len(problems), maxProblems)]...)
	for _, k := range metrics() {
		v, ok := f[k]
		if !ok || err != nil {
			v = math.NaN()
		}
		row.Values[k] = append(row.Values[k], v)
	}
}

// values is none of a contender that took no part.
func (row *Row) values(k metric) []float64 {
	if row == nil {
		return nil
	}
	return row.Values[k]
}

// Render puts the tables of an earlier run, of which path is the results.json, into the
// routing.md of docs, and its charts beside it.
func Render(path, docs string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read results: %w", err)
	}
	var r Results
	if err := json.Unmarshal(b, &r); err != nil {
		return fmt.Errorf("read results of %s: %w", path, err)
	}
	return r.writeDocs(docs)
}
