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
