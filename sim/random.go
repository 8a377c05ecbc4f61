package sim

import (
	"math/rand/v2"
	"net/http"
	"slices"
	"time"
)

// drawnKinds are what the random fault draws from, by leg. kill is left out, because nothing could
// be drawn after it.
var drawnKinds = map[string][]string{
	"P": {
		FaultRST, FaultFIN, FaultHang, FaultDelay, FaultStatus, FaultTruncate, FaultBadJSON, FaultNoHandle, FaultBadHandle, FaultCached,
		FaultZero, FaultErrFirst, FaultDie, FaultStall, FaultLate, FaultDrip, FaultCorrupt,
	},
	"D": {
		FaultRST, FaultFIN, FaultHang, FaultDelay, FaultStatus, FaultTruncate, FaultBadJSON, FaultZero, FaultKVFail, FaultErrFirst,
		FaultErrDone, FaultErrCut, FaultDie, FaultCut, FaultStall, FaultNoDone, FaultNoFinish, FaultSlice, FaultLate, FaultDrip,
		FaultRoleError, FaultCorrupt,
	},
}

// deadlyHandles look good to the proxy that passes them on, and kill the engine that reads them.
var deadlyHandles = []string{"flat-blocks", "range-blocks"}

// drawnStatuses are the statuses of an engine in trouble.
var drawnStatuses = []int{
	http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout,
}

// draw gives one request of a leg its fault, or none.
func draw(dice *rand.Rand, share float64, leg string) (Fault, bool) {
	if dice.Float64() >= share {
		return Fault{}, false
	}
	f := Fault{Kind: pick(dice, drawnKinds[leg])}
	switch f.Kind {
	case FaultDelay:
		f.Delay = time.Duration(1+dice.IntN(200)) * time.Millisecond
	case FaultStatus:
		f.Value = pick(dice, drawnStatuses)
	case FaultCached:
		f.Value = dice.IntN(64)
	case FaultBadHandle:
		f.Arg = pick(dice, drawnHandles())
	case FaultTruncate:
		f.At = dice.IntN(200)
	case FaultSlice:
		f.At = 1 + dice.IntN(64)
	case FaultDrip:
		f.At, f.Delay = 8+dice.IntN(64), time.Duration(dice.IntN(1000))*time.Microsecond
	case FaultErrDone, FaultErrCut, FaultDie, FaultCut, FaultStall, FaultCorrupt:
		f.At = dice.IntN(16)
	}
	if dice.IntN(2) == 0 && slices.Contains([]string{FaultTruncate, FaultErrCut, FaultDie, FaultCut}, f.Kind) {
		f.End = "rst"
	}
	return f, true
}

func pick[T any](dice *rand.Rand, from []T) T { return from[dice.IntN(len(from))] }

// drawnHandles are sorted, because the order of a map does not depend on the seed.
func drawnHandles() []string {
	var all []string
	for name := range badHandles {
		if !slices.Contains(deadlyHandles, name) {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}
