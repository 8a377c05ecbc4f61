package report

import (
	"encoding/csv"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"xpyd/bench/result"
)

// csvTable has a line a run: what was asked for, the totals, and each metric's statistics.
func csvTable(w *strings.Builder, runs []*result.Run) error {
	out := csv.NewWriter(w)
	head := []string{"started", "label", "url", "api", "model", "dataset", "input_len", "output_len", "num_prompts", "rate", "burstiness",
		"concurrency", "seed", "length_by", "interrupted", "duration_s", "completed", "failed", "failures", "input_tokens", "output_tokens",
		"cached_tokens", "requests_per_s", "good_requests_per_s", "output_tokens_per_s", "total_tokens_per_s", "peak_events_per_s", "peak_concurrent_requests"}
	for _, metric := range result.Metrics() {
		for _, stat := range []string{"mean", "median", "std", "min", "p90", "p99", "max"} {
			head = append(head, metric+"_"+stat+"_ms")
		}
	}
	if err := out.Write(head); err != nil {
		return fmt.Errorf("write the head: %w", err)
	}
	for _, r := range runs {
		if err := out.Write(csvRow(r)); err != nil {
			return fmt.Errorf("write a row: %w", err)
		}
	}
	out.Flush()
	return out.Error()
}

func csvRow(r *result.Run) []string {
	c, t := r.Config, r.Totals
	number := func(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }
	good, shape := "", "inf"
	if t.GoodRate != nil {
		good = number(*t.GoodRate)
	}
	if c.Burstiness != nil {
		shape = number(*c.Burstiness)
	}
	rates := "inf"
	if c.Rate != nil {
		rates = number(*c.Rate)
	}
	row := []string{r.Started.UTC().Format(time.RFC3339), c.Label, c.URL, c.API, c.Model, c.Dataset, strconv.Itoa(c.InputLen), strconv.Itoa(c.OutputLen),
		strconv.Itoa(len(r.Records) + r.Unsent), rates, shape, strconv.Itoa(c.Concurrency), strconv.FormatUint(c.Seed, 10), r.Prompts.LengthBy,
		strconv.FormatBool(r.Interrupted), number(float64(r.DurationUS) / 1e6), strconv.Itoa(t.Completed), strconv.Itoa(t.Failed), failures(t),
		strconv.Itoa(t.InputTokens), strconv.Itoa(t.OutputTokens), strconv.Itoa(t.CachedTokens), number(t.RequestRate), good,
		number(t.OutputRate), number(t.TotalRate), number(t.PeakOutput), strconv.Itoa(t.PeakOpen)}
	for _, metric := range result.Metrics() {
		s := t.MS[metric]
		for _, x := range []float64{s.Mean, s.Median, s.Std, s.Min, s.P90, s.P99, s.Max} {
			row = append(row, number(x))
		}
	}
	return row
}

// name is what a run is called in tables.
func name(r *result.Run) string {
	if r.Config.Label != "" {
		return r.Config.Label
	}
	return r.Config.URL
}

// plainTable is a line a run, with the median and the 99th percentile of each metric.
func plainTable(w *strings.Builder, runs []*result.Run) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(out, "run\trate\tcap\tok\tfailed\treq/s\ttok/s\tTTFT p50\tp99\tTPOT p50\tp99\tITL p99\tE2EL p50\tp99\t")
	for _, r := range runs {
		t, limit := r.Totals, "-"
		if r.Config.Concurrency > 0 {
			limit = strconv.Itoa(r.Config.Concurrency)
		}
		ttft, tpot, itl, e2el := t.MS[result.TTFT], t.MS[result.TPOT], t.MS[result.ITL], t.MS[result.E2EL]
		fmt.Fprintf(out, "%s\t%s\t%s\t%d\t%d\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t\n", name(r), rate(r.Config.Rate), limit,
			t.Completed, t.Failed, t.RequestRate, t.OutputRate, ttft.Median, ttft.P99, tpot.Median, tpot.P99, itl.P99, e2el.Median, e2el.P99)
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write the table: %w", err)
	}
	w.WriteString("times in ms\n")
	return nil
}

// mooncake is the Markdown table of Mooncake's published experiment: 17 columns and the rate.
// The count of successes names failures where there are any.
func mooncake(w *strings.Builder, runs []*result.Run) error {
	rows := [][]string{{"QPS", "Backend/Setting", "Successful Requests", "Duration (s)", "Total Input Tokens", "Total Generated Tokens",
		"Req Throughput (req/s)", "Output Token Throughput (tok/s)", "Total Token Throughput (tok/s)", "Mean TTFT (ms)", "Median TTFT (ms)",
		"P99 TTFT (ms)", "Mean TPOT (ms)", "Median TPOT (ms)", "P99 TPOT (ms)", "Mean ITL (ms)", "Median ITL (ms)", "P99 ITL (ms)"}}
	for _, r := range runs {
		t := r.Totals
		success := strconv.Itoa(t.Completed)
		if t.Failed > 0 {
			success += fmt.Sprintf(" (%d failed)", t.Failed)
		}
		two := func(x float64) string { return strconv.FormatFloat(x, 'f', 2, 64) }
		row := []string{strings.TrimSuffix(rate(r.Config.Rate), ".0"), strings.ReplaceAll(name(r), "|", `\|`), success, two(float64(r.DurationUS) / 1e6),
			strconv.Itoa(t.InputTokens), strconv.Itoa(t.OutputTokens), two(t.RequestRate), two(t.OutputRate), two(t.TotalRate)}
		for _, metric := range []string{result.TTFT, result.TPOT, result.ITL} {
			row = append(row, two(t.MS[metric].Mean), two(t.MS[metric].Median), two(t.MS[metric].P99))
		}
		rows = append(rows, row)
	}
	markdown(w, rows)
	return nil
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
