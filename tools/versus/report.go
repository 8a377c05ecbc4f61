package versus

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"xpyd/tools/report"
)

// Page is the part of performance.md that a run writes.
func (r *Results) Page() report.Page {
	return report.Page{File: "performance.md", Name: "bench-proxy"}
}

// Render puts the tables of earlier runs of one build on one machine into the performance.md of docs,
// and their charts beside it. paths are the results.json of those runs, which have different shapes.
func Render(paths []string, docs string) error {
	var all *Results
	for _, path := range paths {
		r := &Results{}
		if err := report.Load(path, r); err != nil {
			return err
		}
		if all == nil {
			all = r
		} else if err := all.join(r); err != nil {
			return fmt.Errorf("read results of %s: %w", path, err)
		}
	}
	known := shapes(crowdWanted, mostCores)
	place := func(s *Shape) int { return slices.IndexFunc(known, func(x shape) bool { return x.name == s.Name }) }
	for _, s := range all.Shapes {
		i := place(s)
		if i < 0 {
			return fmt.Errorf("read results: no shape is called %q", s.Name)
		}
		s.bars = known[i].bars
	}
	slices.SortStableFunc(all.Shapes, func(a, b *Shape) int { return place(a) - place(b) })
	return report.Publish(all, docs)
}

// mostCores is above those of any machine.
const mostCores = 1024

// join adds the shapes of another run. The first run's kernel part stays.
func (r *Results) join(other *Results) error {
	if other.Version != r.Version || other.Machine != r.Machine || other.Cores != r.Cores {
		return fmt.Errorf("a run of %s on %d of %+v is no part of one of %s on %d of %+v", other.Version, other.Cores, other.Machine, r.Version, r.Cores, r.Machine)
	}
	for _, s := range other.Shapes {
		if r.of(s.Name, s.Load) != nil {
			return fmt.Errorf("%s is in another run too", s.label())
		}
		r.Shapes = append(r.Shapes, s)
	}
	r.Rounds, r.Began = max(r.Rounds, other.Rounds), min(r.Began, other.Began)
	for _, n := range other.Notes {
		if !slices.Contains(r.Notes, n) {
			r.Notes = append(r.Notes, n)
		}
	}
	return nil
}

// Charts are those of all tables.
func (r *Results) Charts() map[string]report.Chart {
	all := map[string]report.Chart{}
	for _, t := range r.tables() {
		all[t.file()] = t.chart
	}
	return all
}

// Markdown is all tables.
func (r *Results) Markdown(images string) string {
	var b strings.Builder
	b.WriteString(r.shortTable())
	b.WriteString(r.Intro(r.WindowS) + r.scope() + ".\n" + r.Notes.Markdown())
	b.WriteString(r.barsTable())
	b.WriteString(r.floorTable())
	b.WriteString(r.callsTable())
	for _, t := range r.tables() {
		fmt.Fprintf(&b, "\n### %s\n\n%s\n![%s](%s%s)\n", t.chart.Title, t.Markdown(), t.chart.Title, images, t.file())
	}
	return b.String()
}

// barsTable has each bar once, under the load that is worse for it.
func (r *Results) barsTable() string {
	var b strings.Builder
	b.WriteString("\n### Bars\n\nA bar is a goal, judged on the worse of the two loads. The nginx of a goal is the cheaper of its two forms, shape by shape.\n\n" +
		"| work | goal | measured | | load | the other load |\n|---|---|---|---|---|---|\n")
	seen := map[string]bool{}
	for _, s := range r.Shapes {
		if seen[s.Name] {
			continue
		}
		seen[s.Name] = true
		for _, v := range r.verdicts(s) {
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", s.Title, v.Goal, v.Measured, v.Word(), cmp.Or(v.load, "–"), cmp.Or(v.other, "–"))
		}
	}
	return b.String()
}

// floorTable shows the physical limit, which no proxy can go below.
func (r *Results) floorTable() string {
	if len(r.Floor) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("\n### The kernel's part, µs\n\nThe least that copying costs: a write and a read of that many bytes over loopback, with no thread to wait for or to wake.\n\n" +
		"| bytes | write | read | a read and a write: one leg | a read and two writes: both legs of a request |\n|---|---|---|---|---|\n")
	for _, f := range r.Floor {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", report.Thousands(int64(f.Bytes)), report.Short(f.WriteUs), report.Short(f.ReadUs), report.Short(f.ReadUs+f.WriteUs), report.Short(f.ReadUs+2*f.WriteUs))
	}
	return b.String()
}

// callsTable is empty unless they were counted.
func (r *Results) callsTable() string {
	var rows strings.Builder
	for _, s := range r.Shapes {
		for _, c := range s.Calls {
			fmt.Fprintf(&rows, "| %s | %s | %.2f %s | %s | %.2f |\n", s.label(), c.Contender, c.Per["all"], c.Unit, c.list(), c.Per["switches"])
		}
	}
	if rows.Len() == 0 {
		return ""
	}
	return "\n### System calls\n\n| work | | calls | which | context switches |\n|---|---|---|---|---|\n" + rows.String()
}

// table is some shapes' figures for readers, with its chart.
type table struct {
	report.Table
	name  string
	chart report.Chart
}

func (t table) file() string { return "bench-" + t.name + ".svg" }

// column is a figure of some shapes that belong together.
type column struct {
	metric metric
	above  string // a contender that is subtracted; "" for none
}

func (c column) title() string {
	if c.above != "" {
		return string(c.metric) + " above " + c.above
	}
	return string(c.metric)
}

// section picks the shapes and figures of a table, with a row for each shape and contender.
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
	cores := func(work string) (all []string) {
		for _, n := range coreCounts(mostCores) {
			all = append(all, coresName(work, n))
		}
		return all
	}
	scale := []column{{metric: cpuRequest}, {metric: ttft50, above: nameDirect}, {metric: ttft99, above: nameDirect}}
	return []section{
		{"requests", "CPU of a request, µs", []string{"json", "body-512k", "body-4m", "json-512"}, cpu, true},
		{"events", "CPU of an event, µs", []string{"flood", "paced-64", "paced-500", "crowd-100", "crowd-10k"}, []column{{metric: cpuEvent}, {metric: eventsS}, {metric: rssMiB}}, false},
		{"delay", "Delay of an event, µs", []string{"paced-64", "paced-500"}, []column{{metric: delay50}, {metric: delay50, above: nameDirect}, {metric: delay99}, {metric: delay999}}, false},
		{"ttft", "Time to the first event, µs", []string{"ttft", "ttft-64", "ttft-500"}, []column{{metric: ttft50}, {metric: ttft50, above: nameDirect}, {metric: ttft99}}, false},
		{"memory", "Memory of an open stream, KiB", []string{"open-2000", "flow-2000"}, []column{{metric: kibStream}, {metric: rssMiB}}, false},
		{"prompts", "CPU of a request by length of the prompt, µs", prompts, scale, true},
		{"prompts-ttft", "Added TTFT by length of the prompt, µs", prompts, scale[1:], true},
		{"backends", "CPU of a request by number of backends, µs", backends, scale, true},
		{"backends-ttft", "Added TTFT by number of backends, µs", backends, scale[1:], true},
		{"cores", "CPU of a request by threads of the proxy, µs", cores("json"), cpu, false},
		{"cores-events", "CPU of an event by threads of the proxy, µs", cores("paced"), []column{{metric: cpuEvent}, {metric: delay99}}, false},
	}
}

// tables are the sections for which something was measured.
func (r *Results) tables() []table {
	var all []table
	for _, s := range sections() {
		if t := r.table(s); len(t.Rows) > 0 {
			all = append(all, t)
		}
	}
	return all
}

func (r *Results) table(sec section) table {
	t := table{
		name: sec.name, Table: report.Table{Head: []string{"work", ""}},
		chart: report.Chart{Title: sec.title, Note: "× of " + r.Baseline, Log: sec.log, Known: names()},
	}
	for _, c := range sec.columns {
		t.Head = append(t.Head, c.title())
	}
	for _, s := range r.among(sec.shapes) {
		g := report.Group{Label: s.label(), Limit: s.limit(sec.columns[0].metric)}
		for _, m := range s.Contenders {
			row := []string{s.label(), m.Name}
			for i, c := range sec.columns {
				cell, bar := s.figure(r, m, c)
				row = append(row, cell)
				if i == 0 && bar.Series != "" {
					g.Bars = append(g.Bars, bar)
				}
			}
			t.Rows = append(t.Rows, row)
		}
		t.chart.Groups = append(t.chart.Groups, g)
	}
	return t
}

// among returns what was measured of some shapes, under all loads, in the order of the names.
func (r *Results) among(names []string) []*Shape {
	var all []*Shape
	for _, name := range names {
		for _, s := range r.Shapes {
			if s.Name == name {
				all = append(all, s)
			}
		}
	}
	return all
}

// figure returns a cell of a table, and its bar. A bar without a series is not drawn.
func (s *Shape) figure(r *Results, m *report.Row, c column) (cell string, bar report.Bar) {
	yardstick := s.yardstick(r.Baseline)
	values, base := s.values(m, c.metric, c.above), s.values(yardstick, c.metric, c.above)
	v := report.SpreadOf(report.Present(values))
	if math.IsNaN(v.Median) || v.Max == 0 {
		return "–", report.Bar{}
	}
	bar = report.Bar{Series: m.Name, Value: v.Median, Min: v.Min, Max: v.Max, Text: report.Short(v.Median), Goal: m.Build}
	cell = v.Text(report.Short, "")
	if times := report.Times(values, base); times != "" && m != yardstick {
		bar.Text += " = " + times
		cell = "**" + times + "** " + cell
	}
	return cell, bar
}

// limit returns the goal of a figure, or 0 if it has none that a chart can show.
func (s *Shape) limit(m metric) float64 {
	for _, b := range s.bars {
		switch {
		case b.metric != m || b.above != "" || b.base != "":
		case b.to == "":
			return b.limit
		default:
			if base := s.yardstick(b.to).Spread(m).Median; !math.IsNaN(base) {
				return b.limit * base
			}
		}
	}
	return 0
}
