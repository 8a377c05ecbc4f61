package report

import (
	"strings"
	"testing"
)

// The targets stand side by side, a line for each concurrency. What was not run is a dash.
func TestLoadTables(t *testing.T) {
	runs := sweep(t)
	got := printed(t, "loads", runs...)
	for _, want := range []string{
		"ratios mixed 512:4, closed loop, medians of the repeats\n", "   output tok/s  collocated   1P1D    2P1D\n",
		"  concurrency 1       42.80  40.09   39.97\n", "  concurrency 3      120.03  78.25  101.03\n", "   TTFT p99, ms  collocated    1P1D   2P1D\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	few := runs[:0:0]
	for _, r := range runs {
		if r.Config.Cell.Target != "2P1D" || r.Config.Concurrency == 1 {
			few = append(few, r)
		}
	}
	if got := printed(t, "loads", few...); !strings.Contains(got, "  concurrency 3      120.03  78.25      –\n") {
		t.Error(got)
	}
}
