package routing

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"

	"xpyd/tools/process"
	"xpyd/tools/report"
)

// Names of the counter, as in vLLM.
const (
	bySource     = "vllm:prompt_tokens_by_source_total"
	computedHere = `source="local_compute"`
)

// readComputed finds in an engine's /metrics how many prompt tokens it has computed, that
// came neither out of its cache nor from another engine; NaN if that is not there.
func readComputed(page string) (float64, error) {
	computed := math.NaN()
	for line := range strings.Lines(page) {
		name, rest, _ := strings.Cut(strings.TrimSpace(line), "{")
		labels, value, ok := strings.Cut(rest, "} ")
		if !ok || name != bySource || !strings.Contains(labels, computedHere) {
			continue
		}
		var err error
		if computed, err = strconv.ParseFloat(value, 64); err != nil {
			return computed, fmt.Errorf("read %s: %w", name, err)
		}
	}
	return computed, nil
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
		page, err := process.Get(ctx, "http://"+addr+"/metrics")
		if err != nil {
			return nil, err
		}
		n, err := readComputed(string(page))
		if err != nil {
			return nil, err
		}
		all = append(all, n)
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

// count puts in what the counters between two looks tell.
func (f figures) count(then, now census) {
	prefill, decode := report.Differences(now.prefill, then.prefill), report.Differences(now.decode, then.decode)
	f[computedTokens] = sum(prefill) + sum(decode)
	f[imbalance] = mostToMean(prefill)
	if sum(decode) > sum(prefill) {
		f[imbalance] = mostToMean(decode)
	}
}
