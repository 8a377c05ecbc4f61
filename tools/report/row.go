package report

import (
	"math"
	"slices"
)

// Metric is the name of a figure, with its unit, as in tables and results.json.
type Metric string

// Row has one contender's figures, with a value for each round.
type Row struct {
	Name     string            `json:"name"`
	Build    bool              `json:"build,omitempty"` // of xpyd: goals are for it
	Values   map[Metric]Series `json:"values"`          // null: not measured
	Errors   []string          `json:"errors,omitempty"`
	Problems []string          `json:"problems,omitempty"` // of requests: the first few of each round
}

// NewRow returns a row without rounds.
func NewRow(name string) *Row { return &Row{Name: name, Values: map[Metric]Series{}} }

// Record adds a round. A round that failed leaves a gap in each metric, so that rounds stay
// aligned.
func (r *Row) Record(metrics []Metric, figures map[Metric]float64, err error) {
	if err != nil {
		r.Errors = append(r.Errors, err.Error())
	}
	for _, m := range metrics {
		v, ok := figures[m]
		if !ok || err != nil {
			v = math.NaN()
		}
		r.Values[m] = append(r.Values[m], v)
	}
}

// Of returns a value for each round, or none for a contender that took no part.
func (r *Row) Of(m Metric) []float64 {
	if r == nil {
		return nil
	}
	return r.Values[m]
}

// Spread returns the spread of the rounds that have the figure.
func (r *Row) Spread(m Metric) Spread { return SpreadOf(Present(r.Of(m))) }

// Rows are those of all contenders.
type Rows []*Row

// Of returns nil if the contender took no part.
func (r Rows) Of(name string) *Row {
	if i := slices.IndexFunc(r, func(row *Row) bool { return row.Name == name }); i >= 0 {
		return r[i]
	}
	return nil
}
