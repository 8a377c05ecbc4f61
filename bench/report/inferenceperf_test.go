package report

import (
	"bytes"
	"encoding/json"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"xpyd/bench/result"
	"xpyd/internal/racetest"
)

// members of the summary in the published guide, in its order. * stands for the members of statistics.
const guideSummary = `load_summary.count load_summary.schedule_delay.* successes.count
successes.latency.request_latency.* successes.latency.normalized_time_per_output_token.* successes.latency.time_per_output_token.*
successes.latency.time_to_first_token.* successes.latency.inter_token_latency.*
successes.throughput.input_tokens_per_sec successes.throughput.output_tokens_per_sec successes.throughput.total_tokens_per_sec successes.throughput.requests_per_sec
successes.prompt_len.* successes.output_len.* failures.count failures.request_latency failures.prompt_len`

const guideStatistics = "mean min max p0.1 p1 p5 p10 p25 median p75 p90 p95 p99 p99.9"

// newer are the members that later versions have and the guide's does not.
func newer(path string) bool {
	for _, prefix := range []string{"benchmark_time_seconds", "successes.prompt_tokens", "successes.output_tokens", "failures.prompt_tokens", "failures.by_label"} {
		if strings.HasPrefix(path, prefix) {
			return true
		}
	}
	return false
}

// paths are an object's leaves in order.
func paths(t *testing.T, text string) (all []string) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	var walk func(path string)
	walk = func(path string) {
		token, err := d.Token()
		if err != nil {
			t.Fatal(err)
		}
		if token != json.Delim('{') {
			all = append(all, path)
			return
		}
		for d.More() {
			key, err := d.Token()
			if err != nil {
				t.Fatal(err)
			}
			walk(strings.TrimPrefix(path+"."+key.(string), "."))
		}
		if _, err := d.Token(); err != nil {
			t.Fatal(err)
		}
	}
	walk("")
	return all
}

// TestSummaryIsInferencePerfs: the members of the published summary, in its order and indentation.
func TestSummaryIsInferencePerfs(t *testing.T) {
	var want []string
	for _, path := range strings.Fields(guideSummary) {
		head, all := strings.CutSuffix(path, "*")
		if !all {
			want = append(want, path)
			continue
		}
		for _, stat := range strings.Fields(guideStatistics) {
			want = append(want, head+stat)
		}
	}
	text := printed(t, "inference-perf", saved(t, "rate"))
	var got []string
	for _, path := range paths(t, text) {
		if !newer(path) {
			got = append(got, path)
		}
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("members\n%q, want\n%q", got, want)
	}
	if !strings.Contains(text, "{\n  \"benchmark_time_seconds\": 3.363553,\n  \"load_summary\": {\n    \"count\": 60,\n    \"schedule_delay\": {\n      \"mean\": 0.00") {
		t.Errorf("layout:\n%.300s", text)
	}
}

// perf has the members of a lifecycle report that the tests check.
type perf struct {
	Load struct {
		Count       int
		Requested   float64 `json:"requested_rate"`
		Achieved    float64 `json:"achieved_rate"`
		Concurrency int
	} `json:"load_summary"`
	Successes struct {
		Count   int
		Latency map[string]map[string]float64
		Rates   map[string]float64 `json:"throughput"`
	}
	Failures struct {
		Count   int
		Request map[string]float64             `json:"request_latency"`
		ByLabel map[string]struct{ Count int } `json:"by_label"`
	}
}

func readPerf(t *testing.T, text string) (p perf) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return p
}

// TestSummaryHasSeconds: the other formats have milliseconds.
func TestSummaryHasSeconds(t *testing.T) {
	r := saved(t, "rate")
	p := readPerf(t, printed(t, "inference-perf", r))
	for name, metric := range map[string]string{"time_to_first_token": result.TTFT, "time_per_output_token": result.TPOT, "inter_token_latency": result.ITL,
		"request_latency": result.E2EL, "normalized_time_per_output_token": result.NTPOT} {
		want, got := r.Totals.MS[metric], p.Successes.Latency[name]
		if !near(got["mean"]*1000, want.Mean) || !near(got["median"]*1000, want.Median) || !near(got["p99"]*1000, want.P99) || !near(got["max"]*1000, want.Max) {
			t.Errorf("%s is %v s, want of %+v ms", name, got, want)
		}
	}
	if !near(p.Successes.Rates["output_tokens_per_sec"], r.Totals.OutputRate) || !near(p.Successes.Rates["input_tokens_per_sec"], 15360/3.363553) {
		t.Errorf("rates %v", p.Successes.Rates)
	}
}

func near(a, b float64) bool { return a-b < 1e-9*(1+b) && b-a < 1e-9*(1+b) }

// TestSummaryCountsFailures: they have inference-perf's labels, and are in no latency.
func TestSummaryCountsFailures(t *testing.T) {
	p := readPerf(t, printed(t, "inference-perf", failed(t)))
	if p.Successes.Count != 48 || p.Failures.Count != 11 || p.Load.Count != 60 || p.Failures.ByLabel["429 - Rate Limit"].Count != 10 || p.Failures.ByLabel["no_usage"].Count != 1 || p.Failures.Request["mean"] <= 0 {
		t.Errorf("%+v", p)
	}
}

// TestInferencePerfFiles: a folder for each target with a file for each run, and the plots of all
// targets, 900 pixels wide.
func TestInferencePerfFiles(t *testing.T) {
	racetest.SkipPure(t)
	files := filesOf(t, "inference-perf", sweep(t))
	want := map[string]bool{}
	for _, target := range []string{"collocated", "1P1D", "2P1D"} {
		for _, name := range []string{"summary", "stage_0", "stage_1", "stage_2", "stage_3"} {
			want["mixed-512-4-"+target+"/"+name+"_lifecycle_metrics.json"] = true
		}
	}
	for _, name := range []string{"latency_vs_concurrency", "throughput_vs_concurrency", "throughput_vs_latency"} {
		want[name+".png"], want[name+".svg"] = true, true
	}
	for name := range want {
		if files[name] == "" {
			t.Errorf("no file %s", name)
		}
	}
	if len(files) != len(want) {
		t.Errorf("%d files, want %d", len(files), len(want))
	}
	for name, data := range files {
		if filepath.Ext(name) != ".png" {
			continue
		}
		if c, err := png.DecodeConfig(bytes.NewReader([]byte(data))); err != nil || c.Width != 900 {
			t.Errorf("%s is %d pixels wide: %v", name, c.Width, err)
		}
	}
	// Runs come in the order in which they were made: concurrency 1, 3, 1, 3.
	stage := readPerf(t, files["mixed-512-4-1P1D/stage_1_lifecycle_metrics.json"])
	summary := readPerf(t, files["mixed-512-4-1P1D/summary_lifecycle_metrics.json"])
	if stage.Load.Concurrency != 3 || stage.Load.Requested != 6 || stage.Load.Achieved <= 0 || stage.Successes.Count != 6 || summary.Successes.Count != 24 {
		t.Errorf("stage %+v, summary %+v", stage.Load, summary.Load)
	}
	open := readPerf(t, filesOf(t, "inference-perf", []*result.Run{saved(t, "rate")})["stage_0_lifecycle_metrics.json"])
	if open.Load.Concurrency != 0 || open.Load.Requested != 20 {
		t.Errorf("a run with a rate: %+v", open.Load)
	}
}

// TestMooncakeFiles: they have the names that Mooncake's scripts give.
func TestMooncakeFiles(t *testing.T) {
	files := filesOf(t, "mooncake", []*result.Run{saved(t, "rate"), saved(t, "rate")})
	for _, name := range []string{"mooncake.md", "disagg_prefill-qps-20.json", "disagg_prefill-qps-20-2.json"} {
		if files[name] == "" {
			t.Errorf("no %s", name)
		}
	}
	files = filesOf(t, "mooncake", sweep(t))
	if len(files) != 13 || !strings.Contains(files["mixed-512-4-2P1D/disagg_prefill-concurrency-3-2.json"], `"max_concurrency": 3`) {
		t.Errorf("%d files", len(files))
	}
}

// TestOneLoadNeedsNoColumn: the table has 17 columns then, and 18 otherwise.
func TestOneLoadNeedsNoColumn(t *testing.T) {
	head, err := os.ReadFile(filepath.Join("testdata", "mooncake.head.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for columns, runs := range map[int][]*result.Run{17: {saved(t, "rate")}, 18: {saved(t, "rate"), saved(t, "cap")}} {
		for _, line := range strings.Split(printed(t, "mooncake", runs...), "\n") {
			if !strings.HasPrefix(line, "|") {
				continue
			}
			var cells []string
			for _, cell := range strings.Split(strings.Trim(line, "|"), "|") {
				cells = append(cells, strings.TrimSpace(cell))
			}
			if got := strings.Join(cells[columns-17:], " | "); len(cells) != columns || got != strings.TrimSpace(string(head)) {
				t.Errorf("%d columns: %s, want %d: %s", len(cells), got, columns, head)
			}
			break
		}
	}
}
