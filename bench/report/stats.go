package report

import (
	"math"
	"slices"
)

// Median is the middle of values, the mean of the two middle ones if their number is
// even; NaN of none.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(values))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// Spread is the values of all rounds in short.
type Spread struct {
	Median, Min, Max float64
}

// SpreadOf is of NaN if there are no values.
func SpreadOf(values []float64) Spread {
	if len(values) == 0 {
		return Spread{math.NaN(), math.NaN(), math.NaN()}
	}
	return Spread{Median(values), slices.Min(values), slices.Max(values)}
}

// Ratios divides round by round: what slows the machine in one round slows both.
func Ratios(of, to []float64) []float64 {
	var all []float64
	for i := range min(len(of), len(to)) {
		if to[i] > 0 && !math.IsNaN(of[i]) {
			all = append(all, of[i]/to[i])
		}
	}
	return all
}

// Present leaves NaN out.
func Present(values []float64) []float64 {
	return slices.DeleteFunc(slices.Clone(values), math.IsNaN)
}
