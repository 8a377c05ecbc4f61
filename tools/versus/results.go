package versus

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"xpyd/tools/report"
)

// Results are what a run has measured.
type Results struct {
	report.Run
	WindowS  float64      `json:"window_seconds"`
	Cores    int          `json:"cores"`
	Notes    report.Notes `json:"notes"`
	Floor    []Floor      `json:"floor"`
	Shapes   []*Shape     `json:"shapes"`
	Baseline string       `json:"baseline"` // contender that ratios are to
}

// Shape is what was measured of one kind of work.
type Shape struct {
	Name       string      `json:"name"`
	Title      string      `json:"title"`
	Load       string      `json:"load,omitempty"` // "" in results of runs that had but one
	Metrics    []metric    `json:"metrics"`
	Contenders report.Rows `json:"contenders"`
	Calls      []Calls     `json:"calls,omitempty"`
	bars       []bar
}

func newResults(o Options) *Results {
	return &Results{Run: report.Begin(o.Version, o.Rounds), Notes: report.Notes{}, WindowS: o.Window.Seconds(), Cores: o.Cores, Baseline: nameNginx}
}

// of returns nil if the shape was not measured under that load.
func (r *Results) of(shape, load string) *Shape {
	if i := slices.IndexFunc(r.Shapes, func(s *Shape) bool { return s.Name == shape && s.Load == load }); i >= 0 {
		return r.Shapes[i]
	}
	return nil
}

// label names the work of a row, with the load.
func (s *Shape) label() string {
	if s.Load == "" {
		return s.Title
	}
	return s.Title + " [" + s.Load + "]"
}

func (r *Results) add(s shape, load string, contenders []contender) *Shape {
	out := &Shape{Name: s.name, Title: s.title, Load: load, Metrics: s.metrics, bars: s.bars}
	for _, c := range contenders {
		row := report.NewRow(c.name)
		row.Build = c.xpyd
		out.Contenders = append(out.Contenders, row)
	}
	r.Shapes = append(r.Shapes, out)
	return out
}

// record adds a round.
func (s *Shape) record(name string, values map[metric]float64, err error) {
	s.Contenders.Of(name).Record(append(slices.Clone(s.Metrics), othersCPU, paceKept), values, err)
}

// print writes a table for people: one contender a line, each figure after its ratio.
func (s *Shape) print(out io.Writer, r *Results) {
	fmt.Fprintf(out, "\n%s (%s)\n%-14s", s.label(), s.Name, "")
	for _, m := range s.Metrics {
		fmt.Fprintf(out, " %-34s", m)
	}
	fmt.Fprintln(out)
	base := s.yardstick(r.Baseline)
	for _, c := range s.Contenders {
		fmt.Fprintf(out, "%-14s", c.Name)
		for _, m := range s.Metrics {
			fmt.Fprintf(out, " %-34s", cell(c, base, m))
		}
		fmt.Fprintln(out)
	}
	if s.Contenders.Of(nameBuffered) != nil {
		fmt.Fprintf(out, "  yardstick: %s, the cheaper form\n", base.Name)
	}
	for _, line := range s.builds() {
		fmt.Fprintln(out, "  "+line)
	}
	for _, c := range s.Calls {
		fmt.Fprintln(out, "  "+c.String())
	}
	fmt.Fprintln(out, "  "+s.disturbance())
}

// printVerdicts writes those of a shape, after all of its loads.
func (r *Results) printVerdicts(out io.Writer, s *Shape) {
	for _, v := range r.verdicts(s) {
		fmt.Fprintln(out, "  "+v.String())
	}
}

// builds compares the further builds of xpyd with the first, figure by figure.
func (s *Shape) builds() []string {
	var (
		lines []string
		first *report.Row
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
			q := report.SpreadOf(report.Ratios(c.Of(m), first.Of(m)))
			line += fmt.Sprintf(" %s %s;", m, q.Text(report.ThreeDecimals, "×"))
		}
		lines = append(lines, strings.TrimSuffix(line, ";"))
	}
	return lines
}

// disturbance says how quiet the machine was.
func (s *Shape) disturbance() string {
	var others, pace []float64
	for _, c := range s.Contenders {
		others = append(others, report.Present(c.Of(othersCPU))...)
		pace = append(pace, report.Present(c.Of(paceKept))...)
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
func cell(c, base *report.Row, m metric) string {
	v := c.Spread(m)
	if math.IsNaN(v.Median) {
		return "none"
	}
	if v.Max == 0 {
		return "-" // CPU and memory of a contender without a process
	}
	text := v.Text(report.Short, "")
	if times := report.Times(c.Of(m), base.Of(m)); times != "" && base != c {
		text = times + " " + text
	}
	return text
}
