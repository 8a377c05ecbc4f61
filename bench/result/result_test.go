package result

import (
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// TestValues compares with figures of numpy 2.
func TestValues(t *testing.T) {
	v := NewValues([]float64{7, 1, 4, 2, 10})
	for p, want := range map[float64]float64{0: 1, 0.1: 1.004, 25: 2, 50: 4, 90: 8.8, 99: 9.88, 99.9: 9.988, 100: 10} {
		if got := v.Percentile(p); math.Abs(got-want) > 1e-9 {
			t.Errorf("percentile %v: %v, want %v", p, got, want)
		}
	}
	if v.Mean() != 4.8 || math.Abs(v.Std()-3.3105890714493698) > 1e-12 || v.Min() != 1 || v.Max() != 10 {
		t.Errorf("mean %v, std %v, min %v, max %v", v.Mean(), v.Std(), v.Min(), v.Max())
	}
	if none := NewValues(nil); none.Mean() != 0 || none.Std() != 0 || none.Percentile(99) != 0 {
		t.Error("no values have statistics other than 0")
	}
}

// sample is a run of four requests: two whole answers, one that failed in the middle of a good
// stream, and one that the tool broke off.
func sample() *Run {
	return &Run{
		Schema: Schema, Started: time.Unix(1700000000, 0).UTC(), DurationUS: 2_000_000,
		Config: Config{Goodput: map[string]float64{TTFT: 100, TPOT: 50}, Metrics: []string{TTFT}, Percentiles: []float64{99}},
		Records: []Record{
			{ID: "0", StartUS: 0, SentUS: 500, TTFTUS: 100_000, E2ELUS: 300_000, ITLUS: []int64{150_000, 50_000}, Prompt: 10, Output: 5, AskedOut: 5, Cached: 8},
			{ID: "1", DueUS: 100_000, StartUS: 200_000, SentUS: 200_000, TTFTUS: 50_000, E2ELUS: 50_000, Prompt: 20, Output: 1, AskedOut: 5},
			{ID: "2", StartUS: 200_000, SentUS: 201_000, TTFTUS: 1, E2ELUS: 2, ITLUS: []int64{1, 1, 1}, AskedOut: 5, Failure: "cut"},
			{ID: "3", StartUS: 300_000, SentUS: 300_000, Failure: Interrupted},
		},
	}
}

func TestTotals(t *testing.T) {
	r := sample()
	r.Sum()
	got := *r.Totals
	stats := got.MS
	got.MS = nil
	good := 1.0
	want := Totals{
		Completed: 2, Failed: 1, Cut: 1, Failures: map[string]int{"cut": 1}, Short: 1, InputTokens: 30, OutputTokens: 6, CachedTokens: 8, Events: 4,
		RequestRate: 1, OutputRate: 3, TotalRate: 18, GoodRate: &good, PeakOutput: 4, PeakOpen: 2, MostOpen: 3,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("totals\n%+v, want\n%+v", got, want)
	}
	for metric, mean := range map[string]float64{TTFT: 75, TPOT: 50, ITL: 100, E2EL: 175, NTPOT: 55, Queue: 50, E2ELQueue: 225, Lateness: 0.375} {
		if stats[metric].Mean != mean {
			t.Errorf("mean %s %v, want %v", metric, stats[metric].Mean, mean)
		}
	}
}

// TestMostOpenIsOfHalfOpenIntervals: an answer that begins when another ends does not overlap it.
func TestMostOpenIsOfHalfOpenIntervals(t *testing.T) {
	r := &Run{DurationUS: 1, Records: []Record{{StartUS: 0, E2ELUS: 10}, {StartUS: 10, E2ELUS: 10}}}
	if r.Sum(); r.Totals.MostOpen != 1 {
		t.Errorf("%d open", r.Totals.MostOpen)
	}
}

// TestPeakIsOfSeconds: vllm bench serve counts the answers of which a part falls into a second, from the first start on
// (calculate_metrics in vllm/benchmarks/serve.py).
func TestPeakIsOfSeconds(t *testing.T) {
	const second = 1_000_000
	r := &Run{DurationUS: 4 * second, Config: Config{Concurrency: 2}, Records: []Record{
		{StartUS: 5 * second, E2ELUS: second / 2}, {StartUS: 5*second + second/2, E2ELUS: second/2 + 1}, // ends in the next second
		{StartUS: 6*second + 1, E2ELUS: 1}, {StartUS: 6*second + second/2, E2ELUS: 1},
		{StartUS: 6 * second, E2ELUS: 1, Failure: "cut"}, // no whole answer
	}}
	if r.Sum(); r.Totals.PeakOpen != 3 || r.Totals.MostOpen != 2 || r.Unreached() {
		t.Errorf("peak %d, %d open", r.Totals.PeakOpen, r.Totals.MostOpen)
	}
	if r.Config.Concurrency = 3; !r.Unreached() {
		t.Error("three were never open at once")
	}
}

func TestSavedRunIsTheRun(t *testing.T) {
	r := sample()
	r.Sum()
	dir := t.TempDir()
	if err := r.Save(filepath.Join(dir, "b"+Suffix)); err != nil {
		t.Fatal(err)
	}
	earlier := sample()
	earlier.Started = earlier.Started.Add(-time.Hour)
	if err := earlier.Save(filepath.Join(dir, "c"+Suffix)); err != nil {
		t.Fatal(err)
	}
	runs, err := LoadDir(dir)
	if err != nil || len(runs) != 2 {
		t.Fatal(runs, err)
	}
	if !reflect.DeepEqual(runs[1], r) || !runs[0].Started.Equal(earlier.Started) {
		t.Errorf("loaded\n%+v, want\n%+v", runs[1], r)
	}
	r.Schema = "xpyd-bench-run/0"
	if err := r.Save(filepath.Join(dir, "d"+Suffix)); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadDir(dir); err == nil {
		t.Error("a run of another schema was read")
	}
}

// The lines of engines are beside the run, and a run without them has no such file.
func TestSaveKeepsTheLinesOfEngines(t *testing.T) {
	dir := t.TempDir()
	run := &Run{Schema: Schema, EngineLines: []string{"2026-11-28T16:00:00.000Z P Engine 000", "2026-11-28T16:00:10.000Z P Engine 000"}}
	if err := run.Save(filepath.Join(dir, "a"+Suffix)); err != nil {
		t.Fatal(err)
	}
	if err := (&Run{Schema: Schema}).Save(filepath.Join(dir, "b"+Suffix)); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "a"+LinesSuffix))
	if names, _ := filepath.Glob(filepath.Join(dir, "*"+LinesSuffix)); err != nil || len(names) != 1 || string(text) != strings.Join(run.EngineLines, "\n")+"\n" {
		t.Errorf("%q, %v, %v", text, names, err)
	}
}
