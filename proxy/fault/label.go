package fault

import (
	"xpyd/kvparams"
	"xpyd/router"
)

// Leg is one of the backend requests of a completion.
type Leg uint8

const (
	Prefill Leg = iota
	Decode
	Encode // package encode judges its failures, and Classify never sees one
	Legs
	// Passed is a request of another kind that goes to one decode backend. It does not count
	// as a leg.
	Passed = Legs
)

func (l Leg) String() string { return [Legs]string{"prefill", "decode", "encode"}[l] }

// Reason is why a completion took its path.
type Reason uint8

const (
	ReasonNone Reason = iota
	ReasonNoPool
	ReasonNoModel
	ReasonNoOther // no engine but D's own could do the prefill
	ReasonUnavailable
	ReasonBusy
	ReasonNoHandle
	ReasonBadHandle
	ReasonFailed
	ReasonToolChoice
	ReasonRefused
	ReasonSuspect

	ownReasons // the number of those above

	// The reasons of router.Decide follow, and then those of Request.Bypass, each set without its
	// none.
	decidedReasons = ownReasons + Reason(router.Reasons) - 1
	Reasons        = decidedReasons + Reason(kvparams.Reasons) - 1
)

func (r Reason) String() string {
	switch {
	case r >= decidedReasons:
		return kvparams.Reason(r - decidedReasons + 1).String()
	case r >= ownReasons:
		return router.Reason(r - ownReasons + 1).String()
	}
	return [ownReasons]string{
		ReasonNone:        router.ReasonAlways.String(),
		ReasonNoPool:      "no_prefill_pool",
		ReasonNoModel:     "no_prefill_model",
		ReasonNoOther:     "no_other_engine",
		ReasonUnavailable: "prefill_unavailable",
		ReasonBusy:        "prefill_busy",
		ReasonNoHandle:    "no_handle",
		ReasonBadHandle:   "bad_handle",
		ReasonFailed:      "prefill_failed",
		ReasonToolChoice:  "tool_choice",
		ReasonRefused:     "prefill_refused",
		ReasonSuspect:     "suspect_handle",
	}[r]
}

// Decided returns the reason of a router.Decision.
func Decided(why router.Reason) Reason {
	if why == router.ReasonAlways {
		return ReasonNone
	}
	return ownReasons + Reason(why) - 1
}

// Bypassed returns the reason why a request must not be split, or ReasonNone if it may be.
func Bypassed(why kvparams.Reason) Reason {
	if why == kvparams.ReasonNone {
		return ReasonNone
	}
	return decidedReasons + Reason(why) - 1
}

// Names returns the names of all values below n.
func Names[L interface {
	~uint8
	String() string
}](n L) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = L(i).String()
	}
	return all
}
