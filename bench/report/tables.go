package report

import (
	"encoding/csv"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"xpyd/bench/advice"
	"xpyd/bench/result"
)

// csvTable has a line for each run: the settings, the totals, and each metric's statistics.
func csvTable(w *strings.Builder, runs []*result.Run) error {
	out := csv.NewWriter(w)
	head := []string{"started", "sweep", "target", "workload", "repeat", "gpus", "label", "url", "api", "model", "dataset", "input_len", "output_len", "num_prompts", "rate", "burstiness",
		"concurrency", "seed", "length_by", "interrupted", "duration_s", "completed", "failed", "failures", "input_tokens", "output_tokens",
		"cached_tokens", "requests_per_s", "good_requests_per_s", "output_tokens_per_s", "total_tokens_per_s", "peak_events_per_s", "peak_concurrent_requests", "most_open_requests"}
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
	number := func(x float64) string {
		if math.IsNaN(x) {
			return "" // another tool has not saved it
		}
		return strconv.FormatFloat(x, 'f', -1, 64)
	}
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
	cell := result.Cell{}
	if c.Cell != nil {
		cell = *c.Cell
	}
	row := []string{r.Started.UTC().Format(time.RFC3339), cell.Sweep, cell.Target, cell.Workload, strconv.Itoa(cell.Repeat), number(cell.GPUs), c.Label, c.URL, c.API, c.Model, c.Dataset, strconv.Itoa(c.InputLen), strconv.Itoa(c.OutputLen),
		strconv.Itoa(planned(r)), rates, shape, strconv.Itoa(c.Concurrency), strconv.FormatUint(c.Seed, 10), r.Prompts.LengthBy,
		strconv.FormatBool(r.Interrupted), number(float64(r.DurationUS) / 1e6), strconv.Itoa(t.Completed), strconv.Itoa(t.Failed), failures(t),
		strconv.Itoa(t.InputTokens), strconv.Itoa(t.OutputTokens), strconv.Itoa(t.CachedTokens), number(t.RequestRate), good,
		number(t.OutputRate), number(t.TotalRate), number(t.PeakOutput), strconv.Itoa(t.PeakOpen), strconv.Itoa(t.MostOpen)}
	for _, metric := range result.Metrics() {
		s := t.MS[metric]
		for _, x := range []float64{s.Mean, s.Median, s.Std, s.Min, s.P90, s.P99, s.Max} {
			row = append(row, number(x))
		}
	}
	return row
}

// planned is how many requests the run was to send.
func planned(r *result.Run) int {
	if r.Foreign() {
		return r.Config.NumPrompts
	}
	return len(r.Records) + r.Unsent
}

// decimal is a figure with two decimals, or a dash if another tool has not saved it.
func decimal(x float64) string {
	if math.IsNaN(x) {
		return "–"
	}
	return strconv.FormatFloat(x, 'f', 2, 64)
}

// plainTable has a line for each run, with the median and the 99th percentile of each metric. Lines
// of a sweep begin with the workload and the repeat.
func plainTable(w *strings.Builder, runs []*result.Run) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	swept := slices.ContainsFunc(runs, func(r *result.Run) bool { return r.Config.Cell != nil })
	if swept {
		fmt.Fprint(out, "workload\trepeat\t")
	}
	unreached := false
	fmt.Fprintln(out, "run\trate\tcap\tok\tfailed\treq/s\ttok/s\tTTFT p50\tp99\tTPOT p50\tp99\tITL p99\tE2EL p50\tp99\t")
	for _, r := range runs {
		t, limit, place := r.Totals, "-", advice.Place(r)
		if r.Config.Concurrency > 0 {
			limit = strconv.Itoa(r.Config.Concurrency)
		}
		if r.Unreached() {
			limit, unreached = limit+"!", true
		}
		if swept {
			fmt.Fprintf(out, "%s\t%d\t", place.Workload, place.Repeat)
		}
		ttft, tpot, itl, e2el := t.MS[result.TTFT], t.MS[result.TPOT], t.MS[result.ITL], t.MS[result.E2EL]
		fmt.Fprintf(out, "%s\t%s\t%s\t%d\t%d\t", place.Target, rate(r.Config.Rate), limit, t.Completed, t.Failed)
		for _, x := range []float64{t.RequestRate, t.OutputRate, ttft.Median, ttft.P99, tpot.Median, tpot.P99, itl.P99, e2el.Median, e2el.P99} {
			fmt.Fprintf(out, "%s\t", decimal(x))
		}
		fmt.Fprintln(out)
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write the table: %w", err)
	}
	w.WriteString("times in ms\n")
	if unreached {
		w.WriteString("!: never reached, so the figures are those of a lower concurrency\n")
	}
	return nil
}
