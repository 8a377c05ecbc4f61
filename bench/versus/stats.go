package versus

import (
	"math"
	"slices"
)

// median is the middle of values, the mean of the two middle ones if their number is
// even; NaN of none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(values))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// percentile is the nearest rank of sorted ns, in µs; NaN of none.
func percentile(sorted []int64, p float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return float64(sorted[max(1, rank)-1]) / 1e3
}

// spread is the values of all rounds in short.
type spread struct {
	Median, Min, Max float64
}

func spreadOf(values []float64) spread {
	if len(values) == 0 {
		return spread{math.NaN(), math.NaN(), math.NaN()}
	}
	return spread{median(values), slices.Min(values), slices.Max(values)}
}

// ratios divides round by round: what slows the machine in one round slows both.
func ratios(of, to []float64) []float64 {
	var all []float64
	for i := range min(len(of), len(to)) {
		if to[i] > 0 && !math.IsNaN(of[i]) {
			all = append(all, of[i]/to[i])
		}
	}
	return all
}

// differences subtracts round by round.
func differences(of, less []float64) []float64 {
	all := make([]float64, min(len(of), len(less)))
	for i := range all {
		all[i] = of[i] - less[i]
	}
	return all
}
