package report

import (
	"math"
	"strconv"
	"strings"
)

// pyFloat is a float as Python writes it: 2.0, 0.5, 1e-05. Readers that tell floats from integers get
// the same as from vLLM.
type pyFloat float64

// MarshalJSON writes Python's repr.
func (f pyFloat) MarshalJSON() ([]byte, error) { return []byte(f.String()), nil }

func (f pyFloat) String() string {
	x := float64(f)
	if a := math.Abs(x); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.FormatFloat(x, 'e', -1, 64)
	}
	s := strconv.FormatFloat(x, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// percentile is 99 for 99.0 and 99.9 for 99.9.
func percentile(p float64) string { return strconv.FormatFloat(p, 'f', -1, 64) }

// rate is a request rate as text; "inf" if there is none.
func rate(r *float64) string {
	if r == nil {
		return "inf"
	}
	return pyFloat(*r).String()
}
