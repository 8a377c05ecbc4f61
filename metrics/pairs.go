package metrics

import "github.com/prometheus/client_golang/prometheus"

// PairLoad is how often one prefill backend handed blocks to one decode backend.
type PairLoad struct {
	Prefill, Decode string
	OK, Failed      int64
	Banned          bool
	// Timed are the transfers whose first token was seen, which took Seconds together.
	Timed   int64
	Seconds float64
}

var (
	transfersDesc  = prometheus.NewDesc("xpyd_pair_transfers_total", "Transfers of KV blocks from a prefill to a decode backend, by result. Pairs beyond the first 1,024, and pairs with a backend that has left, count as other.", []string{"prefill", "decode", "result"}, nil)
	timedDesc      = prometheus.NewDesc("xpyd_pair_transfers_timed_total", "Transfers whose time xpyd_pair_transfer_seconds_total has: those of streams.", []string{"prefill", "decode"}, nil)
	pairTimeDesc   = prometheus.NewDesc("xpyd_pair_transfer_seconds_total", "Time from the decode request until the first event of a stream that pulled its blocks: the wait, the transfer and one token. Pairs count as in xpyd_pair_transfers_total.", []string{"prefill", "decode"}, nil)
	pairBannedDesc = prometheus.NewDesc("xpyd_pair_banned", "1 while the pair gets no requests because its transfers failed.", []string{"prefill", "decode"}, nil)
)

// WatchPairs adds the metrics of pairs, read at each scrape. It is called once.
func (m *Metrics) WatchPairs(read func() []PairLoad) {
	m.registry.MustRegister(pairCollector{read})
}

type pairCollector struct{ read func() []PairLoad }

func (pairCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- transfersDesc
	ch <- pairTimeDesc
	ch <- timedDesc
	ch <- pairBannedDesc
}

func (c pairCollector) Collect(ch chan<- prometheus.Metric) {
	for _, p := range c.read() {
		if p.Prefill == "" {
			p.Prefill, p.Decode = other, other
		} else {
			ch <- prometheus.MustNewConstMetric(pairBannedDesc, prometheus.GaugeValue, flag(p.Banned), p.Prefill, p.Decode)
		}
		ch <- prometheus.MustNewConstMetric(timedDesc, prometheus.CounterValue, float64(p.Timed), p.Prefill, p.Decode)
		ch <- prometheus.MustNewConstMetric(pairTimeDesc, prometheus.CounterValue, p.Seconds, p.Prefill, p.Decode)
		ch <- prometheus.MustNewConstMetric(transfersDesc, prometheus.CounterValue, float64(p.OK), p.Prefill, p.Decode, result(true))
		ch <- prometheus.MustNewConstMetric(transfersDesc, prometheus.CounterValue, float64(p.Failed), p.Prefill, p.Decode, result(false))
	}
}
