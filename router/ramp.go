package router

import "time"

// minShare is what a backend gets at the start of its ramp: with nothing it would
// never pay the handshake that a first request to a pair costs.
const minShare = 0.1

// wholeTurn is one turn in Backend.offered.
const wholeTurn = 1_000_000

// ramp starts the slow start at the given time of the router's clock, or at the end
// of the ejection that lasts longer. Called under router.mu.
func (b *Backend) ramp(at int64) {
	b.setRamp(max(1, at, b.ejectedUntil.Load()))
}

// share is the part of its load that a backend takes, minShare to 1, rising in a line
// over the slow start.
func (v *vitals) share(now int64, over time.Duration) float64 {
	from := v.rampFrom.Load()
	if from == 0 || now-from >= int64(over) {
		return 1
	}
	return max(minShare, float64(now-from)/float64(over))
}

// takesTurn reports whether a backend with that share takes the turn that a rotation
// offers it: evenly one of each 1/share. peeks: it would.
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
