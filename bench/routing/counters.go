package routing

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"

	"xpyd/bench/process"
)

// counters are what an engine says of the prompts that it has had.
type counters struct {
	computed float64 // tokens, neither out of its cache nor from another engine
}

// Names of the counters, as in vLLM.
const (
	bySource     = "vllm:prompt_tokens_by_source_total"
	computedHere = `source="local_compute"`
)

// readCounters reads an engine's /metrics. What it does not hold is NaN.
func readCounters(text io.Reader) (counters, error) {
	c := counters{computed: math.NaN()}
	lines := bufio.NewScanner(text)
	for lines.Scan() {
		name, rest, _ := strings.Cut(lines.Text(), "{")
		labels, value, ok := strings.Cut(rest, "} ")
		if !ok || name != bySource || !strings.Contains(labels, computedHere) {
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return c, fmt.Errorf("read %s: %w", name, err)
		}
		c.computed = v
	}
	if err := lines.Err(); err != nil {
		return c, fmt.Errorf("read metrics: %w", err)
	}
	return c, nil
}

func askCounters(ctx context.Context, addr string) (counters, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/metrics", nil)
	if err != nil {
		return counters{}, fmt.Errorf("ask engine %s for its metrics: %w", addr, err)
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return counters{}, fmt.Errorf("ask engine %s for its metrics: %w", addr, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return counters{}, fmt.Errorf("ask engine %s for its metrics: %s", addr, resp.Status)
	}
	return readCounters(resp.Body)
}

// census is all engines' counters at one time.
type census struct{ prefill, decode []counters }

func takeCensus(ctx context.Context, pools process.Pools) (c census, err error) {
	for _, p := range []struct {
		addrs []string
		to    *[]counters
	}{{pools.Prefill, &c.prefill}, {pools.Decode, &c.decode}} {
		for _, addr := range p.addrs {
			one, err := askCounters(ctx, addr)
			if err != nil {
				return c, err
			}
			*p.to = append(*p.to, one)
		}
	}
	return c, nil
}

// computedSince is the tokens that each engine of a pool has computed since an earlier census.
func computedSince(now, then []counters) []float64 {
	all := make([]float64, len(now))
	for i := range now {
		all[i] = now[i].computed - then[i].computed
	}
	return all
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
	prefill, decode := computedSince(now.prefill, then.prefill), computedSince(now.decode, then.decode)
	f[computedTokens] = sum(prefill) + sum(decode)
	f[imbalance] = mostToMean(prefill)
	if sum(decode) > sum(prefill) {
		f[imbalance] = mostToMean(decode)
	}
}
