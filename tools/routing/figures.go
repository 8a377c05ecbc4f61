package routing

import (
	"math"
	"slices"
	"time"

	"xpyd/tools/report"
)

type metric = report.Metric

const (
	hits           metric = "prefix hits %"
	ttft50         metric = "TTFT p50 ms"
	ttft90         metric = "TTFT p90 ms"
	ttft99         metric = "TTFT p99 ms"
	tpot90         metric = "time per further token p90 ms"
	tokensS        metric = "tokens/s"
	imbalance      metric = "imbalance"
	direct         metric = "to D alone %"
	failed         metric = "errors"
	late           metric = "sent late p99 ms"
	computedTokens metric = "computed tokens"
	ttftThen       metric = "TTFT p90 ms from 60 s after the change"
	splitBefore    metric = "long prompts split before the change %"
	splitThen      metric = "long prompts split from 60 s after it %"
)

// metrics are all, in the order of the tables.
func metrics() []metric {
	return []metric{ttft90, ttft50, ttft99, hits, tokensS, imbalance, tpot90, direct, failed, ttftThen, splitBefore, splitThen, late, computedTokens}
}

// figures has what one measurement shows. What it does not show is missing.
type figures map[metric]float64

// putTTFT sorts the times for the median and the 90th and 99th percentile.
func (f figures) putTTFT(times []time.Duration) {
	slices.Sort(times)
	f[ttft50], f[ttft90], f[ttft99] = percentile(times, 50), percentile(times, 90), percentile(times, 99)
}

// percentile returns a percentile in ms.
func percentile(sorted []time.Duration, p float64) float64 {
	return report.Percentile(sorted, p, time.Millisecond)
}

// ratio returns NaN if there is nothing to compare with.
func ratio(of, to float64) float64 {
	if to == 0 {
		return math.NaN()
	}
	return of / to
}
