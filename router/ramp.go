package router

import "time"

// minShare is the share of a backend at the start of its ramp. With a share of 0 it would never get
// the first request of a pair, which pays for the handshake.
const minShare = 0.1

// wholeTurn is one turn in Backend.offered.
const wholeTurn = 1_000_000

// ramp starts the slow start at the given time of the router's clock, or at the end of the
// ejection if that is later. Called under router.mu.
func (b *Backend) ramp(at int64) {
	b.setRamp(max(1, at, b.ejectedUntil.Load()))
}

// share is the part of its load that a backend takes during its slow start. It rises linearly from
// minShare to 1.
func (v *vitals) share(now int64, over time.Duration) float64 {
	from := v.rampFrom.Load()
	if from == 0 || now-from >= int64(over) {
		return 1
	}
	return max(minShare, float64(now-from)/float64(over))
}

// takesTurn reports whether a backend with that share takes the turn that a rotation offers it. It
// takes one in every 1/share turns, evenly. With peeks it takes none, and only says whether it
// would.
func (b *Backend) takesTurn(share float64, peeks bool) bool {
	if share >= 1 {
		return true
	}
	part := int64(share * wholeTurn)
	n := b.offered.Load() + part
	if !peeks {
		n = b.offered.Add(part)
	}
	return n/wholeTurn != (n-part)/wholeTurn
}
