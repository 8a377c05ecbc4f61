package result

import (
	"math"
	"slices"
)

// Values are sorted figures of one metric.
type Values []float64

// NewValues sorts v and keeps it.
func NewValues(v []float64) Values {
	slices.Sort(v)
	return v
}

// Mean is 0 for no values, because vLLM then prints numpy's statistics of [0].
func (v Values) Mean() float64 {
	if len(v) == 0 {
		return 0
	}
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	return sum / float64(len(v))
}

// Std is the deviation of the population.
func (v Values) Std() float64 {
	if len(v) == 0 {
		return 0
	}
	mean, sum := v.Mean(), 0.0
	for _, x := range v {
		sum += (x - mean) * (x - mean)
	}
	return math.Sqrt(sum / float64(len(v)))
}

// Percentile interpolates linearly at rank (n-1)·p/100, as numpy does.
func (v Values) Percentile(p float64) float64 {
	if len(v) == 0 {
		return 0
	}
	rank := p / 100 * float64(len(v)-1)
	low := int(math.Floor(rank))
	if low >= len(v)-1 {
		return v[len(v)-1]
	}
	return v[low] + (v[low+1]-v[low])*(rank-float64(low))
}

// Median is the 50th percentile.
func (v Values) Median() float64 { return v.Percentile(50) }

// Min is 0 for no values.
func (v Values) Min() float64 { return v.Percentile(0) }

// Max is 0 for no values.
func (v Values) Max() float64 { return v.Percentile(100) }
