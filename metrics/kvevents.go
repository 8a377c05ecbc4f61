package metrics

import "github.com/prometheus/client_golang/prometheus"

// CacheNews is what is known of the estimate of an engine's prefix cache: how wrong it was, and what the engine's KV events
// have brought.
type CacheNews struct {
	Told, Over, Under int64 // tokens of prompts whose answers said what was cached, and by how many the estimate was off
	// Listed says that the engine's events come. The others are 0 if none have come.
	Listed                           bool
	Batches, Missed, Blocks, Learned int64
}

var (
	estimateToldDesc  = prometheus.NewDesc("xpyd_prefix_estimate_told_tokens_total", "Tokens of the prompts whose prefill answers said how much of them was in the engine's cache.", []string{"role", "backend"}, nil)
	estimateErrorDesc = prometheus.NewDesc("xpyd_prefix_estimate_error_tokens_total", "Tokens of these prompts that xpyd expected in the engine's cache and that were not there (side over), and that were there and not expected (side under).", []string{"role", "backend", "side"}, nil)

	eventsUpDesc      = prometheus.NewDesc("xpyd_kv_events_up", "1 while the engine's KV events come. Only where they have ever come.", []string{"role", "backend"}, nil)
	eventsBatchesDesc = prometheus.NewDesc("xpyd_kv_events_batches_total", "Batches of KV events taken in.", []string{"role", "backend"}, nil)
	eventsMissedDesc  = prometheus.NewDesc("xpyd_kv_events_missed_total", "Batches of KV events that were lost or could not be read. After each of them, xpyd forgets which blocks the engine has said it has.", []string{"role", "backend"}, nil)
	eventsBlocksDesc  = prometheus.NewDesc("xpyd_kv_events_blocks", "KV blocks that the engine has, as its events say and as far as routing.kv_events_memory has room.", []string{"role", "backend"}, nil)
	eventsLearnedDesc = prometheus.NewDesc("xpyd_kv_events_learned_total", "Prompts whose blocks xpyd has found among the KV events.", []string{"role", "backend"}, nil)
)

// describeCacheNews lists the series.
func describeCacheNews() []*prometheus.Desc {
	return []*prometheus.Desc{estimateToldDesc, estimateErrorDesc, eventsUpDesc, eventsBatchesDesc, eventsMissedDesc, eventsBlocksDesc, eventsLearnedDesc}
}

func (n *CacheNews) collect(ch chan<- prometheus.Metric, role, url string) {
	send := func(d *prometheus.Desc, kind prometheus.ValueType, v int64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, kind, float64(v), append([]string{role, url}, labels...)...)
	}
	if n.Told > 0 {
		send(estimateToldDesc, prometheus.CounterValue, n.Told)
		send(estimateErrorDesc, prometheus.CounterValue, n.Over, "over")
		send(estimateErrorDesc, prometheus.CounterValue, n.Under, "under")
	}
	if n.Listed || n.Batches > 0 {
		send(eventsUpDesc, prometheus.GaugeValue, int64(flag(n.Listed)))
		send(eventsBatchesDesc, prometheus.CounterValue, n.Batches)
		send(eventsMissedDesc, prometheus.CounterValue, n.Missed)
		send(eventsBlocksDesc, prometheus.GaugeValue, n.Blocks)
		send(eventsLearnedDesc, prometheus.CounterValue, n.Learned)
	}
}
