package report

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"xpyd/bench/advice"
	"xpyd/bench/result"
)

// loadTables puts the targets side by side: for each workload and each figure a table with a line for each load, medians of
// the repeats, as published comparisons have them. A load that a target has not run, and a point that may not be compared,
// is a dash.
func loadTables(w *strings.Builder, runs []*result.Run) error {
	for _, g := range advice.Groups(runs, advice.Token()) {
		usable, _ := g.Usable()
		targets, loads := axes(g.Points)
		fmt.Fprintf(w, "%s, medians of the repeats\n", g.Title())
		for _, f := range loadFigures() {
			out := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
			fmt.Fprintf(out, "\n%s\t%s\t\n", f.name, strings.Join(targets, "\t"))
			for _, load := range loads {
				fmt.Fprintf(out, "%s\t", load)
				for _, target := range targets {
					fmt.Fprintf(out, "%s\t", at(usable, target, load, f.of))
				}
				fmt.Fprintln(out)
			}
			if err := out.Flush(); err != nil {
				return fmt.Errorf("write a table: %w", err)
			}
		}
		w.WriteString("\n")
	}
	return nil
}

type loadFigure struct {
	name string
	of   func(*result.Run) float64
}

func loadFigures() []loadFigure {
	all := []loadFigure{
		{"req/s", func(r *result.Run) float64 { return r.Totals.RequestRate }},
		{"output tok/s", func(r *result.Run) float64 { return r.Totals.OutputRate }},
	}
	for _, m := range []struct{ name, metric string }{{"TTFT", result.TTFT}, {"TPOT", result.TPOT}, {"ITL", result.ITL}, {"E2EL", result.E2EL}} {
		all = append(all,
			loadFigure{m.name + " p50, ms", func(r *result.Run) float64 { return r.Totals.MS[m.metric].Median }},
			loadFigure{m.name + " p99, ms", func(r *result.Run) float64 { return r.Totals.MS[m.metric].P99 }})
	}
	return all
}

// axes are the targets and the loads of points, each in the order of the points.
func axes(points []advice.Point) (targets, loads []string) {
	seen := map[string]bool{}
	note := func(list []string, kind, name string) []string {
		if seen[kind+name] {
			return list
		}
		seen[kind+name] = true
		return append(list, name)
	}
	for _, p := range advice.ByLoad(points) {
		loads = note(loads, "load ", p.Load)
	}
	for _, p := range points {
		targets = note(targets, "target ", p.Target)
	}
	return targets, loads
}

// at is a figure of the point of a target under a load.
func at(points []advice.Point, target, load string, of func(*result.Run) float64) string {
	for _, p := range points {
		if p.Target == target && p.Load == load {
			return decimal(p.Spread(of).Median)
		}
	}
	return "–"
}
