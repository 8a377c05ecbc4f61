package handoff

import (
	"time"

	"xpyd/kvparams"
)

// Grace is how long the legs may still answer after their client has left.
type Grace struct {
	Prefill, Decode time.Duration
	Finishes        bool // if D has had the request, P runs to its end; see kvparams.Pairing
}

// drainGrace is how long a D may take to load blocks that only a decode frees, that it may lose if it is cut, or of
// whose cut it dies.
const drainGrace = 10 * time.Second

// GraceOf returns the graces of a connector. P gets prefillAbort (timeouts.prefill_abort_grace), because an
// abort in the last milliseconds of a prefill strands its blocks. A P that must run to its end, or that dies of a cut, gets
// prefill (timeouts.prefill). D gets decodeAbort (timeouts.decode_abort_grace). D may still load P's blocks if only a
// decode frees them, or if P runs to its end for it: when vLLM's D is cut, it asks P a second time, and if P
// serves that question first, D keeps blocks of its own until it is restarted.
func GraceOf(d kvparams.Dialect, prefill, prefillAbort, decodeAbort time.Duration) Grace {
	g := Grace{Prefill: prefillAbort, Decode: decodeAbort}
	if p, ok := d.(kvparams.Pairing); ok && p.Finishes() {
		g.Prefill, g.Finishes = prefill, true
	}
	if kvparams.Dies(d) {
		g.Prefill = prefill
	}
	if g.Finishes || kvparams.Dies(d) || d.Reclaim() == kvparams.ReclaimDrain {
		g.Decode = max(g.Decode, drainGrace)
	}
	return g
}
