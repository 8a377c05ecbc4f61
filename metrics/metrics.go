// Package metrics holds every metric of the proxy, with its name, its help and its closed label sets.
// It is the only importer of client_golang.
package metrics

import (
	"net/http"
	"runtime"
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
	APIs, Outcomes, Codes, Paths, Reasons, Phases, Ends, OrphanReasons, Legs, Roles []string
	Routes                                                                          []string // that are relayed
	Carries                                                                         []string // why streams were not carried on; the first is for those that were
}

// Metrics is the set of one process. All methods are safe for concurrent use.
type Metrics struct {
	*Engines
	*Keys
	registry *prometheus.Registry
	labels   Labels

	requests, decisions                         counterPairs
	errors, clientGone, handles, orphans        counters
	duration                                    observers
	queue                                       observers
	models                                      models
	ttft, tpot                                  *lazyObservers
	handoff                                     prometheus.Observer
	reloads, warmups                            *prometheus.CounterVec
	reloadOK, reloadedAt                        prometheus.Gauge
	events, panics, loopback, kept, retryDenied prometheus.Counter
	turnedAway, polls, relayed, encodeItems     *prometheus.CounterVec
	relayTime                                   *prometheus.HistogramVec
}

// New registers everything. backends, queued (by role), pinned, stranded, buffered and held are read
// at each scrape.
func New(version string, l Labels, backends func() []BackendLoad, queued map[string]func() float64, pinned, stranded, buffered, held func() float64) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry(), labels: l}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.registerCompletions()
	m.registerLegs()
	m.registerModels()
	m.registerRelayed()
	m.Keys = m.registerKeys()
	m.registerProcess()
	for role, read := range queued {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "xpyd_queued", Help: "Requests that wait because all backends of the role are at their cap. Requests that wait for decode because decode_only.max_share is spent count too.", ConstLabels: prometheus.Labels{"role": role},
		}, read))
	}
	m.gauge("xpyd_kv_blocks_pinned", "KV blocks of handles that have not ended.", pinned)
	m.gauge("xpyd_kv_blocks_stranded", "KV blocks of lost handles whose lease still runs.", stranded)
	m.gauge("xpyd_request_bytes_buffered", "Request bytes held in memory, charged to limits.body_budget.", buffered)
	m.gauge("xpyd_answer_bytes_buffered", "Answer bytes held in memory, charged to limits.answer_budget.", held)
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "xpyd_build_info", Help: "1, labelled with the version and the Go release.", ConstLabels: prometheus.Labels{"version": version, "goversion": runtime.Version()},
	}, func() float64 { return 1 }))
	m.registry.MustRegister(&backendCollector{read: backends})
	return m
}

// registerCompletions registers what completions, their legs and their handles count.
func (m *Metrics) registerCompletions() {
	l := &m.labels
	requests := m.counterVec("xpyd_requests_total", "Completions that ended, by API and outcome.", "api", "outcome")
	errors := m.counterVec("xpyd_request_errors_total", "Error answers and error events sent to clients, by code.", "code")
	decisions := m.counterVec("xpyd_decisions_total", "Paths that completions took, by reason. A completion that ended before xpyd asked a backend took none.", "path", "reason")
	clientGone := m.counterVec("xpyd_client_gone_total", "Clients that left before their answer was complete, by phase.", "phase")
	handles := m.counterVec("xpyd_kv_handles_total", "Handles to KV blocks that prefill backends issued, by how each ended.", "end")
	issued := m.counter("xpyd_kv_handles_issued_total", "Handles to KV blocks that prefill backends issued.")
	orphans := m.counterVec("xpyd_kv_orphans_total", "Handles whose blocks wait, or may wait, for the lease to end, by reason.", "reason")
	duration := m.histogramVec("xpyd_request_duration_seconds", "Time from request head to last byte.", e2eBuckets, "api")
	ttft := m.histogramVec("xpyd_ttft_seconds", "Time from request head to the first byte of a streamed answer's first token.", ttftBuckets, "api", "path")
	tpot := m.histogramVec("xpyd_time_per_output_token_seconds", "Mean gap between the events of a stream, one observation for each request.", tpotBuckets, "api")
	m.events = m.counter("xpyd_stream_events_total", "Server-sent events relayed.")
	m.requests, m.decisions = resolvedPairs(requests, l.APIs, l.Outcomes), resolvedPairs(decisions, l.Paths, l.Reasons)
	m.errors, m.clientGone = resolved(errors, l.Codes), resolved(clientGone, l.Phases)
	m.handles, m.orphans = resolved(handles, l.Ends), resolved(orphans, l.OrphanReasons)
	for i, end := range l.Ends {
		if end == "" { // the issue is no end
			m.handles.by[i] = issued
		}
	}
	m.duration = resolvedObservers(duration, l.APIs)
	m.ttft = lazy(ttft, len(l.APIs), len(l.Paths), func(api, path int) []string { return []string{nameOf(l.APIs, api), nameOf(l.Paths, path)} })
	m.tpot = lazy(tpot, len(l.APIs), 1, func(api, _ int) []string { return []string{nameOf(l.APIs, api)} })
}

// registerLegs registers what completions count before and between their legs.
func (m *Metrics) registerLegs() {
	l := &m.labels
	m.Engines = m.registerEngines()
	m.encodeItems = m.counterVec("xpyd_encode_items_total", "Images, sounds and videos of completions, by result: encoded by an encode backend, or left to the engine of the next leg.", "result")
	resolved(m.encodeItems, []string{"encoded", "left"})
	queue := m.histogramVec("xpyd_queue_seconds", "Time that a completion waited for a backend of the role. Only completions that found all of them at their cap count.", ttftBuckets, "role")
	m.queue = resolvedObservers(queue, l.Roles)
	handoff := m.histogramVec("xpyd_handoff_seconds", "Time from the prefill answer until the decode request is written.", ttftBuckets)
	m.handoff = handoff.WithLabelValues()
}

// registerRelayed registers what other requests count. Their series are looked up at each, as their
// engines do far more for them.
func (m *Metrics) registerRelayed() {
	m.relayed = m.counterVec("xpyd_relayed_requests_total", "Requests that one engine answers alone, counted as they end, by route and outcome. Routes of routes.pass count as other.", "route", "outcome")
	m.relayTime = m.histogramVec("xpyd_relayed_request_duration_seconds", "Time of a request that one engine answers alone, from its head to its last byte.", e2eBuckets, "route")
	resolvedPairs(m.relayed, m.labels.Routes, m.labels.Outcomes)
}

// Relayed counts a request that one engine has answered alone. outcome is an index of Labels.Outcomes.
func (m *Metrics) Relayed(route string, outcome int, d time.Duration) {
	m.relayed.WithLabelValues(route, nameOf(m.labels.Outcomes, outcome)).Inc()
	m.relayTime.WithLabelValues(route).Observe(d.Seconds())
}

// registerProcess registers what does not belong to one completion.
func (m *Metrics) registerProcess() {
	m.warmups = m.counterVec("xpyd_warmups_total", "One-token requests over pairs that are new or were banned, by result.", "result")
	m.polls = m.counterVec("xpyd_engine_polls_total", "Readings of the engines' own metrics, by result. A failed reading lacks the engine's load or a part of it.", "result")
	m.reloads = m.counterVec("xpyd_config_reloads_total", "Reloads of the configuration, by result.", "result")
	m.reloadOK = prometheus.NewGauge(prometheus.GaugeOpts{Name: "xpyd_config_last_reload_successful", Help: "1 unless the last reload failed and the previous configuration is still in force."})
	m.reloadedAt = prometheus.NewGauge(prometheus.GaugeOpts{Name: "xpyd_config_last_reload_success_timestamp_seconds", Help: "When the configuration in force was read, in Unix time."})
	m.registry.MustRegister(m.reloadOK, m.reloadedAt)
	m.reloaded()
	m.retryDenied = m.counter("xpyd_retries_denied_total", "Retries that got no share of the retry budget within 30 s.")
	m.turnedAway = m.counterVec("xpyd_connections_turned_away_total", "Client connections closed at once, for per_ip (limits.connections_per_ip), descriptors (none left), tls (the handshake failed) or proxy_protocol (a balancer sent no header), and those closed after they were idle for longest (idle), because none was left.", "reason")
	m.panics = m.counter("xpyd_panics_total", "Panics caught in request handling.")
	m.loopback = m.counter("xpyd_loopback_handles_total", "Handles that name a loopback host although the decode backend is on another one.")
	m.kept = m.counter("xpyd_kv_kept_by_decode_total", "Answers of decode backends that keep their own blocks for the next turn (bidirectional_kv_xfer). These blocks stay until decoder_kv_blocks_ttl ends.")
	resolved(m.warmups, []string{"ok", "failed"})
	resolved(m.polls, []string{"ok", "failed"})
	resolved(m.turnedAway, []string{"per_ip", "descriptors", "idle", "tls"})
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
	m.counterFunc("xpyd_log_lines_dropped_total", "Log lines dropped because the reader of the log was too slow or failed.", func() float64 { return float64(dropped()) })
}

// Handler serves the Prometheus text format, or OpenMetrics to a scraper that asks for it.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{EnableOpenMetrics: true}) // which exemplars need
}

// Request counts a completion that has ended after d. trace is the id of the trace that it belongs to,
// or "".
func (m *Metrics) Request(api, outcome int, d time.Duration, trace string) {
	m.requests.inc(api, outcome)
	m.duration.observe(api, d.Seconds(), trace)
}

// Decision counts the path that a completion took.
func (m *Metrics) Decision(path, reason int) { m.decisions.inc(path, reason) }

// Error counts an error answer or error event by its code.
func (m *Metrics) Error(code int) { m.errors.inc(code) }

// Stream observes a stream that reached its client. Its first token came after ttft, and its events
// over the span that followed. trace is as for Request.
func (m *Metrics) Stream(api, path int, ttft, span time.Duration, events int, trace string) {
	m.ttft.observe(api, path, ttft.Seconds(), trace)
	m.events.Add(float64(events))
	if events > 1 {
		m.tpot.observe(api, 0, span.Seconds()/float64(events-1), trace)
	}
}

// ClientGone counts a client that left in the phase.
func (m *Metrics) ClientGone(phase int) { m.clientGone.inc(phase) }

// EncodeItems counts the images, sounds and videos of a completion.
func (m *Metrics) EncodeItems(encoded, left int) {
	m.encodeItems.WithLabelValues("encoded").Add(float64(encoded))
	m.encodeItems.WithLabelValues("left").Add(float64(left))
}

// Handle counts a handle's issue or end.
func (m *Metrics) Handle(end int) { m.handles.inc(end) }

// Orphan counts a handle that could not be given back.
func (m *Metrics) Orphan(reason int) { m.orphans.inc(reason) }

// KeptByDecode counts an answer whose decode backend keeps blocks that no request will ask for.
func (m *Metrics) KeptByDecode() { m.kept.Inc() }

// Queued observes a completion that waited for a backend of the role.
func (m *Metrics) Queued(role int, d time.Duration) { m.queue.observe(role, d.Seconds(), "") }

// Handoff observes the time between the legs.
func (m *Metrics) Handoff(d time.Duration) { m.handoff.Observe(d.Seconds()) }

// Reload counts a reload of the configuration.
func (m *Metrics) Reload(ok bool) {
	if ok {
		m.reloads.WithLabelValues("ok").Inc()
		m.reloaded()
		return
	}
	m.reloads.WithLabelValues("failed").Inc()
	m.reloadOK.Set(0)
}

// reloaded notes that the configuration in force is that of now.
func (m *Metrics) reloaded() {
	m.reloadOK.Set(1)
	m.reloadedAt.SetToCurrentTime()
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
