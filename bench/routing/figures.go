package routing

import (
	"math"
	"time"
)

// metric is a figure's name, as in tables and results.json.
type metric string

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

// figures is what one measurement tells; what it does not tell is missing.
type figures map[metric]float64

// put stores the median and the 90th and 99th percentile of sorted times, in ms.
func (f figures) put(sorted []time.Duration, p50, p90, p99 metric) {
	f[p50], f[p90], f[p99] = percentile(sorted, 50), percentile(sorted, 90), percentile(sorted, 99)
}

// percentile is the nearest rank of sorted times, in ms; NaN of none.
func percentile(sorted []time.Duration, p float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return float64(sorted[max(1, rank)-1]) / float64(time.Millisecond)
}

// ratio is NaN where there is nothing to compare with.
func ratio(of, to float64) float64 {
	if to == 0 {
		return math.NaN()
	}
	return of / to
}
