package plot

import (
	"fmt"

	"xpyd/bench/result"
)

// mostSteps is the most points that a distribution has.
const mostSteps = 200

// Distribution shows how a run's latencies are spread: the share of them up to each latency.
func Distribution(r *result.Run) Figure {
	f := Figure{Name: "distribution", Note: fmt.Sprintf("%d whole answers", r.Totals.Completed), Width: 900, Height: 300}
	for _, m := range []struct{ metric, name, of string }{
		{result.TTFT, "Time to First Token", "Share of answers"}, {result.ITL, "Inter-token Latency", "Share of gaps"},
		{result.TPOT, "Time per Output Token", "Share of answers"}, {result.E2EL, "End-to-end Latency", "Share of answers"},
	} {
		v := r.Values(m.metric)
		if len(v) == 0 {
			continue
		}
		l := line{bare: true}
		for i := range min(len(v), mostSteps) + 1 {
			share := float64(i) / float64(min(len(v), mostSteps))
			x := v.Percentile(share * 100)
			l.points = append(l.points, point{x: x, xMin: x, xMax: x, y: share, yMin: share, yMax: share})
		}
		f.panels = append(f.panels, panel{title: m.name, x: "ms", y: m.of, lines: []line{l}})
	}
	return f
}
