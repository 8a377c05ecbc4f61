package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"xpyd/bench/advice"
	"xpyd/bench/result"
)

// mooncakeHead are the columns of Mooncake's published tables, after the column of the load.
func mooncakeHead() []string {
	return []string{"Backend/Setting", "Successful Requests", "Duration (s)", "Total Input Tokens", "Total Generated Tokens",
		"Req Throughput (req/s)", "Output Token Throughput (tok/s)", "Total Token Throughput (tok/s)", "Mean TTFT (ms)", "Median TTFT (ms)",
		"P99 TTFT (ms)", "Mean TPOT (ms)", "Median TPOT (ms)", "P99 TPOT (ms)", "Mean ITL (ms)", "Median ITL (ms)", "P99 ITL (ms)"}
}

// mooncake is Mooncake's page: for each workload the table, with 17 columns for one load and 18 for
// several, and below the tables the block of each run.
func mooncake(w *strings.Builder, runs []*result.Run, _ Options) error {
	all := workloads(runs)
	fmt.Fprintf(w, "# Benchmark performance of %s\n", runs[0].Config.Model)
	for _, load := range all {
		fmt.Fprintf(w, "## %s\n\n", load.title())
		markdown(w, load.mooncakeRows())
		w.WriteString("\n")
	}
	w.WriteString("# Raw benchmark results\n")
	for _, load := range all {
		if err := load.rawBlocks(w); err != nil {
			return err
		}
	}
	return nil
}

// rawBlocks writes the block of each run, below a heading for each load.
func (l workload) rawBlocks(w *strings.Builder) error {
	heading := ""
	for _, c := range l.cells {
		if now := "## " + l.name() + ", " + loadWords(c.runs[0].Config); now != heading {
			heading = now
			w.WriteString(heading + "\n")
		}
		for _, r := range c.runs {
			fmt.Fprintf(w, "### %s\n```\n%s", cellTitle(c, r), Preface(r.Config))
			if err := seedBlock(w, r); err != nil {
				return err
			}
			w.WriteString("```\n\n")
		}
	}
	return nil
}

// mooncakeRows are the head and a row for each cell. Repeats are one row of medians.
func (l workload) mooncakeRows() [][]string {
	head := mooncakeHead()
	several := l.loads() > 1
	if several {
		head = append([]string{l.loadName()}, head...)
	}
	rows := [][]string{head}
	for _, c := range l.cells {
		row := c.mooncakeRow()
		if several {
			row = append([]string{loadValue(c.runs[0].Config)}, row...)
		}
		rows = append(rows, row)
	}
	return rows
}

// mooncakeRow adds what the table has no column for: how many repeats the row is the median of, and
// how many requests failed in all of them.
func (c cell) mooncakeRow() []string {
	two := func(of func(*result.Run) float64) string { return decimal(c.median(of)) }
	count := func(of func(*result.Totals) int) string {
		return strconv.FormatFloat(c.median(func(r *result.Run) float64 { return float64(of(r.Totals)) }), 'f', -1, 64)
	}
	setting, success := c.target, count(func(t *result.Totals) int { return t.Completed })
	if len(c.runs) > 1 {
		setting += fmt.Sprintf(" (median of %d)", len(c.runs))
	}
	if failed := c.failed(); failed > 0 {
		success += fmt.Sprintf(" (%d failed)", failed)
	}
	if slices.ContainsFunc(c.runs, (*result.Run).Unreached) {
		setting += " (concurrency never reached)"
	}
	if c.interrupted() {
		success += " (interrupted)"
	}
	row := []string{strings.ReplaceAll(setting, "|", `\|`), success, two(func(r *result.Run) float64 { return float64(r.DurationUS) / 1e6 }),
		count(func(t *result.Totals) int { return t.InputTokens }), count(func(t *result.Totals) int { return t.OutputTokens }),
		two(func(r *result.Run) float64 { return r.Totals.RequestRate }), two(func(r *result.Run) float64 { return r.Totals.OutputRate }),
		two(func(r *result.Run) float64 { return r.Totals.TotalRate })}
	for _, metric := range []string{result.TTFT, result.TPOT, result.ITL} {
		row = append(row, two(func(r *result.Run) float64 { return r.Totals.MS[metric].Mean }),
			two(func(r *result.Run) float64 { return r.Totals.MS[metric].Median }), two(func(r *result.Run) float64 { return r.Totals.MS[metric].P99 }))
	}
	return row
}

// mooncakeFiles are the page, and each run's result under the name that Mooncake's scripts give
// it, in a folder for each target and workload if there are several.
func mooncakeFiles(runs []*result.Run, o Options) ([]File, error) {
	var page strings.Builder
	if err := mooncake(&page, runs, o); err != nil {
		return nil, err
	}
	files := []File{{"mooncake.md", []byte(page.String())}}
	all := sets(runs)
	for _, set := range all {
		folder := ""
		if len(all) > 1 {
			folder = fileName(set.workload, set.target) + "/"
		}
		for _, r := range set.runs {
			var text strings.Builder
			if r.Foreign() {
				continue // its own file is the result
			}
			if err := vllmJSON(&text, r, false); err != nil {
				return nil, err
			}
			load := "qps-" + loadValue(r.Config)
			if closed(r.Config) {
				load = "concurrency-" + loadValue(r.Config)
			}
			files = append(files, File{folder + "disagg_prefill-" + load + ".json", []byte(text.String())})
		}
	}
	return files, nil
}

// cellTitle names a run within its cell.
func cellTitle(c cell, r *result.Run) string {
	if len(c.runs) > 1 {
		return fmt.Sprintf("%s, repeat %d", c.target, advice.Place(r).Repeat)
	}
	return c.target
}

// markdown writes rows as a table whose columns line up; the first row is the head.
func markdown(w *strings.Builder, rows [][]string) {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for n, row := range rows {
		for i, cell := range row {
			fmt.Fprintf(w, "| %s%s ", cell, strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)))
		}
		w.WriteString("|\n")
		if n > 0 {
			continue
		}
		for _, width := range widths {
			w.WriteString("|" + strings.Repeat("-", width+2))
		}
		w.WriteString("|\n")
	}
}
