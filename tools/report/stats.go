package report

import (
	"fmt"
	"math"
	"slices"
)

// median returns the middle of values, or the mean of the two middle ones if their number is even.
// It is NaN without values.
func median(values []float64) float64 {
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

// SpreadOf returns NaN if there are no values.
func SpreadOf(values []float64) Spread {
	if len(values) == 0 {
		return Spread{math.NaN(), math.NaN(), math.NaN()}
	}
	return Spread{median(values), slices.Min(values), slices.Max(values)}
}

// Text is "median (least–most)", the median with its unit.
func (s Spread) Text(number func(float64) string, unit string) string {
	return fmt.Sprintf("%s%s (%s–%s)", number(s.Median), unit, number(s.Min), number(s.Max))
}

// Percentile returns the nearest rank of sorted times, as a multiple of unit. It is NaN without
// times.
func Percentile[T ~int64](sorted []T, p float64, unit T) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return float64(sorted[max(1, rank)-1]) / float64(unit)
}

// Ratios divides round by round, because what slows the machine in one round slows both.
func Ratios(of, to []float64) []float64 {
	var all []float64
	for i := range min(len(of), len(to)) {
		if to[i] > 0 && !math.IsNaN(of[i]) {
			all = append(all, of[i]/to[i])
		}
	}
	return all
}

// Times returns the median of the ratios, such as "2.10×", or "" if there is none.
func Times(of, to []float64) string {
	q := Ratios(of, to)
	if len(q) == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f×", median(q))
}

// Differences subtracts round by round.
func Differences(of, less []float64) []float64 {
	all := make([]float64, min(len(of), len(less)))
	for i := range all {
		all[i] = of[i] - less[i]
	}
	return all
}

// Present leaves NaN out.
func Present(values []float64) []float64 {
	return slices.DeleteFunc(slices.Clone(values), math.IsNaN)
}
