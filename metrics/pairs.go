package metrics

import "github.com/prometheus/client_golang/prometheus"

// PairLoad is how often one prefill backend handed blocks to one decode backend.
type PairLoad struct {
	Prefill, Decode string
	OK, Failed      int64
	Banned          bool
}

var (
	transfersDesc  = prometheus.NewDesc("xpyd_pair_transfers_total", "Transfers of KV blocks from a prefill to a decode backend, by result. Pairs beyond the first 1,024, and pairs with a backend that has left, count as other.", []string{"prefill", "decode", "result"}, nil)
	pairBannedDesc = prometheus.NewDesc("xpyd_pair_banned", "1 while the pair gets no requests because its transfers failed.", []string{"prefill", "decode"}, nil)
)

// WatchPairs adds the metrics of pairs, read at each scrape. It is called once.
func (m *Metrics) WatchPairs(read func() []PairLoad) {
	m.registry.MustRegister(pairCollector{read})
}

type pairCollector struct{ read func() []PairLoad }

func (pairCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- transfersDesc
	ch <- pairBannedDesc
}

func (c pairCollector) Collect(ch chan<- prometheus.Metric) {
	for _, p := range c.read() {
		if p.Prefill == "" {
			p.Prefill, p.Decode = other, other
		} else {
			ch <- prometheus.MustNewConstMetric(pairBannedDesc, prometheus.GaugeValue, flag(p.Banned), p.Prefill, p.Decode)
		}
		ch <- prometheus.MustNewConstMetric(transfersDesc, prometheus.CounterValue, float64(p.OK), p.Prefill, p.Decode, result(true))
		ch <- prometheus.MustNewConstMetric(transfersDesc, prometheus.CounterValue, float64(p.Failed), p.Prefill, p.Decode, result(false))
	}
}
