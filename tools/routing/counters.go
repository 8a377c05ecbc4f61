package routing

import (
	"context"
	"math"

	"xpyd/tools/process"
	"xpyd/tools/report"
)

// Names of the counter, as in vLLM.
const (
	bySource     = "vllm:prompt_tokens_by_source_total"
	computedHere = `source="local_compute"`
)

// computed returns how many prompt tokens an engine has computed, which came neither from its cache
// nor from another engine. It is NaN if the engine does not say.
func computed(page process.Page) float64 {
	n, err := page.Sum(bySource, computedHere)
	if err != nil {
		return math.NaN()
	}
	return n
}

// census is what each engine has computed at one time.
type census struct{ prefill, decode []float64 }

func takeCensus(ctx context.Context, pools process.Pools) (c census, err error) {
	if c.prefill, err = askComputed(ctx, pools.Prefill); err == nil {
		c.decode, err = askComputed(ctx, pools.Decode)
	}
	return c, err
}

func askComputed(ctx context.Context, engines []string) (all []float64, err error) {
	for _, addr := range engines {
		page, err := process.PageOf(ctx, "http://"+addr)
		if err != nil {
			return nil, err
		}
		all = append(all, computed(page))
	}
	return all, nil
}

func sum(values []float64) float64 {
	s := 0.0
	for _, v := range values {
		s += v
	}
	return s
}

// count adds what the counters show between two looks.
func (f figures) count(then, now census) {
	prefill, decode := report.Differences(now.prefill, then.prefill), report.Differences(now.decode, then.decode)
	f[computedTokens] = sum(prefill) + sum(decode)
	f[imbalance] = mostToMean(prefill)
	if sum(decode) > sum(prefill) {
		f[imbalance] = mostToMean(decode)
	}
}
