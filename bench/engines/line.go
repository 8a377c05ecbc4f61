package engines

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// line is the line that vLLM logs about a rank every ten seconds: throughput over the interval since
// the last line, and the rates of cache hits since the run began. A figure that the engine does not
// have is "unknown". vLLM leaves out preemptions and the connector where there are none.
func line(rank int, now, last, first values, interval time.Duration) string {
	growth, all := now.since(last), now.since(first)
	prompts := growth[computed]
	if math.IsNaN(prompts) {
		prompts = growth[prompt]
	}
	parts := []string{
		"Avg prompt throughput: " + show("%.1f tokens/s", prompts/interval.Seconds()),
		"Avg generation throughput: " + show("%.1f tokens/s", growth[generated]/interval.Seconds()),
		"Running: " + show("%.0f reqs", now[running]),
		"Waiting: " + show("%.0f reqs", now[waiting]),
	}
	if all[preemptions] > 0 {
		parts = append(parts, show("Preemptions: %.0f", all[preemptions]))
	}
	parts = append(parts,
		"GPU KV cache usage: "+show("%.1f%%", now[usage]*100),
		"Prefix cache hit rate: "+show("%.1f%%", rate(all[hit], all[queried])))
	if all[asked] > 0 {
		parts = append(parts, "External prefix cache hit rate: "+show("%.1f%%", rate(all[pulled], all[asked])))
	}
	return fmt.Sprintf("Engine %03d: %s", rank, strings.Join(parts, ", "))
}

func show(format string, x float64) string {
	if math.IsNaN(x) {
		return "unknown"
	}
	return fmt.Sprintf(format, x)
}

// rate is a percentage. 0 of 0 is 0 %, as vLLM prints it.
func rate(part, whole float64) float64 {
	if whole == 0 && !math.IsNaN(part) {
		return 0
	}
	return part / whole * 100
}
