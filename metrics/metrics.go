// Package metrics holds every metric of the proxy, with its name, its help and its closed label sets.
// It is the only importer of client_golang.
package metrics

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// The bucket edges are vLLM's own, so that panels of engines and proxy can be laid over each other.
var (
	ttftBuckets = []float64{.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560}
	tpotBuckets = []float64{.01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80}
	e2eBuckets  = []float64{.3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680}
)

// Labels are the closed sets of label values that the proxy will use. Its calls name a value by its
// index in the set. Series of counters exist from the start, so that a rate sees the first event. A
// code without a name means no error and has no series.
type Labels struct {
	APIs, Outcomes, Codes, Paths, Reasons, Phases, Ends, OrphanReasons, Legs []string
	Routes                                                                   []string // that are relayed
}

// BackendLoad is one backend's reading for the gauges.
type BackendLoad struct {
	Role, URL string
	InFlight  int64
	Up        bool
	Ejected   bool
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
}

// EngineLoad is what an engine reported of itself. A number below 0 is not known.
type EngineLoad struct {
	Running, Waiting          int64
	KVUsage                   float64
	PrefixQueries, PrefixHits int64
}

// Metrics is the set of one process. All methods are safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry
	labels   Labels

	requests, decisions                         counterPairs
	errors, clientGone, handles, orphans        counters
	legs, legErrors                             *prometheus.CounterVec
	duration, legDuration                       observers
	ttft, tpot                                  *lazyObservers
	handoff                                     prometheus.Observer
	ejections, reloads, warmups                 *prometheus.CounterVec
	reloadOK                                    prometheus.Gauge
	events, panics, loopback, kept, retryDenied prometheus.Counter
	turnedAway, polls, relayed                  *prometheus.CounterVec
	relayTime                                   *prometheus.HistogramVec
}

// New registers everything. backends, queued (by role), pinned, stranded, buffered and held are read
// at each scrape.
func New(version string, l Labels, backends func() []BackendLoad, queued map[string]func() float64, pinned, stranded, buffered, held func() float64) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry(), labels: l}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.registerCompletions()
	m.registerRelayed()
	m.registerProcess()
	for role, read := range queued {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "xpyd_queued", Help: "Requests that wait because all backends of the role are at their cap, or for decode because decode_only.max_share is spent.", ConstLabels: prometheus.Labels{"role": role},
		}, read))
	}
	m.gauge("xpyd_kv_blocks_pinned", "KV blocks of handles that have not ended.", pinned)
	m.gauge("xpyd_kv_blocks_stranded", "KV blocks of lost handles whose lease still runs.", stranded)
	m.gauge("xpyd_request_bytes_buffered", "Request bytes held in memory, charged to limits.body_budget.", buffered)
	m.gauge("xpyd_answer_bytes_buffered", "Answer bytes held in memory, charged to limits.answer_budget.", held)
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "xpyd_build_info", Help: "1, labelled with the version.", ConstLabels: prometheus.Labels{"version": version},
	}, func() float64 { return 1 }))
	m.registry.MustRegister(&backendCollector{read: backends})
	return m
}

// registerCompletions registers what completions, their legs and their handles count.
func (m *Metrics) registerCompletions() {
	l := &m.labels
	requests := m.counterVec("xpyd_requests_total", "Completions ended, by API and outcome.", "api", "outcome")
	errors := m.counterVec("xpyd_request_errors_total", "Error answers and error events sent to clients, by code.", "code")
	decisions := m.counterVec("xpyd_decisions_total", "Paths taken by completions, by reason. A completion that ended before a backend was asked took none.", "path", "reason")
	clientGone := m.counterVec("xpyd_client_gone_total", "Clients that left before their answer was complete, by phase.", "phase")
	handles := m.counterVec("xpyd_kv_handles_total", "Handles to KV blocks that prefill backends issued, and how each ended.", "end")
	orphans := m.counterVec("xpyd_kv_orphans_total", "Handles whose blocks wait for the lease to end, or may do so, by reason.", "reason")
	m.legs = m.counterVec("xpyd_leg_requests_total", "Legs ended, by leg, backend and outcome.", "leg", "backend", "outcome")
	m.legErrors = m.counterVec("xpyd_leg_errors_total", "Failed legs, by leg and code.", "leg", "code")
	duration := m.histogramVec("xpyd_request_duration_seconds", "Time from request head to last byte.", e2eBuckets, "api")
	ttft := m.histogramVec("xpyd_ttft_seconds", "Time from request head to the first byte of a streamed answer's first token.", ttftBuckets, "api", "path")
	tpot := m.histogramVec("xpyd_time_per_output_token_seconds", "Mean gap between the events of a stream, observed once a request.", tpotBuckets, "api")
	legDuration := m.histogramVec("xpyd_leg_duration_seconds", "Time of a leg from dial to end.", e2eBuckets, "leg")
	handoff := m.histogramVec("xpyd_handoff_seconds", "Time from the prefill answer to the decode request written.", ttftBuckets)
	m.events = m.counter("xpyd_stream_events_total", "Server-sent events relayed.")
	m.requests, m.decisions = resolvedPairs(requests, l.APIs, l.Outcomes), resolvedPairs(decisions, l.Paths, l.Reasons)
	m.errors, m.clientGone = resolved(errors, l.Codes), resolved(clientGone, l.Phases)
	m.handles, m.orphans = resolved(handles, l.Ends), resolved(orphans, l.OrphanReasons)
	m.duration, m.legDuration = resolvedObservers(duration, l.APIs), resolvedObservers(legDuration, l.Legs)
	m.ttft = lazy(ttft, len(l.APIs), len(l.Paths), func(api, path int) []string { return []string{nameOf(l.APIs, api), nameOf(l.Paths, path)} })
	m.tpot = lazy(tpot, len(l.APIs), 1, func(api, _ int) []string { return []string{nameOf(l.APIs, api)} })
	m.handoff = handoff.WithLabelValues()
}

// registerRelayed registers what other requests count. Their series are looked up at each, as their
// engines do far more for them.
func (m *Metrics) registerRelayed() {
	m.relayed = m.counterVec("xpyd_relayed_requests_total", "Requests ended that one engine answers alone, by route and outcome. Routes of routes.pass are other.", "route", "outcome")
	m.relayTime = m.histogramVec("xpyd_relayed_request_duration_seconds", "Time of such a request from its head to its last byte.", e2eBuckets, "route")
	resolvedPairs(m.relayed, m.labels.Routes, m.labels.Outcomes)
}

// Relayed counts a request that one engine has answered alone. outcome is an index of Labels.Outcomes.
func (m *Metrics) Relayed(route string, outcome int, d time.Duration) {
	m.relayed.WithLabelValues(route, nameOf(m.labels.Outcomes, outcome)).Inc()
	m.relayTime.WithLabelValues(route).Observe(d.Seconds())
}

// registerProcess registers what does not belong to one completion.
func (m *Metrics) registerProcess() {
	m.ejections = m.counterVec("xpyd_backend_ejections_total", "Ejections of backends for their failures, by reason.", "role", "backend", "reason")
	m.warmups = m.counterVec("xpyd_warmups_total", "One-token requests over pairs that are new or were banned, by result.", "result")
	m.polls = m.counterVec("xpyd_engine_polls_total", "Readings of the engines' own metrics, by result. A failed one lacks the engine's load or a part of it.", "result")
	m.reloads = m.counterVec("xpyd_config_reloads_total", "Reloads of the configuration, by result.", "result")
	m.reloadOK = prometheus.NewGauge(prometheus.GaugeOpts{Name: "xpyd_config_last_reload_successful", Help: "1 unless the last reload failed and the configuration before it is still in force."})
	m.reloadOK.Set(1)
	m.registry.MustRegister(m.reloadOK)
	m.retryDenied = m.counter("xpyd_retries_denied_total", "Retries that got no share of the retry budget in 30 s.")
	m.turnedAway = m.counterVec("xpyd_connections_turned_away_total", "Client connections closed at once, for per_ip (limits.connections_per_ip), descriptors (none left) or tls (the handshake failed).", "reason")
	m.panics = m.counter("xpyd_panics_total", "Panics caught in request handling.")
	m.loopback = m.counter("xpyd_loopback_handles_total", "Handles that name a loopback host although the decode backend is on another one.")
	m.kept = m.counter("xpyd_kv_kept_by_decode_total", "Answers of decode backends that keep their own blocks for a next turn (bidirectional_kv_xfer). These blocks stay until decoder_kv_blocks_ttl.")
	resolved(m.warmups, []string{"ok", "failed"})
	resolved(m.polls, []string{"ok", "failed"})
	resolved(m.turnedAway, []string{"per_ip", "descriptors", "tls"})
}

func (m *Metrics) counterVec(name, help string, labels ...string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	m.registry.MustRegister(v)
	return v
}

func (m *Metrics) counter(name, help string) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	m.registry.MustRegister(c)
	return c
}

func (m *Metrics) histogramVec(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	m.registry.MustRegister(v)
	return v
}

func (m *Metrics) gauge(name, help string, read func() float64) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, read))
}

func (m *Metrics) counterFunc(name, help string, read func() float64) {
	m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, read))
}

// WatchLog adds the count of the log lines that were dropped, read at each scrape. It is called once.
func (m *Metrics) WatchLog(dropped func() int64) {
	m.counterFunc("xpyd_log_lines_dropped_total", "Log lines dropped because the reader of the log was too slow, or failed.", func() float64 { return float64(dropped()) })
}

// Handler serves the Prometheus text format.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// Request counts a completion that has ended after d.
func (m *Metrics) Request(api, outcome int, d time.Duration) {
	m.requests.inc(api, outcome)
	m.duration.observe(api, d.Seconds())
}

// Decision counts the path that a completion took.
func (m *Metrics) Decision(path, reason int) { m.decisions.inc(path, reason) }

// Error counts an error answer or error event by its code.
func (m *Metrics) Error(code int) { m.errors.inc(code) }

// Stream observes a stream that reached its client. Its first token came after ttft, and its events
// over the span that followed.
func (m *Metrics) Stream(api, path int, ttft, span time.Duration, events int) {
	m.ttft.observe(api, path, ttft.Seconds())
	m.events.Add(float64(events))
	if events > 1 {
		m.tpot.observe(api, 0, span.Seconds()/float64(events-1))
	}
}

// ClientGone counts a client that left in the phase.
func (m *Metrics) ClientGone(phase int) { m.clientGone.inc(phase) }

// Leg counts a leg that ended after d.
func (m *Metrics) Leg(leg int, backend, outcome string, d time.Duration) {
	m.legs.WithLabelValues(nameOf(m.labels.Legs, leg), backend, outcome).Inc()
	m.legDuration.observe(leg, d.Seconds())
}

// LegError counts a leg that failed, by its code.
func (m *Metrics) LegError(leg, code int) {
	m.legErrors.WithLabelValues(nameOf(m.labels.Legs, leg), nameOf(m.labels.Codes, code)).Inc()
}

// Handle counts a handle's issue or end.
func (m *Metrics) Handle(end int) { m.handles.inc(end) }

// Orphan counts a handle that could not be given back.
func (m *Metrics) Orphan(reason int) { m.orphans.inc(reason) }

// KeptByDecode counts an answer whose decode backend keeps blocks that no request will ask for.
func (m *Metrics) KeptByDecode() { m.kept.Inc() }

// Handoff observes the time between the legs.
func (m *Metrics) Handoff(d time.Duration) { m.handoff.Observe(d.Seconds()) }

// Ejection counts a backend taken out of the picks.
func (m *Metrics) Ejection(role, backend, reason string) {
	m.ejections.WithLabelValues(role, backend, reason).Inc()
}

// Forget drops the series of a backend that is in no pool any more. Where backends come and go, as
// pods do, the series would grow without bound.
func (m *Metrics) Forget(backend string) {
	for _, v := range []*prometheus.CounterVec{m.legs, m.ejections} {
		v.DeletePartialMatch(prometheus.Labels{"backend": backend})
	}
}

// Reload counts a reload of the configuration.
func (m *Metrics) Reload(ok bool) {
	if ok {
		m.reloads.WithLabelValues("ok").Inc()
		m.reloadOK.Set(1)
		return
	}
	m.reloads.WithLabelValues("failed").Inc()
	m.reloadOK.Set(0)
}

// WarmUp counts a one-token request that the proxy itself sent.
func (m *Metrics) WarmUp(ok bool) {
	m.warmups.WithLabelValues(result(ok)).Inc()
}

// Poll counts a reading of an engine's metrics.
func (m *Metrics) Poll(ok bool) { m.polls.WithLabelValues(result(ok)).Inc() }

func result(ok bool) string {
	if ok {
		return "ok"
	}
	return "failed"
}

// RetryDenied counts a retry that the budget did not allow.
func (m *Metrics) RetryDenied() { m.retryDenied.Inc() }

// TurnedAway counts a client connection that got no place.
func (m *Metrics) TurnedAway(reason string) { m.turnedAway.WithLabelValues(reason).Inc() }

// Panic counts a caught panic.
func (m *Metrics) Panic() { m.panics.Inc() }

// Loopback counts a handle with a loopback host that D cannot reach.
func (m *Metrics) Loopback() { m.loopback.Inc() }

// backendCollector reads the router when scraped, so that no gauge can drift from it.
type backendCollector struct{ read func() []BackendLoad }

var (
	inFlightDesc = prometheus.NewDesc("xpyd_in_flight", "Requests in flight, by role and backend.", []string{"role", "backend"}, nil)
	upDesc       = prometheus.NewDesc("xpyd_backend_up", "1 when the backend's /health last answered 200.", []string{"role", "backend"}, nil)
	nothingDesc  = prometheus.NewDesc("xpyd_backend_nothing_pulled", "1 while the decode backend answers two-leg requests and its engine pulls no blocks for them.", []string{"role", "backend"}, nil)
	ejectedDesc  = prometheus.NewDesc("xpyd_backend_ejected", "1 while the backend gets no requests because of its failures.", []string{"role", "backend"}, nil)

	// What an engine does not report, or reported too long ago, has no series.
	elsewhereDesc        = prometheus.NewDesc("xpyd_engine_requests_elsewhere", "Estimate of the requests on the engine that this process has not sent.", []string{"role", "backend"}, nil)
	engineAgeDesc        = prometheus.NewDesc("xpyd_engine_state_age_seconds", "Age of the last reading of the engine's own metrics.", []string{"role", "backend"}, nil)
	runningDesc          = prometheus.NewDesc("xpyd_engine_requests_running", "Requests that run on the engine, of all its clients, by its own metrics.", []string{"role", "backend"}, nil)
	waitingDesc          = prometheus.NewDesc("xpyd_engine_requests_waiting", "Requests that wait on the engine, of all its clients, by its own metrics.", []string{"role", "backend"}, nil)
	kvUsageDesc          = prometheus.NewDesc("xpyd_engine_kv_usage_ratio", "Share of the engine's KV blocks in use, 0 to 1, by its own metrics.", []string{"role", "backend"}, nil)
	queriesDesc          = prometheus.NewDesc("xpyd_engine_prefix_cache_queries_total", "Prompt tokens looked up in the engine's prefix cache, by its own metrics.", []string{"role", "backend"}, nil)
	estimatedQueriesDesc = prometheus.NewDesc("xpyd_prefix_cache_estimated_queries_total", "Estimated tokens of the prompts sent to the engine.", []string{"role", "backend"}, nil)
	estimatedHitsDesc    = prometheus.NewDesc("xpyd_prefix_cache_estimated_hits_total", "Estimated tokens of the prompts sent to the engine that were expected in its prefix cache.", []string{"role", "backend"}, nil)
	hitsDesc             = prometheus.NewDesc("xpyd_engine_prefix_cache_hits_total", "Prompt tokens found in the engine's prefix cache, by its own metrics.", []string{"role", "backend"}, nil)
)

func (c *backendCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{inFlightDesc, upDesc, ejectedDesc, nothingDesc, elsewhereDesc, engineAgeDesc, runningDesc, waitingDesc, kvUsageDesc, queriesDesc, hitsDesc, estimatedQueriesDesc, estimatedHitsDesc} {
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
		send(ejectedDesc, prometheus.GaugeValue, flag(b.Ejected))
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
		if b.Engine != nil {
			send(elsewhereDesc, prometheus.GaugeValue, b.Elsewhere)
			b.Engine.collect(send)
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
}

func flag(on bool) float64 {
	if on {
		return 1
	}
	return 0
}
