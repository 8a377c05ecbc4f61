package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Advice holds the values of the gauges about the ratio of the pools, read at each scrape.
type Advice struct {
	// Loads and Balanced are by role. What is not known is left out.
	Loads    map[string]float64
	Balanced map[string]int
	Prices   map[string]Price // by work
	Reuse    float64          // below 0: not known
	Plans    []Plan           // for engines without a role
}

// Plan is how many engines without a role only prefill, and how many do the rest.
type Plan struct {
	Model           string // empty where all engines serve the same
	Prefill, Decode int
	Changes         int
	Gain            float64
}

// Price is what a leg costs in seconds: a fixed part, and a part for each token. Error is the median
// error of the last legs as a part of the price; nil: not known.
type Price struct {
	Fixed, PerToken float64
	Error           *float64
}

var (
	poolLoadDesc   = prometheus.NewDesc("xpyd_pool_load_ratio", "Share of the pool that the traffic of the last 15 minutes kept busy.", []string{"role"}, nil)
	balancedDesc   = prometheus.NewDesc("xpyd_pool_balanced_backends", "Backends that the role would have if the same engines were split to suit the traffic of the last 15 minutes.", []string{"role"}, nil)
	reuseDesc      = prometheus.NewDesc("xpyd_reuse_ratio", "Share of the prompt tokens of the last 15 minutes that decode engines pulled from prefill engines, by their own metrics.", nil, nil)
	perTokenDesc   = prometheus.NewDesc("xpyd_price_per_token_seconds", "Measured time for each token of a prefill, a transfer to decode, or a prefill on decode (local).", []string{"work"}, nil)
	perLegDesc     = prometheus.NewDesc("xpyd_price_per_leg_seconds", "Fixed part of the time of a prefill, a transfer, or a prefill on decode (local), as measured.", []string{"work"}, nil)
	priceErrorDesc = prometheus.NewDesc("xpyd_price_error_ratio", "Median error of the price over the last 32 legs, as a share of the price.", []string{"work"}, nil)
	planDesc       = prometheus.NewDesc("xpyd_plan_engines", "Engines without a role that by the plan in force only prefill (prefill), or serve all else (decode). model is empty where all engines serve the same.", []string{"model", "role"}, nil)
	changesDesc    = prometheus.NewDesc("xpyd_plan_changes_total", "How often the plan for engines without a role became another one.", []string{"model"}, nil)
	gainDesc       = prometheus.NewDesc("xpyd_plan_gain_ratio", "Part of the time of a whole answer that the plan should save, beside all engines without a role serving whole, or if they do, beside the best number that prefill.", []string{"model"}, nil)
)

// WatchAdvice adds the gauges. It is called once.
func (m *Metrics) WatchAdvice(read func() Advice) {
	m.registry.MustRegister(adviceCollector{read})
}

type adviceCollector struct{ read func() Advice }

func (adviceCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- poolLoadDesc
	ch <- balancedDesc
	ch <- reuseDesc
	ch <- perTokenDesc
	ch <- perLegDesc
	ch <- priceErrorDesc
	ch <- planDesc
	ch <- changesDesc
	ch <- gainDesc
}

func (c adviceCollector) Collect(ch chan<- prometheus.Metric) {
	a := c.read()
	send := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for role, load := range a.Loads {
		send(poolLoadDesc, load, role)
	}
	for role, n := range a.Balanced {
		send(balancedDesc, float64(n), role)
	}
	if a.Reuse >= 0 {
		ch <- prometheus.MustNewConstMetric(reuseDesc, prometheus.GaugeValue, a.Reuse)
	}
	for _, p := range a.Plans {
		send(planDesc, float64(p.Prefill), p.Model, "prefill")
		send(planDesc, float64(p.Decode), p.Model, "decode")
		send(gainDesc, p.Gain, p.Model)
		ch <- prometheus.MustNewConstMetric(changesDesc, prometheus.CounterValue, float64(p.Changes), p.Model)
	}
	for work, p := range a.Prices {
		send(perTokenDesc, p.PerToken, work)
		send(perLegDesc, p.Fixed, work)
		if p.Error != nil {
			send(priceErrorDesc, *p.Error, work)
		}
	}
}

// Decisions counts the paths taken so far, by path and reason. It leaves out counts of 0.
func (m *Metrics) Decisions() map[string]map[string]int64 {
	all := map[string]map[string]int64{}
	for i, c := range m.decisions.by {
		var v dto.Metric
		if c.Write(&v) != nil || v.GetCounter().GetValue() == 0 {
			continue
		}
		path, reason := m.decisions.names(i)
		if all[path] == nil {
			all[path] = map[string]int64{}
		}
		all[path][reason] = int64(v.GetCounter().GetValue())
	}
	return all
}
