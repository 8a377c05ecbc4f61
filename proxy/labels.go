package proxy

import (
	"time"

	"xpyd/handoff"
	"xpyd/kvparams"
	"xpyd/metrics"
	"xpyd/router"
	"xpyd/routes"
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

// reason is why a completion took its path.
type reason uint8

const (
	reasonNone reason = iota
	reasonNoPool
	reasonNoModel
	reasonUnavailable
	reasonBusy
	reasonNoHandle
	reasonBadHandle
	reasonFailed
	reasonToolChoice
	reasonSuspect

	ownReasons // the number of those above

	// The reasons of router.Decide follow, and then those of Request.Bypass, each set without its
	// none.
	decidedReasons = ownReasons + reason(router.Reasons) - 1
	reasons        = decidedReasons + reason(kvparams.Reasons) - 1
)

func (r reason) String() string {
	switch {
	case r >= decidedReasons:
		return kvparams.Reason(r - decidedReasons + 1).String()
	case r >= ownReasons:
		return router.Reason(r - ownReasons + 1).String()
	}
	return [ownReasons]string{
		reasonNone:        router.ReasonAlways.String(),
		reasonNoPool:      "no_prefill_pool",
		reasonNoModel:     "no_prefill_model",
		reasonUnavailable: "prefill_unavailable",
		reasonBusy:        "prefill_busy",
		reasonNoHandle:    "no_handle",
		reasonBadHandle:   "bad_handle",
		reasonFailed:      "prefill_failed",
		reasonToolChoice:  "tool_choice",
		reasonSuspect:     "suspect_handle",
	}[r]
}

// Reasons lists every reason that xpyd_decisions_total may carry.
func Reasons() []string { return names(reasons) }

// decided returns the reason of a router.Decision.
func decided(why router.Reason) reason {
	if why == router.ReasonAlways {
		return reasonNone
	}
	return ownReasons + reason(why) - 1
}

// bypassed returns the reason why a request must not be split, or reasonNone if it may be.
func bypassed(why kvparams.Reason) reason {
	if why == kvparams.ReasonNone {
		return reasonNone
	}
	return decidedReasons + reason(why) - 1
}

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

// leg is one of the two backend requests of a completion.
type leg uint8

const (
	legPrefill leg = iota
	legDecode
	legs
	// legPassed is a request of another kind that goes to one decode backend. It does not count
	// as a leg.
	legPassed = legs
)

func (l leg) String() string { return [legs]string{"prefill", "decode"}[l] }

// names returns the names of all values below n.
func names[L interface {
	~uint8
	String() string
}](n L) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = L(i).String()
	}
	return all
}

func labels() metrics.Labels {
	return metrics.Labels{
		APIs:          []string{kvparams.Chat: apiName(kvparams.Chat), kvparams.Completions: apiName(kvparams.Completions)},
		Outcomes:      names(outcomes),
		Codes:         names(codes),
		Paths:         names(paths),
		Reasons:       names(reasons),
		Phases:        names(phases),
		Ends:          handoff.Ends(),
		OrphanReasons: handoff.Orphans(),
		Legs:          names(legs),
		Routes:        routes.Names(),
	}
}

func apiName(api kvparams.API) string {
	if api == kvparams.Chat {
		return "chat"
	}
	return "completions"
}

// meter counts the metrics by the proxy's own labels.
type meter struct{ *metrics.Metrics }

func (m meter) Request(api kvparams.API, o outcome, d time.Duration) {
	m.Metrics.Request(int(api), int(o), d)
}

func (m meter) Decision(p path, r reason) { m.Metrics.Decision(int(p), int(r)) }

func (m meter) Error(c code) { m.Metrics.Error(int(c)) }

func (m meter) Stream(api kvparams.API, p path, ttft, span time.Duration, events int) {
	m.Metrics.Stream(int(api), int(p), ttft, span, events)
}

func (m meter) ClientGone(p phase) { m.Metrics.ClientGone(int(p)) }

// Leg counts a leg that ended after d. c is codeNone if there is no failure to report.
func (m meter) Leg(l leg, b *router.Backend, o router.Outcome, c code, d time.Duration) {
	m.Metrics.Leg(int(l), b.URL, o.String(), d)
	if c != codeNone {
		m.LegError(int(l), int(c))
	}
}

func (m meter) Handle(e handoff.End) { m.Metrics.Handle(int(e)) }

func (m meter) Orphan(o handoff.Orphan) { m.Metrics.Orphan(int(o)) }
