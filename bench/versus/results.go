package versus

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"xpyd/bench/report"
)

// Results are what a run has measured.
type Results struct {
	Began    string         `json:"began"`   // RFC 3339
	Version  string         `json:"version"` // of xpyd
	Machine  report.Machine `json:"machine"`
	Rounds   int            `json:"rounds"`
	WindowS  float64        `json:"window_seconds"`
	Cores    int            `json:"cores"`
	Notes    []string       `json:"notes"`
	Floor    []Floor        `json:"floor"`
	Shapes   []*Shape       `json:"shapes"`
	Baseline string         `json:"baseline"` // contender that ratios are to
}

// Shape is what was measured of one kind of work.
type Shape struct {
	Name       string      `json:"name"`
	Title      string      `json:"title"`
	Metrics    []metric    `json:"metrics"`
	Contenders []*Measured `json:"contenders"`
	Calls      []Calls     `json:"calls,omitempty"`
	bars       []bar
}

// Measured is one contender's figures, a value a round. A round that failed has none.
type Measured struct {
	Name   string                   `json:"name"`
	Build  bool                     `json:"build,omitempty"` // of xpyd: bars are for it
	Values map[metric]report.Series `json:"values"`          // null: not measured
	Errors []string                 `json:"errors,omitempty"`
}

// Render puts the tables of an earlier run, of which path is the results.json, into the
// performance.md of docs, and its charts beside it.
func Render(path, docs string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read results: %w", err)
	}
	var r Results
	if err := json.Unmarshal(b, &r); err != nil {
		return fmt.Errorf("read results of %s: %w", path, err)
	}
	all := shapes(crowdWanted)
	for _, s := range r.Shapes {
		i := slices.IndexFunc(all, func(x shape) bool { return x.name == s.Name })
		if i < 0 {
			return fmt.Errorf("read results of %s: no shape is called %q", path, s.Name)
		}
		s.bars = all[i].bars
	}
	return r.writeDocs(docs)
}

func newResults(o Options) *Results {
	return &Results{Began: time.Now().UTC().Format(time.RFC3339), Version: o.Version, Machine: report.ThisMachine(), Notes: []string{}, Rounds: o.Rounds, WindowS: o.Window.Seconds(), Cores: o.Cores, Baseline: nameNginx}
}

// of is nil if the shape was not measured.
func (r *Results) of(shape string) *Shape {
	if i := slices.IndexFunc(r.Shapes, func(s *Shape) bool { return s.Name == shape }); i >= 0 {
		return r.Shapes[i]
	}
	return nil
}

func (r *Results) add(s shape, contenders []contender) *Shape {
	out := &Shape{Name: s.name, Title: s.title, Metrics: s.metrics, bars: s.bars}
	for _, c := range contenders {
		out.Contenders = append(out.Contenders, &Measured{Name: c.name, Values: map[metric]report.Series{}, Build: c.xpyd})
	}
	r.Shapes = append(r.Shapes, out)
	return out
}

// record adds a round. One that failed leaves a gap in each metric, so that rounds stay
// side by side.
func (s *Shape) record(name string, values map[metric]float64, err error) {
	m := s.of(name)
	if err != nil {
		m.Errors = append(m.Errors, err.Error())
	}
	for _, k := range append(slices.Clone(s.Metrics), othersCPU, paceKept) {
		v, ok := values[k]
		if !ok || err != nil {
			v = math.NaN()
		}
		m.Values[k] = append(m.Values[k], v)
	}
}

// of is nil if the contender took no part.
func (s *Shape) of(name string) *Measured {
	if i := slices.IndexFunc(s.Contenders, func(m *Measured) bool { return m.Name == name }); i >= 0 {
		return s.Contenders[i]
	}
	return nil
}

// print writes a table for people: a contender a line, each figure behind its ratio.
func (s *Shape) print(out io.Writer, r *Results) {
	fmt.Fprintf(out, "\n%s (%s)\n%-14s", s.Title, s.Name, "")
	for _, m := range s.Metrics {
		fmt.Fprintf(out, " %-34s", m)
	}
	fmt.Fprintln(out)
	base := s.of(r.Baseline)
	for _, c := range s.Contenders {
		fmt.Fprintf(out, "%-14s", c.Name)
		for _, m := range s.Metrics {
			fmt.Fprintf(out, " %-34s", cell(c, base, m))
		}
		fmt.Fprintln(out)
	}
	for _, b := range s.verdicts(r) {
		fmt.Fprintln(out, "  "+b.String())
	}
	for _, line := range s.builds() {
		fmt.Fprintln(out, "  "+line)
	}
	for _, c := range s.Calls {
		fmt.Fprintln(out, "  "+c.String())
	}
	fmt.Fprintln(out, "  "+s.disturbance())
}

// builds compares the further builds of xpyd with the first, figure by figure.
func (s *Shape) builds() []string {
	var (
		lines []string
		first *Measured
	)
	for _, c := range s.Contenders {
		if !c.Build {
			continue
		}
		if first == nil {
			first = c
			continue
		}
		line := fmt.Sprintf("%s to %s:", c.Name, first.Name)
		for _, m := range s.Metrics {
			q := report.SpreadOf(report.Ratios(c.Values[m], first.Values[m]))
			line += fmt.Sprintf(" %s %.3f× (%.3f–%.3f);", m, q.Median, q.Min, q.Max)
		}
		lines = append(lines, strings.TrimSuffix(line, ";"))
	}
	return lines
}

// disturbance tells how quiet the machine was.
func (s *Shape) disturbance() string {
	var others, pace []float64
	for _, c := range s.Contenders {
		others = append(others, report.Present(c.Values[othersCPU])...)
		pace = append(pace, report.Present(c.Values[paceKept])...)
	}
	text := "nothing was measured"
	if o := report.SpreadOf(others); len(others) > 0 {
		text = fmt.Sprintf("other work took %.0f %% of the machine (%.0f–%.0f)", o.Median, o.Min, o.Max)
	}
	if p := report.SpreadOf(pace); len(pace) > 0 && (p.Min < 97 || p.Max > 103) {
		text += fmt.Sprintf("; the engines kept %.0f to %.0f %% of their pace: the machine was too busy for this shape", p.Min, p.Max)
	}
	return text
}

// cell is "ratio× median (min–max)".
func cell(c, base *Measured, m metric) string {
	values := report.SpreadOf(report.Present(c.Values[m]))
	if math.IsNaN(values.Median) {
		return "none"
	}
	if values.Max == 0 {
		return "-" // CPU and memory of what has no process
	}
	text := fmt.Sprintf("%s (%s–%s)", report.Short(values.Median), report.Short(values.Min), report.Short(values.Max))
	if base != nil && base != c {
		if q := report.Ratios(c.Values[m], base.Values[m]); len(q) > 0 {
			text = fmt.Sprintf("%.2f× %s", report.Median(q), text)
		}
	}
	return text
}
