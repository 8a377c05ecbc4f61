package plot

import (
	"math"
	"strconv"

	gonum "gonum.org/v1/plot"
)

// ticks are round numbers, with thousands as k. A logarithmic axis has 1, 2 and 5 of each decade,
// or, over less than a decade, what a linear one has.
type ticks struct{ log bool }

// Ticks implements gonum's plot.Ticker.
func (t ticks) Ticks(low, high float64) []gonum.Tick {
	var all []gonum.Tick
	if t.log {
		for decade := math.Floor(math.Log10(low)); decade <= math.Log10(high); decade++ {
			for _, digit := range []float64{1, 2, 5} {
				if x := digit * math.Pow(10, decade); x >= low && x <= high {
					all = append(all, gonum.Tick{Value: x, Label: number(x)})
				}
			}
		}
		if len(all) >= 3 {
			return all
		}
		all = nil
	}
	step := roundStep((high - low) / 5)
	for i := math.Ceil(low / step); i*step <= high; i++ {
		all = append(all, gonum.Tick{Value: i * step, Label: number(i * step)})
	}
	return all
}

// fixed are ticks at measured values, as far as there is room for them.
type fixed []float64

// Ticks implements gonum's plot.Ticker.
func (f fixed) Ticks(low, high float64) []gonum.Tick {
	var all []gonum.Tick
	last := math.Inf(-1)
	for _, x := range f {
		if x-last >= (high-low)/9 {
			all = append(all, gonum.Tick{Value: x, Label: number(x)})
			last = x
		}
	}
	return all
}

// roundStep is the lowest of 1, 2 and 5 times a power of ten that is not below x.
func roundStep(x float64) float64 {
	if !(x > 0) {
		return 1
	}
	decade := math.Pow(10, math.Floor(math.Log10(x)))
	for _, digit := range []float64{1, 2, 5} {
		if digit*decade >= x*(1-1e-9) {
			return digit * decade
		}
	}
	return 10 * decade
}

// roundBelow is the highest of 1, 2 and 5 times a power of ten that is not above x.
func roundBelow(x float64) float64 {
	up := roundStep(x)
	if up <= x {
		return up
	}
	return roundStep(up / 2.5)
}

// number has four significant digits, with thousands as k.
func number(x float64) string {
	if math.Abs(x) >= 10_000 {
		return strconv.FormatFloat(x/1000, 'g', 4, 64) + "k"
	}
	return strconv.FormatFloat(x, 'g', 4, 64)
}
