package sim_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"xpyd/sim"
)

// TestSimCountsPromptsAsTheRecordedEngine repeats what real engines were asked up to their
// /metrics, and compares the counters of prompt tokens. The sim's tokens are not the model's, so it
// compares shares of the prompts' tokens, request_prompt_tokens_sum. The recordings hold no prompt
// twice. tools/e2e checks what a hit counts.
func TestSimCountsPromptsAsTheRecordedEngine(t *testing.T) {
	versions := recordedVersions(t)
	for _, version := range slices.Sorted(maps.Keys(versions)) {
		t.Run(version, func(t *testing.T) {
			o := sim.Options{Version: version, Model: "tiny", BlockSize: 32, NumBlocks: 1024, MaxModelLen: 2048}
			var es engines
			es.prefill, es.decode = pair(t, o)
			o.NoPrefixCaching = true // it was recorded like this
			es.plain = start(t, o)
			real := map[string]map[string]float64{}
			for _, r := range recordings(t, versions[version]) {
				switch {
				case strings.HasSuffix(r.name, "-get-metrics"):
					real[strings.TrimSuffix(r.name, "-get-metrics")] = promptCounters(t, r.answer)
				case r.name == "p-chat", r.name == "p-completions": // the first legs of d-chat and d-completions
				case r.decodes, strings.HasPrefix(r.name, "p-"), strings.HasPrefix(r.name, "plain-co"), strings.HasPrefix(r.name, "plain-chat"):
					es.replay(t, r)
				}
			}
			for name, e := range map[string]*sim.Engine{"p": es.prefill, "d": es.decode, "plain": es.plain} {
				var wrong []string
				for end := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) { // some counters move after the last byte of an answer
					wrong = unlike(real[name], promptCounters(t, exchange(t, e, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close", "")))
					if len(wrong) == 0 || time.Now().After(end) {
						break
					}
				}
				for _, line := range wrong {
					t.Errorf("%s: %s", name, line)
				}
			}
		})
	}
}

const promptSum = "request_prompt_tokens_sum"

// unlike lists how the shares of the counters differ from those that were recorded.
func unlike(recorded, got map[string]float64) (all []string) {
	if len(recorded) < 8 || got[promptSum] == 0 {
		return []string{fmt.Sprintf("counters recorded %v, of the sim %v", recorded, got)}
	}
	for series, want := range recorded {
		if have, is := got[series]; !is || math.Abs(have/got[promptSum]-want/recorded[promptSum]) > 0.005 {
			all = append(all, fmt.Sprintf("%s: %v of %v tokens, recorded %v of %v", series, have, got[promptSum], want, recorded[promptSum]))
		}
	}
	return all
}

// promptCounters returns the samples of an exposition that count prompt tokens, by name and source.
func promptCounters(t *testing.T, answer string) map[string]float64 {
	t.Helper()
	all := map[string]float64{}
	for line := range strings.Lines(answer) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		name, labels, _ := strings.Cut(strings.TrimPrefix(series, "vllm:"), "{")
		switch name {
		case "prefix_cache_queries_total", "prefix_cache_hits_total", "external_prefix_cache_queries_total",
			"external_prefix_cache_hits_total", "prompt_tokens_total", "prompt_tokens_cached_total", promptSum:
		case "prompt_tokens_by_source_total":
			_, source, _ := strings.Cut(labels, `source="`)
			name += " " + strings.TrimSuffix(source, `"}`)
		default:
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		all[name] = v
	}
	return all
}
