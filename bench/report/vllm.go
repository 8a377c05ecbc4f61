package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"xpyd/bench/result"
)

// The widths of vLLM's block.
const (
	blockWidth = 50
	labelWidth = 40
	valueWidth = 10
)

// block writes lines as vLLM's printer does, trailing blanks included.
type block struct{ w *strings.Builder }

func (b block) title(text, fill string) {
	left := (blockWidth - len(text)) / 2
	fmt.Fprintf(b.w, "%s%s%s\n", strings.Repeat(fill, left), text, strings.Repeat(fill, blockWidth-len(text)-left))
}

func (b block) count(label string, n int) {
	fmt.Fprintf(b.w, "%-*s %-*d\n", labelWidth, label, valueWidth, n)
}

func (b block) figure(label string, x float64) {
	fmt.Fprintf(b.w, "%-*s %-*.2f\n", labelWidth, label, valueWidth, x)
}

// section is one metric's part of the block.
type section struct{ metric, name, header string }

// sections are those of vLLM 0.33, in its order. The last two exist only below a cap.
func sections(r *result.Run) []section {
	all := []section{
		{result.TTFT, "TTFT", "Time to First Token"},
		{result.TPOT, "TPOT", "Time per Output Token (excl. 1st token)"},
		{result.ITL, "ITL", "Inter-token Latency"},
		{result.E2EL, "E2EL", "End-to-end Latency"},
	}
	if r.Config.Concurrency > 0 {
		all = append(all, section{result.Queue, "Client Queue Time", "Client-side Queueing"})
		if r.Config.Rate != nil {
			all = append(all, section{result.E2ELQueue, "E2EL incl. Client Queue", "Queue-inclusive End-to-end Latency"})
		}
	}
	return slices.DeleteFunc(all, func(s section) bool { return !slices.Contains(r.Config.Metrics, s.metric) })
}

// vllmBlock is the block of vllm bench serve 0.32 and 0.33.
func vllmBlock(w *strings.Builder, r *result.Run) error {
	b, t := block{w}, r.Totals
	b.title(" Serving Benchmark Result ", "=")
	b.count("Successful requests:", t.Completed)
	b.count("Failed requests:", t.Failed)
	if r.Config.Concurrency > 0 {
		b.count("Maximum request concurrency:", r.Config.Concurrency)
	}
	if r.Config.Rate != nil {
		b.figure("Request rate configured (RPS):", *r.Config.Rate)
	}
	b.figure("Benchmark duration (s):", float64(r.DurationUS)/1e6)
	b.count("Total input tokens:", t.InputTokens)
	b.count("Total generated tokens:", t.OutputTokens)
	b.figure("Request throughput (req/s):", t.RequestRate)
	if t.GoodRate != nil {
		b.figure("Request goodput (req/s):", *t.GoodRate)
	}
	b.figure("Output token throughput (tok/s):", t.OutputRate)
	if !math.IsNaN(t.PeakOutput) { // older releases of vLLM have not saved the peaks
		b.figure("Peak output token throughput (tok/s):", t.PeakOutput)
		b.figure("Peak concurrent requests:", float64(t.PeakOpen))
	}
	b.figure("Total token throughput (tok/s):", t.TotalRate)
	b.sections(r)
	return nil
}

// seedBlock is the older block. It has no line for failures, so a run with failures gets one.
func seedBlock(w *strings.Builder, r *result.Run) error {
	b, t := block{w}, r.Totals
	b.title(" Serving Benchmark Result ", "=")
	b.count("Successful requests:", t.Completed)
	if t.Failed > 0 {
		b.count("Failed requests:", t.Failed)
	}
	b.figure("Benchmark duration (s):", float64(r.DurationUS)/1e6)
	b.count("Total input tokens:", t.InputTokens)
	b.count("Total generated tokens:", t.OutputTokens)
	b.figure("Request throughput (req/s):", t.RequestRate)
	if t.GoodRate != nil {
		b.figure("Request goodput (req/s):", *t.GoodRate)
	}
	b.figure("Output token throughput (tok/s):", t.OutputRate)
	b.figure("Total Token throughput (tok/s):", t.TotalRate)
	b.sections(r)
	return nil
}

func (b block) sections(r *result.Run) {
	for _, s := range sections(r) {
		v := r.Figures(s.metric)
		b.title(s.header, "-")
		b.figure("Mean "+s.name+" (ms):", v.Mean())
		b.figure("Median "+s.name+" (ms):", v.Median())
		for _, p := range r.Config.Percentiles {
			b.figure("P"+percentile(p)+" "+s.name+" (ms):", v.Percentile(p))
		}
	}
	b.title("", "=")
}
