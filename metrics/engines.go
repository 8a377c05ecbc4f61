package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Engines counts by backend. It has summaries without quantiles in place of histograms: two series each, as there may be
// hundreds of backends.
type Engines struct {
	labels               *Labels
	legs, legErrors      *prometheus.CounterVec
	legDuration          []prometheus.Observer // by leg
	ejections            *prometheus.CounterVec
	retries              counters
	firstToken, perToken *prometheus.SummaryVec
	carries              counters
}

// registerEngines registers what the legs of completions count, by the backends that they went to. An
// encode and a prefill end before the first token and a decode with the last one, so it has bucket edges of its own.
func (m *Metrics) registerEngines() *Engines {
	e := &Engines{labels: &m.labels}
	e.legs = m.counterVec("xpyd_leg_requests_total", "Legs that ended, by leg, backend and outcome.", "leg", "backend", "outcome")
	e.legErrors = m.counterVec("xpyd_leg_errors_total", "Failed legs, by leg, backend and code.", "leg", "backend", "code")
	for _, leg := range e.labels.Legs {
		edges := e2eBuckets
		if leg != "decode" {
			edges = ttftBuckets
		}
		h := prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "xpyd_leg_duration_seconds", Help: "Time of a leg from dial to end. Decode has bucket edges of its own.", ConstLabels: prometheus.Labels{"leg": leg}, Buckets: edges,
		})
		m.registry.MustRegister(h)
		e.legDuration = append(e.legDuration, h)
	}
	retries := m.counterVec("xpyd_retries_total", "Legs tried again after a failure: another prefill engine was asked (prefill), or a new round of both legs began (decode).", "leg")
	e.retries = resolved(retries, []string{"prefill", "decode"})
	carries := m.counterVec("xpyd_streams_carried_total", "Streams whose decode engine failed, with carry.max: none were carried on, others ended, by reason.", "not_carried")
	e.carries = resolved(carries, e.labels.Carries)
	e.ejections = m.counterVec("xpyd_backend_ejections_total", "Ejections of backends for their failures, by reason.", "role", "backend", "reason")
	e.firstToken = m.summaryVec("xpyd_backend_first_token_seconds", "Time of a leg from dial to its first token: of a prefill leg until its answer, of a streamed decode leg until its first event. Only legs that got there count.", "leg", "backend")
	e.perToken = m.summaryVec("xpyd_backend_time_per_output_token_seconds", "Mean gap between the events of a stream, one observation for each stream, by decode backend.", "backend")
	return e
}

func (m *Metrics) summaryVec(name, help string, labels ...string) *prometheus.SummaryVec {
	v := prometheus.NewSummaryVec(prometheus.SummaryOpts{Name: name, Help: help}, labels)
	m.registry.MustRegister(v)
	return v
}

// Leg counts a leg that ended after d.
func (e *Engines) Leg(leg int, backend, outcome string, d time.Duration) {
	e.legs.WithLabelValues(nameOf(e.labels.Legs, leg), backend, outcome).Inc()
	if leg < len(e.legDuration) { // otherwise the count has it as other
		e.legDuration[leg].Observe(d.Seconds())
	}
}

// LegError counts a leg that failed, by its code.
func (e *Engines) LegError(leg int, backend string, code int) {
	e.legErrors.WithLabelValues(nameOf(e.labels.Legs, leg), backend, nameOf(e.labels.Codes, code)).Inc()
}

// FirstToken observes a leg whose first token came after d.
func (e *Engines) FirstToken(leg int, backend string, d time.Duration) {
	e.firstToken.WithLabelValues(nameOf(e.labels.Legs, leg), backend).Observe(d.Seconds())
}

// Streamed observes a stream of a decode backend, whose events came over the span after the first one.
func (e *Engines) Streamed(backend string, span time.Duration, events int) {
	if events > 1 {
		e.perToken.WithLabelValues(backend).Observe(span.Seconds() / float64(events-1))
	}
}

// PrefillRetried counts a prefill leg that goes to another backend, and RoundRetried a new round.
func (e *Engines) PrefillRetried() { e.retries.inc(0) }

// RoundRetried counts a new round of both legs.
func (e *Engines) RoundRetried() { e.retries.inc(1) }

// Carried counts a stream whose engine failed. 0 is for one that another engine carried on.
func (e *Engines) Carried(why int) { e.carries.inc(why) }

// Ejection counts a backend taken out of the picks.
func (e *Engines) Ejection(role, backend, reason string) {
	e.ejections.WithLabelValues(role, backend, reason).Inc()
}

// Forget drops the series of a backend that has been in no pool for a while. Where backends come and go, as
// pods do, the series would grow without bound.
func (e *Engines) Forget(backend string) {
	of := prometheus.Labels{"backend": backend}
	for _, v := range []interface {
		DeletePartialMatch(prometheus.Labels) int
	}{e.legs, e.legErrors, e.ejections, e.firstToken, e.perToken} {
		v.DeletePartialMatch(of)
	}
}
