package routing

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"xpyd/tools/report"
)

// Page is the part of routing.md that a run writes.
func (r *Results) Page() report.Page {
	return report.Page{File: "routing.md", Name: "bench-routing"}
}

// Render puts the tables of an earlier run into the routing.md of docs, and its charts next to it.
// path is the results.json of that run.
func Render(path, docs string) error {
	var r Results
	if err := report.Load(path, &r); err != nil {
		return err
	}
	return report.Publish(&r, docs)
}

// Charts are those of each topology.
func (r *Results) Charts() map[string]report.Chart {
	all := map[string]report.Chart{}
	for _, topology := range r.topologies() {
		for _, d := range drawings() {
			all[d.file(topology)] = r.chart(d, topology)
		}
	}
	return all
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

// Markdown is all tables, or, for a page with the charts in images, the goals and the charts: results.md has the tables.
func (r *Results) Markdown(images string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %d measurements at a time, seed %d. Ratios are to xpyd's %s.\n%s", r.Intro(r.LengthS), r.Parallel, r.Seed, baseline, r.Notes.Markdown())
	b.WriteString("\n### Goals\n\n| engines | work | goal | measured | |\n|---|---|---|---|---|\n")
	for _, m := range r.Measurements {
		for _, v := range m.verdicts() {
			fmt.Fprintf(&b, "| %s | %s | %s: %s | %s | %s |\n", m.Topology, m.Title, v.Of, v.Goal, v.Measured, v.Word())
		}
	}
	for _, topology := range r.topologies() {
		fmt.Fprintf(&b, "\n### %s\n", topology)
		for _, d := range drawings() {
			fmt.Fprintf(&b, "\n![%s, %s](%s%s)\n", d.title, topology, images, d.file(topology))
		}
		if images != "" {
			continue
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

// table has a row for each contender. It leaves out figures that no contender has, and those that are
// only for the record.
func (m *Measurement) table() report.Table {
	t := report.Table{Head: []string{""}}
	var columns []metric
	for _, k := range metrics() {
		if k != late && k != computedTokens && slices.ContainsFunc(m.Rows, func(row *report.Row) bool { return len(report.Present(row.Of(k))) > 0 }) {
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

// cell is "ratio median (least–most)". Times and rates have a ratio.
func (m *Measurement) cell(row *report.Row, k metric) string {
	s := row.Spread(k)
	if math.IsNaN(s.Median) {
		return "–"
	}
	text := s.Text(report.Short, "")
	if s.Min == s.Max {
		text = report.Short(s.Median)
	}
	if s.Max == 0 {
		return "0"
	}
	if !slices.Contains([]metric{ttft50, ttft90, ttft99, tokensS}, k) || row.Name == baseline {
		return text
	}
	if times := report.Times(row.Of(k), m.Rows.Of(baseline).Of(k)); times != "" {
		text = "**" + times + "** " + text
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
	c := report.Chart{Title: d.title + ", " + topology, Log: d.log, Known: standard()}
	for _, o := range oracles() {
		c.Known = append(c.Known, o.name)
	}
	for _, m := range r.Measurements {
		if m.Topology != topology {
			continue
		}
		g := report.Group{Label: m.Title}
		for _, row := range m.Rows {
			s := row.Spread(d.metric)
			if !math.IsNaN(s.Median) && s.Max > 0 {
				g.Bars = append(g.Bars, report.Bar{Series: row.Name, Value: s.Median, Min: s.Min, Max: s.Max, Text: report.Short(s.Median)})
			}
		}
		if len(g.Bars) > 0 {
			c.Groups = append(c.Groups, g)
		}
	}
	return c
}
