package report

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
)

// Series is a figure's values, a round each; NaN, in JSON null, where there is none.
type Series []float64

// MarshalJSON writes NaN as null.
func (s Series) MarshalJSON() ([]byte, error) {
	all := make([]*float64, len(s))
	for i := range s {
		if !math.IsNaN(s[i]) {
			all[i] = &s[i]
		}
	}
	b, err := json.Marshal(all)
	if err != nil {
		panic("BUG: numbers that cannot be JSON: " + err.Error())
	}
	return b, nil
}

// UnmarshalJSON reads null as NaN.
func (s *Series) UnmarshalJSON(b []byte) error {
	var all []*float64
	if err := json.Unmarshal(b, &all); err != nil {
		return fmt.Errorf("read values: %w", err)
	}
	*s = make(Series, len(all))
	for i, v := range all {
		(*s)[i] = math.NaN()
		if v != nil {
			(*s)[i] = *v
		}
	}
	return nil
}

// Short writes three digits that count.
func Short(v float64) string {
	switch a := math.Abs(v); {
	case a >= 99.5:
		return Thousands(int64(math.Round(v)))
	case a >= 9.95:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// ThreeDecimals is for ratios near 1.
func ThreeDecimals(v float64) string { return fmt.Sprintf("%.3f", v) }

// Thousands puts a comma before each three digits.
func Thousands(v int64) string {
	if v < 0 {
		return "-" + Thousands(-v)
	}
	s := fmt.Sprint(v)
	var parts []string
	for len(s) > 3 {
		parts = append([]string{s[len(s)-3:]}, parts...)
		s = s[:len(s)-3]
	}
	return strings.Join(append([]string{s}, parts...), ",")
}
