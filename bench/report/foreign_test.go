package report

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"xpyd/bench/result"
	"xpyd/internal/racetest"
)

// A run that is written in the form of another tool is read with the same figures.
func TestForeignResultsAreRead(t *testing.T) {
	racetest.SkipPure(t)
	for _, name := range []string{"cap", "rate"} {
		own, err := result.Load(filepath.Join("testdata", name+".run.json"))
		if err != nil {
			t.Fatal(err)
		}
		for _, format := range []string{"vllm-json", "inference-perf", "llm-d-0.1", "llm-d-0.2"} {
			t.Run(name+" "+format, func(t *testing.T) {
				got := foreignRun(t, own, format)
				near := func(what string, a, b float64) {
					if math.IsNaN(a) || math.Abs(a-b) > 1e-3*math.Abs(b)+1e-6 {
						t.Errorf("%s: %v, the run has %v", what, a, b)
					}
				}
				was, is := own.Totals, got.Totals
				near("duration", float64(got.DurationUS), float64(own.DurationUS))
				near("completed", float64(is.Completed), float64(was.Completed))
				near("failed", float64(is.Failed), float64(was.Failed))
				near("input tokens", float64(is.InputTokens), float64(was.InputTokens))
				near("output tokens", float64(is.OutputTokens), float64(was.OutputTokens))
				near("requests a second", is.RequestRate, was.RequestRate)
				near("output tokens a second", is.OutputRate, was.OutputRate)
				near("tokens a second", is.TotalRate, was.TotalRate)
				if format != "inference-perf" || own.Config.Rate == nil { // it has one or the other
					near("cap", float64(got.Config.Concurrency), float64(own.Config.Concurrency))
				}
				if (got.Config.Rate == nil) != (own.Config.Rate == nil) && format != "inference-perf" {
					t.Errorf("rate %v, the run has %v", got.Config.Rate, own.Config.Rate)
				}
				for _, metric := range own.Config.Metrics {
					if slices.Contains([]string{result.Queue, result.E2ELQueue}, metric) {
						continue
					}
					v, g := own.Values(metric), got.Figures(metric)
					near(metric+" mean", g.Mean(), v.Mean())
					near(metric+" median", g.Median(), v.Median())
					for _, p := range own.Config.Percentiles {
						near(metric+" P"+percentile(p), g.Percentile(p), v.Percentile(p))
					}
				}
			})
		}
	}
}

// foreignRun writes a run in a format and reads it.
func foreignRun(t *testing.T, run *result.Run, format string) *result.Run {
	t.Helper()
	files, err := Files(format, []*result.Run{run}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(files, func(f File) bool { // of one run, not of all
		return strings.HasPrefix(f.Name, "stage") || strings.HasPrefix(f.Name, "benchmark") || format == "vllm-json"
	})
	if at < 0 {
		t.Fatalf("%d files", len(files))
	}
	path := filepath.Join(t.TempDir(), filepath.Base(files[at].Name))
	if err := os.WriteFile(path, files[at].Data, 0o600); err != nil {
		t.Fatal(err)
	}
	runs, err := result.LoadAll([]string{path})
	if err != nil || len(runs) != 1 {
		t.Fatal(runs, err)
	}
	return runs[0]
}

// What another tool has not saved is no 0. A format that shows single requests says so.
func TestForeignResultsBesideOwn(t *testing.T) {
	dir := t.TempDir()
	theirs := filepath.Join(dir, "baseline.json")
	text := `{"date": "20250902-130810", "backend": "vllm", "model_id": "Qwen2-7B", "num_prompts": 10, "request_rate": "inf", "burstiness": 1.0,
		"max_concurrency": null, "duration": 46.96, "completed": 10, "total_input_tokens": 10239, "total_output_tokens": 10240, "request_throughput": 0.21,
		"output_throughput": 218.04, "total_token_throughput": 436.07, "mean_ttft_ms": 2111.51, "median_ttft_ms": 2244.91, "std_ttft_ms": 1.0, "p99_ttft_ms": 3346.14,
		"mean_tpot_ms": 43.77, "median_tpot_ms": 43.65, "std_tpot_ms": 1.0, "p99_tpot_ms": 45.56, "mean_itl_ms": 43.77, "median_itl_ms": 42.39, "std_itl_ms": 1.0, "p99_itl_ms": 51.04}`
	if err := os.WriteFile(theirs, []byte(text+"\n"+text), 0o600); err != nil {
		t.Fatal(err)
	}
	runs, err := result.LoadAll([]string{filepath.Join("testdata", "rate.run.json"), theirs})
	if err != nil || len(runs) != 3 {
		t.Fatal(runs, err)
	}
	for format, want := range map[string][]string{
		"table": {" baseline   inf    -  10       0   0.21  218.04   2244.91  3346.14     43.65  45.56    51.04         –       –"},
		"csv":   {",2111.51,2244.91,1,,,3346.14,,"},
		"vllm":  {"Median TTFT (ms):                        2244.91   \nP99 TTFT (ms):                           3346.14   \n---", "Total input tokens:                      10239"},
		"ray":   {"baseline"},
	} {
		var b strings.Builder
		if err := PrintAs(&b, format, runs, Options{}); err != nil {
			t.Fatal(err)
		}
		for _, line := range want {
			if !strings.Contains(b.String(), line) {
				t.Errorf("%s lacks %q:\n%s", format, line, b.String())
			}
		}
		if strings.Contains(b.String(), "NaN") {
			t.Errorf("%s:\n%s", format, b.String())
		}
	}
	for _, format := range []string{"html", "vllm-json", "llm-d-0.1", "inference-perf"} {
		if _, err := Files(format, runs, Options{}); err == nil || !strings.Contains(err.Error(), "the result baseline of vllm bench serve does not have") {
			t.Errorf("%s: %v", format, err)
		}
	}
	if err := os.WriteFile(theirs, []byte(`{"a": 1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := result.LoadAll([]string{theirs}); err == nil || !strings.Contains(err.Error(), "baseline.json: it is not a result of vllm bench serve") {
		t.Error(err)
	}
}
