package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// BackendLoad is one backend's reading for the gauges.
type BackendLoad struct {
	Role, URL string
	Connector string // of the engine, where its entry names one
	InFlight  int64
	Up        bool
	Ready     bool // an operator has neither drained nor disabled it
	Ejected   bool
	// Wedged: the engine owes answers and gives none. Speed is a slow engine's part of its peers' speed, and 1 for others.
	Wedged bool
	Speed  float64
	// NothingPulled: a decode engine answers two-leg requests and pulls nothing.
	NothingPulled bool
	// Elsewhere estimates the requests that others have on the engine.
	Elsewhere float64
	// EngineAge is the age of the engine's last report of itself. It is below 0 if there was none.
	EngineAge time.Duration
	Engine    *EngineLoad // nil if the last report is too old, or there was none
	// EstimatedQueries are the tokens of the prompts sent there. EstimatedHits are those that were
	// expected in its prefix cache. Both are 0 where nothing is remembered.
	EstimatedQueries, EstimatedHits int64
	Cache                           CacheNews
}

// EngineLoad is what an engine reported of itself. A number below 0 is not known.
type EngineLoad struct {
	Running, Waiting          int64
	KVUsage                   float64
	PrefixQueries, PrefixHits int64
	Restarts                  int64
	// Transfers are pulls of blocks from other engines.
	Transfers, TransferBytes int64
	TransferSeconds          float64
	TransferLeast            float64 // bytes a second, kv.transfer_gbps; 0: not known
}

// backendCollector reads the router when scraped, so that no gauge can drift from it.
type backendCollector struct{ read func() []BackendLoad }

var (
	inFlightDesc  = prometheus.NewDesc("xpyd_in_flight", "Requests in flight, by role and backend.", []string{"role", "backend"}, nil)
	upDesc        = prometheus.NewDesc("xpyd_backend_up", "1 while the health checks find the backend up (health.fall, health.rise).", []string{"role", "backend"}, nil)
	readyDesc     = prometheus.NewDesc("xpyd_backend_ready", "1 unless an operator has drained or disabled the backend.", []string{"role", "backend"}, nil)
	nothingDesc   = prometheus.NewDesc("xpyd_backend_nothing_pulled", "1 while the decode backend answers two-leg requests and its engine pulls no blocks for them.", []string{"role", "backend"}, nil)
	connectorDesc = prometheus.NewDesc("xpyd_backend_connector_info", "1, labelled with the connector of a backend that names its own.", []string{"role", "backend", "connector"}, nil)
	ejectedDesc   = prometheus.NewDesc("xpyd_backend_ejected", "1 while the backend gets no requests because of its failures.", []string{"role", "backend"}, nil)

	wedgedDesc = prometheus.NewDesc("xpyd_backend_wedged", "1 while the engine owes answers and gives none, nor answers xpyd's own request of one token.", []string{"role", "backend"}, nil)
	speedDesc  = prometheus.NewDesc("xpyd_backend_speed_ratio", "Speed of a slow engine as a part of its peers', by which it gets work. Other engines have no series.", []string{"role", "backend"}, nil)

	// What an engine does not report, or reported too long ago, has no series.
	elsewhereDesc        = prometheus.NewDesc("xpyd_engine_requests_elsewhere", "Estimate of the requests on the engine that this process has not sent.", []string{"role", "backend"}, nil)
	engineAgeDesc        = prometheus.NewDesc("xpyd_engine_state_age_seconds", "Age of the last reading of the engine's own metrics.", []string{"role", "backend"}, nil)
	runningDesc          = prometheus.NewDesc("xpyd_engine_requests_running", "Requests that run on the engine, of all its clients, by its own metrics.", []string{"role", "backend"}, nil)
	waitingDesc          = prometheus.NewDesc("xpyd_engine_requests_waiting", "Requests that wait on the engine, of all its clients, by its own metrics.", []string{"role", "backend"}, nil)
	kvUsageDesc          = prometheus.NewDesc("xpyd_engine_kv_usage_ratio", "Share of the engine's KV blocks in use, 0 to 1, by its own metrics.", []string{"role", "backend"}, nil)
	queriesDesc          = prometheus.NewDesc("xpyd_engine_prefix_cache_queries_total", "Prompt tokens looked up in the engine's prefix cache, by its own metrics.", []string{"role", "backend"}, nil)
	estimatedQueriesDesc = prometheus.NewDesc("xpyd_prefix_cache_estimated_queries_total", "Estimated tokens of the prompts sent to the engine.", []string{"role", "backend"}, nil)
	estimatedHitsDesc    = prometheus.NewDesc("xpyd_prefix_cache_estimated_hits_total", "Estimated tokens of the prompts sent to the engine that xpyd expected in its prefix cache.", []string{"role", "backend"}, nil)
	restartsDesc         = prometheus.NewDesc("xpyd_engine_restarts_total", "Restarts of the engine that xpyd noticed, by its own metrics.", []string{"role", "backend"}, nil)
	pullsDesc            = prometheus.NewDesc("xpyd_engine_transfers_total", "Pulls of KV blocks by the engine, by its own metrics.", []string{"role", "backend"}, nil)
	pullSecondsDesc      = prometheus.NewDesc("xpyd_engine_transfer_seconds_total", "Time that the pulls took, by the engine's own metrics.", []string{"role", "backend"}, nil)
	pullBytesDesc        = prometheus.NewDesc("xpyd_engine_transfer_bytes_total", "Bytes that the pulls moved, by the engine's own metrics.", []string{"role", "backend"}, nil)
	pullLeastDesc        = prometheus.NewDesc("xpyd_engine_transfer_least_bytes_per_second", "kv.transfer_gbps, in bytes: the speed that pulls reach at least on the link that they should take. Only for decode engines that count pulls.", []string{"role", "backend"}, nil)
	hitsDesc             = prometheus.NewDesc("xpyd_engine_prefix_cache_hits_total", "Prompt tokens found in the engine's prefix cache, by its own metrics.", []string{"role", "backend"}, nil)
)

func (c *backendCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{inFlightDesc, upDesc, readyDesc, ejectedDesc, wedgedDesc, speedDesc, connectorDesc, nothingDesc, elsewhereDesc, engineAgeDesc, runningDesc, waitingDesc, kvUsageDesc, queriesDesc, hitsDesc, restartsDesc, pullsDesc, pullSecondsDesc, pullBytesDesc, pullLeastDesc, estimatedQueriesDesc, estimatedHitsDesc} {
		ch <- d
	}
	for _, d := range describeCacheNews() {
		ch <- d
	}
}

func (c *backendCollector) Collect(ch chan<- prometheus.Metric) {
	for _, b := range c.read() {
		send := func(d *prometheus.Desc, kind prometheus.ValueType, v float64) {
			ch <- prometheus.MustNewConstMetric(d, kind, v, b.Role, b.URL)
		}
		send(inFlightDesc, prometheus.GaugeValue, float64(b.InFlight))
		send(upDesc, prometheus.GaugeValue, flag(b.Up))
		send(readyDesc, prometheus.GaugeValue, flag(b.Ready))
		send(ejectedDesc, prometheus.GaugeValue, flag(b.Ejected))
		send(wedgedDesc, prometheus.GaugeValue, flag(b.Wedged))
		if b.Speed < 1 {
			send(speedDesc, prometheus.GaugeValue, b.Speed)
		}
		if b.Connector != "" {
			ch <- prometheus.MustNewConstMetric(connectorDesc, prometheus.GaugeValue, 1, b.Role, b.URL, b.Connector)
		}
		if b.Role == "decode" {
			send(nothingDesc, prometheus.GaugeValue, flag(b.NothingPulled))
		}
		if b.EngineAge >= 0 {
			send(engineAgeDesc, prometheus.GaugeValue, b.EngineAge.Seconds())
		}
		if b.EstimatedQueries > 0 {
			send(estimatedQueriesDesc, prometheus.CounterValue, float64(b.EstimatedQueries))
			send(estimatedHitsDesc, prometheus.CounterValue, float64(b.EstimatedHits))
		}
		b.Cache.collect(ch, b.Role, b.URL)
		if b.Engine != nil {
			send(elsewhereDesc, prometheus.GaugeValue, b.Elsewhere)
			b.Engine.collect(send)
			if b.Role == "decode" && b.Engine.TransferLeast > 0 && b.Engine.TransferBytes >= 0 {
				send(pullLeastDesc, prometheus.GaugeValue, b.Engine.TransferLeast)
			}
		}
	}
}

func (e *EngineLoad) collect(send func(*prometheus.Desc, prometheus.ValueType, float64)) {
	known := func(d *prometheus.Desc, kind prometheus.ValueType, v float64) {
		if v >= 0 {
			send(d, kind, v)
		}
	}
	known(runningDesc, prometheus.GaugeValue, float64(e.Running))
	known(waitingDesc, prometheus.GaugeValue, float64(e.Waiting))
	known(kvUsageDesc, prometheus.GaugeValue, e.KVUsage)
	known(queriesDesc, prometheus.CounterValue, float64(e.PrefixQueries))
	known(hitsDesc, prometheus.CounterValue, float64(e.PrefixHits))
	known(restartsDesc, prometheus.CounterValue, float64(e.Restarts))
	known(pullsDesc, prometheus.CounterValue, float64(e.Transfers))
	known(pullSecondsDesc, prometheus.CounterValue, e.TransferSeconds)
	known(pullBytesDesc, prometheus.CounterValue, float64(e.TransferBytes))
}

func flag(on bool) float64 {
	if on {
		return 1
	}
	return 0
}
