package tally

import (
	"testing"
	"time"
)

func TestHistogramQuantiles(t *testing.T) {
	var h Histogram
	if h.Quantile(.99) != 0 {
		t.Error("an empty histogram has a quantile")
	}
	for i := range 100 {
		h.Observe(time.Duration(i) * time.Millisecond)
	}
	h.Observe(time.Hour)
	if got := h.Quantile(.5); got != 51*time.Millisecond {
		t.Errorf("median %v", got)
	}
	if got := h.Quantile(.999); got != (top+1)*time.Millisecond {
		t.Errorf("p99.9 %v", got)
	}
}
