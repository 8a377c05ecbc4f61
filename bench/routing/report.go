package routing

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"xpyd/bench/report"
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

// Marks of the part of routing.md that a run writes.
const (
	docsBegin = "<!-- bench-routing: begin -->\n"
	docsEnd   = "<!-- bench-routing: end -->\n"
)

// writeDocs puts tables into routing.md, between its marks, and charts into img/.
func (r *Results) writeDocs(dir string) error {
	if err := report.Splice(filepath.Join(dir, "routing.md"), docsBegin, docsEnd, r.markdown("img/")); err != nil {
		return err
	}
	images := filepath.Join(dir, "img")
	if err := os.MkdirAll(images, 0o755); err != nil {
		return fmt.Errorf("put the charts into the documentation: %w", err)
	}
	return r.writeCharts(images)
}

func (r *Results) writeCharts(dir string) error {
	for _, topology := range r.topologies() {
		for _, d := range drawings() {
			if err := os.WriteFile(filepath.Join(dir, d.file(topology)), []byte(r.chart(d, topology).SVG()), 0o644); err != nil {
				return fmt.Errorf("write a chart: %w", err)
			}
		}
	}
	return nil
}

func (r *Results) topologies() []string {
	var all []string
	for _, m := range r.Measurements {
		if !slices.Contains(all, m.Topology) {
			all = append(all, m.Topology)
		}
	}
	return all
}

// markdown is all tables; images is the path of the charts from where it will stand.
func (r *Results) markdown(images string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Measured %s with xpyd %s on %s, %d cores, %s, %s: medians of %d rounds of %g s, each with (least–most) of the rounds, %d measurements at a time, seed %d. Ratios are to xpyd's %s.\n",
		r.Began, r.Version, r.Machine.CPU, r.Machine.Cores, r.Machine.Kernel, r.Machine.Go, r.Rounds, r.LengthS, r.Parallel, r.Seed, baseline)
	if len(r.Notes) > 0 {
		b.WriteString("\n")
		for _, n := range r.Notes {
			fmt.Fprintf(&b, "- %s\n", n)
		}
	}
	b.WriteString("\n### Goals\n\n| engines | work | goal | measured | |\n|---|---|---|---|---|\n")
	for _, m := range r.Measurements {
		for _, v := range r.verdicts(m) {
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", v.on, v.work, v.goal, v.measured, v.word())
		}
	}
	for _, topology := range r.topologies() {
		fmt.Fprintf(&b, "\n### %s\n", topology)
		for _, d := range drawings() {
			fmt.Fprintf(&b, "\n![%s, %s](%s%s)\n", d.title, topology, images, d.file(topology))
		}
		for _, m := range r.Measurements {
			if m.Topology == topology {
				fmt.Fprintf(&b, "\n%s (`%s`), %d requests, %.1f/s:\n\n%s%s", strings.ToUpper(m.Title[:1])+m.Title[1:], m.Workload, m.Requests, m.Rate, m.table().Markdown(), m.troubles())
				fmt.Fprintf(&b, "\nIn this table %s.\n", m.disturbance())
			}
		}
	}
	return b.String()
}

// troubles lists what went wrong, as Markdown.
func (m *Measurement) troubles() string {
	var b strings.Builder
	for _, row := range m.Rows {
		for _, p := range slices.Concat(row.Errors, row.Problems) {
			fmt.Fprintf(&b, "\n- %s: %s", row.Name, strings.ReplaceAll(p, "\n", " "))
		}
	}
	if b.Len() > 0 {
		b.WriteString("\n")
	}
	return b.String()
}

// table is a contender a row. Figures that nobody has, and those that are for the record
// alone, are left out.
func (m *Measurement) table() report.Table {
	t := report.Table{Head: []string{""}}
	var columns []metric
	for _, k := range metrics() {
		if k != late && k != computedTokens && slices.ContainsFunc(m.Rows, func(r *Row) bool { return len(report.Present(r.values(k))) > 0 }) {
			columns = append(columns, k)
			t.Head = append(t.Head, string(k))
		}
	}
	for _, row := range m.Rows {
		cells := []string{row.Name}
		for _, k := range columns {
			cells = append(cells, m.cell(row, k))
		}
		t.Rows = append(t.Rows, cells)
	}
	return t
}

// cell is "ratio median (least–most)"; times and rates have a ratio.
func (m *Measurement) cell(row *Row, k metric) string {
	s := report.SpreadOf(report.Present(row.values(k)))
	if math.IsNaN(s.Median) {
		return "–"
	}
	text := fmt.Sprintf("%s (%s–%s)", report.Short(s.Median), report.Short(s.Min), report.Short(s.Max))
	if s.Min == s.Max {
		text = report.Short(s.Median)
	}
	if s.Max == 0 {
		return "0"
	}
	if !slices.Contains([]metric{ttft50, ttft90, ttft99, tokensS}, k) || row.Name == baseline {
		return text
	}
	if q := report.Ratios(row.values(k), m.of(baseline).values(k)); len(q) > 0 {
		text = fmt.Sprintf("**%.2f×** %s", report.Median(q), text)
	}
	return text
}

// drawing is a chart of one figure over all workloads.
type drawing struct {
	metric      metric
	name, title string
	log         bool
}

func drawings() []drawing {
	return []drawing{
		{ttft90, "ttft", "TTFT p90, ms", true},
		{hits, "hits", "Prompt tokens that caches save, %", false},
		{tokensS, "tokens", "Tokens/s", false},
		{imbalance, "imbalance", "Computed prompt tokens, most of an engine to the mean", false},
	}
}

func (d drawing) file(topology string) string {
	return fmt.Sprintf("bench-routing-%s-%s.svg", d.name, strings.ToLower(topology))
}

func (r *Results) chart(d drawing, topology string) report.Chart {
	c := report.Chart{Title: d.title + ", " + topology, Log: d.log, Known: append(standard(), nameOracle)}
	for _, m := range r.Measurements {
		if m.Topology != topology {
			continue
		}
		g := report.Group{Label: m.Title}
		for _, row := range m.Rows {
			s := report.SpreadOf(report.Present(row.values(d.metric)))
			if !math.IsNaN(s.Median) && s.Max > 0 {
				g.Bars = append(g.Bars, report.Bar{Series: row.Name, Value: s.Median, Min: s.Min, Max: s.Max, Text: report.Short(s.Median)})
			}
		}
		c.Groups = append(c.Groups, g)
	}
	return c
}
