package proxy

import (
	"time"

	"xpyd/engines/handoff"
	"xpyd/intake/routes"
	"xpyd/kvparams"
	"xpyd/metrics"
	"xpyd/proxy/carry"
	"xpyd/proxy/fault"
	"xpyd/router"
)

// These are the closed sets of names in logs, headers and metrics. Each set is numbered. So a
// missing name does not compile or fails a test, and no request looks up a name.

// path is the way that a completion takes.
type path uint8

const (
	pathDisaggregated path = iota
	pathDecodeOnly
	paths
)

func (p path) String() string { return [paths]string{"disaggregated", "decode_only"}[p] }

// outcome is how a completion ended.
type outcome uint8

const (
	outcomeOK          outcome = iota
	outcomeClientError         // 4xx
	outcomeClientGone
	outcomeError  // 5xx
	outcomeBroken // a stream that ended in an error event
	outcomes
)

func (o outcome) String() string {
	return [outcomes]string{"ok", "client_error", "client_gone", "error", "broken"}[o]
}

// phase is when a client left. This is during its upload, or in a state of the completion.
type phase uint8

const (
	phaseBody  phase = 0
	firstPhase phase = 1 // of stateAdmitted
	phases           = firstPhase + phase(states)
)

func (p phase) String() string {
	if p == phaseBody {
		return "body"
	}
	return state(p - firstPhase).String()
}

func labels() metrics.Labels {
	return metrics.Labels{
		APIs:          fault.Names(kvparams.APIs),
		Outcomes:      fault.Names(outcomes),
		Codes:         fault.Names(fault.Codes),
		Paths:         fault.Names(paths),
		Reasons:       fault.Names(fault.Reasons),
		Phases:        fault.Names(phases),
		Ends:          handoff.Ends(),
		OrphanReasons: handoff.Orphans(),
		Legs:          fault.Names(fault.Legs),
		Roles:         []string{router.Prefill: router.Prefill.String(), router.Decode: router.Decode.String(), router.Encode: router.Encode.String()},
		Routes:        routes.Names(),
		Carries:       fault.Names(carry.Reasons),
	}
}

// meter counts the metrics by the proxy's own labels.
type meter struct{ *metrics.Metrics }

func (m meter) Request(api kvparams.API, o outcome, d time.Duration, trace string) {
	m.Metrics.Request(int(api), int(o), d, trace)
}

func (m meter) Decision(p path, r fault.Reason) { m.Metrics.Decision(int(p), int(r)) }

func (m meter) Error(c fault.Code) { m.Metrics.Error(int(c)) }

func (m meter) Stream(api kvparams.API, p path, ttft, span time.Duration, events int, trace string) {
	m.Metrics.Stream(int(api), int(p), ttft, span, events, trace)
}

func (m meter) ClientGone(p phase) { m.Metrics.ClientGone(int(p)) }

// Leg counts a leg that ended after d. c is CodeNone if there is no failure to report.
func (m meter) Leg(l fault.Leg, b *router.Backend, o router.Outcome, c fault.Code, d time.Duration) {
	m.Metrics.Leg(int(l), b.URL, o.String(), d)
	if c != fault.CodeNone {
		m.LegError(int(l), b.URL, int(c))
	}
	if l == fault.Prefill && o == router.OK {
		m.FirstToken(int(l), b.URL, d)
	}
}

func (m meter) Handle(e handoff.End) { m.Metrics.Handle(int(e)) }

func (m meter) Orphan(o handoff.Orphan) { m.Metrics.Orphan(int(o)) }
