package versus

import (
	"math"
	"testing"
)

func same(a, b float64) bool { return a == b || math.IsNaN(a) && math.IsNaN(b) }

func TestPercentileIsTheNearestRank(t *testing.T) {
	hundred := make([]int64, 100)
	for i := range hundred {
		hundred[i] = int64(i+1) * 1000 // 1 to 100 µs
	}
	for _, tc := range []struct {
		sorted  []int64
		p, want float64 // µs
	}{
		{nil, 50, math.NaN()},
		{[]int64{7000}, 99.9, 7},
		{[]int64{7000}, 0, 7},
		{hundred, 50, 50},
		{hundred, 99, 99},
		{hundred, 99.9, 100},
		{hundred, 100, 100},
	} {
		if got := percentile(tc.sorted, tc.p); !same(got, tc.want) {
			t.Errorf("percentile %g of %d values: %v µs, want %v", tc.p, len(tc.sorted), got, tc.want)
		}
	}
}

func TestDifferencesAreOfTheSameRound(t *testing.T) {
	nan := math.NaN()
	less := differences([]float64{5, nan, 7}, []float64{1, 1})
	if len(less) != 2 || less[0] != 4 || !math.IsNaN(less[1]) {
		t.Errorf("differences %v, want 4 and NaN", less)
	}
}
