package report

import (
	"math"
	"slices"
	"testing"
	"time"
)

func same(a, b float64) bool { return a == b || math.IsNaN(a) && math.IsNaN(b) }

func TestMedian(t *testing.T) {
	for _, tc := range []struct {
		name   string
		values []float64
		want   float64
	}{
		{"none", nil, math.NaN()},
		{"one", []float64{3}, 3},
		{"odd, unsorted", []float64{9, 1, 4}, 4},
		{"even", []float64{9, 1, 4, 5}, 4.5},
	} {
		given := slices.Clone(tc.values)
		if got := median(tc.values); !same(got, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
		if !slices.Equal(given, tc.values) {
			t.Errorf("%s: the values were reordered to %v", tc.name, tc.values)
		}
	}
}

// A round that failed on either side makes no ratio, and moves no other one.
func TestRatiosAreOfTheSameRound(t *testing.T) {
	nan := math.NaN()
	got := Ratios([]float64{2, nan, 9, 8}, []float64{1, 5, nan, 4})
	if want := []float64{2, 2}; !slices.Equal(got, want) {
		t.Errorf("ratios %v, want %v", got, want)
	}
	if got := Ratios([]float64{2}, []float64{0}); len(got) != 0 {
		t.Errorf("ratio to nothing: %v", got)
	}
}

func TestTimes(t *testing.T) {
	if got := Times([]float64{4, 6}, []float64{2, 2}); got != "2.50×" {
		t.Errorf("%q, want the median of 2 and 3", got)
	}
	if got := Times([]float64{4}, nil); got != "" {
		t.Errorf("without a baseline: %q", got)
	}
}

func TestDifferencesAreOfTheSameRound(t *testing.T) {
	nan := math.NaN()
	less := Differences([]float64{5, nan, 7}, []float64{1, 1})
	if len(less) != 2 || less[0] != 4 || !math.IsNaN(less[1]) {
		t.Errorf("differences %v, want 4 and NaN", less)
	}
}

func TestPercentileIsTheNearestRank(t *testing.T) {
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(i+1) * time.Microsecond
	}
	for _, tc := range []struct {
		sorted  []time.Duration
		p, want float64 // µs
	}{
		{nil, 50, math.NaN()},
		{hundred[6:7], 99.9, 7},
		{hundred[6:7], 0, 7},
		{hundred, 50, 50},
		{hundred, 99, 99},
		{hundred, 99.9, 100},
		{hundred, 100, 100},
	} {
		if got := Percentile(tc.sorted, tc.p, time.Microsecond); !same(got, tc.want) {
			t.Errorf("percentile %g of %d values: %v µs, want %v", tc.p, len(tc.sorted), got, tc.want)
		}
	}
}

func TestShortNumbers(t *testing.T) {
	for v, want := range map[float64]string{
		0.4: "0.40", 9.949: "9.95", 9.96: "10.0", 99.4: "99.4", 99.6: "100", 1234.4: "1,234", 1234567: "1,234,567", -4321: "-4,321", 999: "999",
	} {
		if got := Short(v); got != want {
			t.Errorf("Short(%g) = %q, want %q", v, got, want)
		}
	}
}
