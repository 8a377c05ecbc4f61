package engines

import (
	"testing"

	"xpyd/router"
)

// vLLM's page has a line for each data-parallel rank. A rank's load is its own line, and a whole
// engine's is the sum.
func TestPageOfARank(t *testing.T) {
	page := []byte("process_start_time_seconds 5\n" +
		"vllm:num_requests_running{engine=\"0\",model_name=\"m\"} 1\nvllm:num_requests_running{engine=\"1\",model_name=\"m\"} 4\n" +
		"vllm:num_requests_waiting{engine=\"0\"} 0\nvllm:num_requests_waiting{model_name=\"m\",engine=\"1\"} 2\n" +
		"vllm:kv_cache_usage_perc{engine=\"0\"} 0.25\nvllm:kv_cache_usage_perc{engine=\"1\"} 0.5\n")
	for rank, want := range map[int][2]int64{router.NoRank: {5, 2}, 0: {1, 0}, 1: {4, 2}} {
		e, err := parsePage(page, rank)
		if err != nil || e.Running != want[0] || e.Waiting != want[1] || e.Started != 5 {
			t.Errorf("rank %d: %d running, %d waiting, started %v, %v", rank, e.Running, e.Waiting, e.Started, err)
		}
	}
	if _, err := parsePage(page, 2); err == nil {
		t.Error("a rank that the engine does not have has a load")
	}
}

// A rank without a request yet may have no gauge. Those of its neighbour are not its own.
func TestPageOfAFreshRank(t *testing.T) {
	page := []byte("vllm:num_requests_running{engine=\"1\"} 4\nvllm:num_requests_waiting{engine=\"1\"} 2\n" +
		"vllm:kv_cache_usage_perc{engine=\"1\"} 0.5\nvllm:prompt_tokens_total{engine=\"0\"} 0\nvllm:prompt_tokens_total{engine=\"1\"} 9\n")
	if e, err := parsePage(page, labelOf(page, 0)); err != nil || e.Running != 0 || e.Waiting != 0 || e.KVUsage != 0 {
		t.Errorf("rank 0: %d running, %d waiting, %v used, %v", e.Running, e.Waiting, e.KVUsage, err)
	}
	if e, err := parsePage(page, labelOf(page, 1)); err != nil || e.Running != 4 {
		t.Errorf("rank 1: %d running, %v", e.Running, err)
	}
}

// Servers that share their ranks count them together on their pages, and each by itself where a request names one.
func TestPageOfARankAmongServers(t *testing.T) {
	page := []byte("vllm:num_requests_running{engine=\"10\"} 1\nvllm:num_requests_running{engine=\"9\"} 4\n" +
		"vllm:num_requests_waiting{engine=\"9\"} 0\nvllm:num_requests_waiting{engine=\"10\"} 2\n" +
		"vllm:kv_cache_usage_perc{engine=\"9\"} 0.25\nvllm:kv_cache_usage_perc{engine=\"10\"} 0.5\n")
	for rank, want := range [][2]int64{{4, 0}, {1, 2}} {
		e, err := parsePage(page, labelOf(page, rank))
		if err != nil || e.Running != want[0] || e.Waiting != want[1] {
			t.Errorf("rank %d: %d running, %d waiting, %v", rank, e.Running, e.Waiting, err)
		}
	}
	if _, err := parsePage(page, labelOf(page, 2)); err == nil {
		t.Error("a rank that the server does not have has a load")
	}
}

// Each rank has its counters from the start, and may get its gauges with its first request. A page of an engine without
// ranks has one.
func TestRanksOnAPage(t *testing.T) {
	for page, want := range map[string]int{
		"":                                0,
		"vllm:num_requests_running 3.0\n": 0,
		"# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{engine=\"0\",model_name=\"m\"} 0.0\n":                                                         1,
		"vllm:num_requests_running{engine=\"0\"} 0\nvllm:num_requests_running{model_name=\"m\",engine=\"11\"} 0\nvllm:num_requests_waiting{engine=\"12\"} 0\n":           2,
		"vllm:num_requests_running{engine=\"0\",model_name=\"a\"} 0\nvllm:num_requests_running{engine=\"0\",model_name=\"b\"} 0\nvllm:num_requests_running{engine=\"1\"": 2,
		"vllm:prompt_tokens_total{engine=\"0\"} 0.0\nvllm:prompt_tokens_total{engine=\"1\"} 0.0\n":                                                                       2,
		"vllm:num_requests_running{engine=\"1\"} 1.0\nvllm:prompt_tokens_total{engine=\"0\"} 0.0\nvllm:prompt_tokens_total{engine=\"1\"} 9.0\n":                          2,
	} {
		if got := len(RanksOn([]byte(page))); got != want {
			t.Errorf("%d ranks, want %d, on %q", got, want, page)
		}
	}
}
