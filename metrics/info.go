package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// ConfigInfo is what dashboards tell processes apart by, and what alerts compare with. An objective of 0 is none.
type ConfigInfo struct {
	Connector, Mode, PrefillPolicy, DecodePolicy string
	TTFT, TPOT                                   time.Duration
	Errors                                       float64
}

var (
	configDesc      = prometheus.NewDesc("xpyd_config_info", "1, labelled with the configuration in force.", []string{"connector", "pd_mode", "prefill_policy", "decode_policy"}, nil)
	goalTTFTDesc    = prometheus.NewDesc("xpyd_objective_ttft_seconds", "objective.ttft: what nine of ten streams should reach.", nil, nil)
	goalTPOTDesc    = prometheus.NewDesc("xpyd_objective_time_per_output_token_seconds", "objective.tpot: what nine of ten streams should reach.", nil, nil)
	goalErrorsDesc  = prometheus.NewDesc("xpyd_objective_error_ratio", "objective.errors: the share of the completions that may fail.", nil, nil)
	certificateDesc = prometheus.NewDesc("xpyd_certificate_expiry_timestamp_seconds", "When the first certificate of the section's chain expires, in Unix time.", []string{"section"}, nil)
)

// WatchConfig adds the metrics of the configuration in force, read at each scrape. expiries returns by
// section when the certificates end, in Unix time. It is called once.
func (m *Metrics) WatchConfig(read func() ConfigInfo, expiries func() map[string]int64) {
	m.registry.MustRegister(configCollector{read, expiries})
}

// WatchStateFile adds whether the last change could be kept in the state file, read at each scrape. It is called once.
func (m *Metrics) WatchStateFile(written func() bool) {
	m.gauge("xpyd_state_file_written", "0 while changes over the admin port are refused because the last one could not be written into state_file.", func() float64 { return flag(written()) })
}

type configCollector struct {
	read     func() ConfigInfo
	expiries func() map[string]int64
}

func (configCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- configDesc
	ch <- goalTTFTDesc
	ch <- goalTPOTDesc
	ch <- goalErrorsDesc
	ch <- certificateDesc
}

func (c configCollector) Collect(ch chan<- prometheus.Metric) {
	i := c.read()
	ch <- prometheus.MustNewConstMetric(configDesc, prometheus.GaugeValue, 1, i.Connector, i.Mode, i.PrefillPolicy, i.DecodePolicy)
	for desc, goal := range map[*prometheus.Desc]float64{goalTTFTDesc: i.TTFT.Seconds(), goalTPOTDesc: i.TPOT.Seconds(), goalErrorsDesc: i.Errors} {
		if goal > 0 {
			ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, goal)
		}
	}
	for section, end := range c.expiries() {
		ch <- prometheus.MustNewConstMetric(certificateDesc, prometheus.GaugeValue, float64(end), section)
	}
}
