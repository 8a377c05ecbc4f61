package versus

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
)

// write puts the results into a directory: results.json, results.md, and the charts.
func (r *Results) write(dir string) error {
	js, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "results.json"), append(js, '\n'), 0o644); err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "results.md"), []byte(r.markdown("")), 0o644); err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	return r.writeCharts(dir)
}

func (r *Results) writeCharts(dir string) error {
	for _, t := range r.tables() {
		if err := os.WriteFile(filepath.Join(dir, t.file()), []byte(t.chart.svg()), 0o644); err != nil {
			return fmt.Errorf("write a chart: %w", err)
		}
	}
	return nil
}

// Marks of the part of performance.md that a run writes.
const (
	docsBegin = "<!-- bench-proxy: begin -->\n"
	docsEnd   = "<!-- bench-proxy: end -->\n"
)

// writeDocs puts tables into performance.md, between its marks, and charts into img/.
func (r *Results) writeDocs(dir string) error {
	path := filepath.Join(dir, "performance.md")
	old, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("put the tables into the documentation: %w", err)
	}
	before, rest, ok1 := strings.Cut(string(old), docsBegin)
	_, after, ok2 := strings.Cut(rest, docsEnd)
	if !ok1 || !ok2 {
		return fmt.Errorf("put the tables into the documentation: %s has no %q and %q", path, strings.TrimSpace(docsBegin), strings.TrimSpace(docsEnd))
	}
	text := before + docsBegin + "\n" + r.markdown("img/") + "\n" + docsEnd + after
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return fmt.Errorf("put the tables into the documentation: %w", err)
	}
	images := filepath.Join(dir, "img")
	if err := os.MkdirAll(images, 0o755); err != nil {
		return fmt.Errorf("put the charts into the documentation: %w", err)
	}
	return r.writeCharts(images)
}

// markdown is all tables; images is the path of the charts from where it will stand.
func (r *Results) markdown(images string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Measured %s with xpyd %s on %s, %d cores, %s, %s: medians of %d rounds of %g s, each with (least–most) of the rounds.\n",
		r.Began, r.Version, r.Machine.CPU, r.Machine.Cores, r.Machine.Kernel, r.Machine.Go, r.Rounds, r.WindowS)
	if len(r.Notes) > 0 {
		b.WriteString("\n")
		for _, n := range r.Notes {
			fmt.Fprintf(&b, "- %s\n", n)
		}
	}
	b.WriteString("\n### Bars\n\n| work | goal | measured | |\n|---|---|---|---|\n")
	for _, s := range r.Shapes {
		for _, v := range s.verdicts(r) {
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", s.Title, v.goal(), v.measured(), v.word())
		}
	}
	b.WriteString(r.floorTable())
	b.WriteString(r.callsTable())
	for _, t := range r.tables() {
		fmt.Fprintf(&b, "\n### %s\n\n%s\n![%s](%s%s)\n", t.chart.title, t.markdown(), t.chart.title, images, t.file())
	}
	return b.String()
}

// floorTable is the physical limit: what no proxy can do without.
func (r *Results) floorTable() string {
	if len(r.Floor) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("\n### The kernel's part, µs\n\nWrite and read of so many bytes over loopback, with nobody to wait for or to wake: what copying them costs at least.\n\n" +
		"| bytes | write | read | a read and a write: one leg | a read and two writes: both legs of a request |\n|---|---|---|---|---|\n")
	for _, f := range r.Floor {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", thousands(int64(f.Bytes)), short(f.WriteUs), short(f.ReadUs), short(f.ReadUs+f.WriteUs), short(f.ReadUs+2*f.WriteUs))
	}
	return b.String()
}

// callsTable is empty unless they were counted.
func (r *Results) callsTable() string {
	var rows strings.Builder
	for _, s := range r.Shapes {
		for _, c := range s.Calls {
			fmt.Fprintf(&rows, "| %s | %s | %.2f %s | %s | %.2f |\n", s.Title, c.Contender, c.Per["all"], c.Unit, c.list(), c.Per["switches"])
		}
	}
	if rows.Len() == 0 {
		return ""
	}
	return "\n### System calls\n\n| work | | calls | which | context switches |\n|---|---|---|---|---|\n" + rows.String()
}

// table is some shapes' figures for readers, with its chart.
type table struct {
	name  string
	head  []string
	rows  [][]string
	chart chart
}

func (t table) file() string { return "bench-" + t.name + ".svg" }

func (t table) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "| %s |\n|%s\n", strings.Join(t.head, " | "), strings.Repeat("---|", len(t.head)))
	for _, row := range t.rows {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
	}
	return b.String()
}

// column is a figure of some shapes that belong together.
type column struct {
	metric metric
	above  string // a contender that is subtracted; "": none
}

func (c column) title() string {
	if c.above != "" {
		return string(c.metric) + " above " + c.above
	}
	return string(c.metric)
}

// section picks the shapes and figures of a table: a row a shape and a contender.
type section struct {
	name, title string
	shapes      []string
	columns     []column // the first is drawn
	log         bool
}

func sections() []section {
	prompts := []string{"prompt-1k", "prompt-10k", "prompt-100k", "prompt-1m"}
	backends := []string{"backends-1", "backends-2", "backends-8", "backends-64", "backends-512"}
	cpu := []column{{metric: cpuRequest}, {metric: requestsS}, {metric: rssMiB}}
	scale := []column{{metric: cpuRequest}, {metric: ttft50, above: nameDirect}, {metric: ttft99, above: nameDirect}}
	return []section{
		{"requests", "CPU of a request, µs", []string{"json", "body-512k", "body-4m", "json-512"}, cpu, true},
		{"events", "CPU of an event, µs", []string{"flood", "paced-64", "paced-500", "crowd-100", "crowd-10k"}, []column{{metric: cpuEvent}, {metric: eventsS}, {metric: rssMiB}}, false},
		{"delay", "Delay of an event, µs", []string{"paced-64", "paced-500"}, []column{{metric: delay50}, {metric: delay50, above: nameDirect}, {metric: delay99}, {metric: delay999}}, false},
		{"ttft", "Time to the first event, µs", []string{"ttft"}, []column{{metric: ttft50}, {metric: ttft50, above: nameDirect}, {metric: ttft99}}, false},
		{"memory", "Memory of an open stream, KiB", []string{"open-2000"}, []column{{metric: kibStream}, {metric: rssMiB}}, false},
		{"prompts", "CPU of a request by length of the prompt, µs", prompts, scale, true},
		{"prompts-ttft", "Added TTFT by length of the prompt, µs", prompts, scale[1:], true},
		{"backends", "CPU of a request by number of backends, µs", backends, scale, true},
		{"backends-ttft", "Added TTFT by number of backends, µs", backends, scale[1:], true},
	}
}

// tables are the sections of which something was measured.
func (r *Results) tables() []table {
	var all []table
	for _, s := range sections() {
		if t := r.table(s); len(t.rows) > 0 {
			all = append(all, t)
		}
	}
	return all
}

func (r *Results) table(sec section) table {
	t := table{name: sec.name, head: []string{"work", ""}, chart: chart{title: sec.title, note: "× of " + r.Baseline, log: sec.log}}
	for _, c := range sec.columns {
		t.head = append(t.head, c.title())
	}
	for _, name := range sec.shapes {
		s := r.of(name)
		if s == nil {
			continue
		}
		g := group{label: s.Title, limit: s.limit(sec.columns[0].metric)}
		for _, m := range s.Contenders {
			row := []string{s.Title, m.Name}
			for i, c := range sec.columns {
				cell, bar := s.figure(r, m, c)
				row = append(row, cell)
				if i == 0 && bar.series != "" {
					g.bars = append(g.bars, bar)
				}
			}
			t.rows = append(t.rows, row)
		}
		t.chart.groups = append(t.chart.groups, g)
	}
	return t
}

// figure is a cell of a table, and its bar; a bar without a series is not to be drawn.
func (s *Shape) figure(r *Results, m *Measured, c column) (cell string, bar chartBar) {
	values, base := s.column(m, c), s.column(s.of(r.Baseline), c)
	v := spreadOf(present(values))
	if math.IsNaN(v.Median) || v.Max == 0 {
		return "–", chartBar{}
	}
	bar = chartBar{series: m.Name, value: v.Median, min: v.Min, max: v.Max, text: short(v.Median), goal: m.Build}
	cell = fmt.Sprintf("%s (%s–%s)", short(v.Median), short(v.Min), short(v.Max))
	if q := ratios(values, base); len(q) > 0 && m.Name != r.Baseline {
		bar.text = fmt.Sprintf("%s = %.2f×", bar.text, median(q))
		cell = fmt.Sprintf("**%.2f×** %s", median(q), cell)
	}
	return cell, bar
}

// column is a contender's values, less what the column is counted from.
func (s *Shape) column(m *Measured, c column) []float64 {
	if c.above == "" {
		return m.values(c.metric)
	}
	return differences(m.values(c.metric), s.of(c.above).values(c.metric))
}

// limit is where the goal of a figure lies, 0 if it has none that a chart can show.
func (s *Shape) limit(m metric) float64 {
	for _, b := range s.bars {
		switch {
		case b.metric != m || b.above != "" || b.base != "":
		case b.to == "":
			return b.limit
		default:
			if base := median(present(s.of(b.to).values(m))); !math.IsNaN(base) {
				return b.limit * base
			}
		}
	}
	return 0
}
