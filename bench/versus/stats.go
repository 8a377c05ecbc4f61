package versus

import "math"

// percentile is the nearest rank of sorted ns, in µs; NaN of none.
func percentile(sorted []int64, p float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return float64(sorted[max(1, rank)-1]) / 1e3
}

// differences subtracts round by round.
func differences(of, less []float64) []float64 {
	all := make([]float64, min(len(of), len(less)))
	for i := range all {
		all[i] = of[i] - less[i]
	}
	return all
}
