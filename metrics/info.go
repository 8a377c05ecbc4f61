package metrics

import "github.com/prometheus/client_golang/prometheus"

// ConfigInfo is what dashboards tell processes apart by.
type ConfigInfo struct{ Connector, Mode, PrefillPolicy, DecodePolicy string }

var (
	configDesc      = prometheus.NewDesc("xpyd_config_info", "1, labelled with the configuration in force.", []string{"connector", "pd_mode", "prefill_policy", "decode_policy"}, nil)
	certificateDesc = prometheus.NewDesc("xpyd_certificate_expiry_timestamp_seconds", "When the first certificate of the section's chain expires, in Unix time.", []string{"section"}, nil)
)

// WatchConfig adds the metrics of the configuration in force, read at each scrape. expiries returns by
// section when the certificates end, in Unix time. It is called once.
func (m *Metrics) WatchConfig(read func() ConfigInfo, expiries func() map[string]int64) {
	m.registry.MustRegister(configCollector{read, expiries})
}

type configCollector struct {
	read     func() ConfigInfo
	expiries func() map[string]int64
}

func (configCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- configDesc
	ch <- certificateDesc
}

func (c configCollector) Collect(ch chan<- prometheus.Metric) {
	i := c.read()
	ch <- prometheus.MustNewConstMetric(configDesc, prometheus.GaugeValue, 1, i.Connector, i.Mode, i.PrefillPolicy, i.DecodePolicy)
	for section, end := range c.expiries() {
		ch <- prometheus.MustNewConstMetric(certificateDesc, prometheus.GaugeValue, float64(end), section)
	}
}
