package result

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Given are a metric's statistics as another tool has saved them, without the single values, in ms. One that it has not
// saved is not there.
type Given struct {
	Stats       map[string]float64 // "mean", "std", "min" and "max"
	Percentiles map[float64]float64
}

// Figures are what a report says of a metric.
type Figures interface {
	Mean() float64
	Median() float64
	Std() float64
	Percentile(p float64) float64
}

func (g Given) stat(name string) float64 {
	if x, ok := g.Stats[name]; ok {
		return x
	}
	return math.NaN()
}

// Mean is NaN if the tool has not saved it, as are the others.
func (g Given) Mean() float64 { return g.stat("mean") }

// Std is the deviation of the population.
func (g Given) Std() float64 { return g.stat("std") }

// Median is the 50th percentile.
func (g Given) Median() float64 { return g.Percentile(50) }

// Percentile is only known where the tool has saved it.
func (g Given) Percentile(p float64) float64 {
	if x, ok := g.Percentiles[p]; ok {
		return x
	}
	return math.NaN()
}

// Figures are those of the run's records, or those that another tool has saved.
func (r *Run) Figures(metric string) Figures {
	if !r.Foreign() {
		return r.Values(metric)
	}
	return r.Given[metric]
}

// Foreign reports that the run is the file of another tool, without records of single requests.
func (r *Run) Foreign() bool { return r.Given != nil }

// foreign reads the result files of other tools: of vllm bench serve and benchmark_serving.py (several objects in a file
// are several runs), of inference-perf, and llm-d's benchmark reports.
func foreign(path string, b []byte) (runs []*Run, err error) {
	if ext := filepath.Ext(path); ext == ".yaml" || ext == ".yml" {
		r, err := llmdRun(b)
		return []*Run{r}, err
	}
	for in := json.NewDecoder(bytes.NewReader(b)); ; {
		var object map[string]any
		if err := in.Decode(&object); errors.Is(err, io.EOF) && len(runs) > 0 {
			return runs, nil
		} else if err != nil {
			return nil, fmt.Errorf("it is no JSON object: %w", err)
		}
		o := saved(object)
		switch {
		case o.has("request_throughput") && o.has("mean_ttft_ms"):
			runs = append(runs, vllmRun(o))
		case o.has("load_summary") && o.has("successes"):
			runs = append(runs, perfRun(o))
		default:
			return nil, errors.New("it is not a result of vllm bench serve, of inference-perf or of llm-d")
		}
	}
}

// saved is an object of a file.
type saved map[string]any

func (o saved) has(name string) bool { return o[name] != nil }

// at is the value at a path such as "successes.latency"; nil for none.
func (o saved) at(path string) any {
	var at any = map[string]any(o)
	for name := range strings.SplitSeq(path, ".") {
		m, ok := at.(map[string]any)
		if !ok {
			return nil
		}
		at = m[name]
	}
	return at
}

// number is a number of the file, which may stand in a text; NaN for none.
func (o saved) number(path string) float64 { return number(o.at(path)) }

func number(of any) float64 {
	switch x := of.(type) {
	case float64:
		return x
	case int:
		return float64(x)
	case string:
		if f, err := strconv.ParseFloat(x, 64); err == nil {
			return f
		}
	}
	return math.NaN()
}

func (o saved) count(path string) int {
	if x := o.number(path); !math.IsNaN(x) && !math.IsInf(x, 0) {
		return int(math.Round(x))
	}
	return 0
}

func (o saved) text(path string) string {
	s, _ := o.at(path).(string)
	return s
}

// rate is a request rate: nil for all at once.
func rate(x float64) *float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) || x <= 0 {
		return nil
	}
	return &x
}

// given reads statistics by the names that a tool has for them. A percentile's name is prefix and its number, with a point
// or, as in llm-d's reports, a p. scale makes ms.
func (o saved) given(path string, scale float64, name func(stat string) string) (g Given, ok bool) {
	g = Given{map[string]float64{}, map[float64]float64{}}
	m, _ := o.at(path).(map[string]any)
	for _, stat := range []string{"mean", "median", "std", "min", "max"} {
		if x := number(m[name(stat)]); !math.IsNaN(x) {
			g.Stats[stat] = x * scale
		}
	}
	for _, p := range []float64{0.1, 1, 5, 10, 25, 50, 75, 90, 95, 99, 99.9} {
		if x := number(m[name("p"+strconv.FormatFloat(p, 'g', -1, 64))]); !math.IsNaN(x) {
			g.Percentiles[p] = x * scale
		}
	}
	if median, ok := g.Stats["median"]; ok {
		delete(g.Stats, "median")
		g.Percentiles[50] = median
	}
	return g, len(g.Stats)+len(g.Percentiles) > 0
}

// newForeign makes a run of totals and statistics.
func newForeign(tool string, c Config, t Totals, seconds float64, given map[string]Given) *Run {
	t.MS = map[string]Stat{}
	if t.PeakOutput == 0 {
		t.PeakOutput = math.NaN()
	}
	c.Metrics, c.Percentiles = nil, nil
	for _, metric := range Metrics() {
		g, ok := given[metric]
		if !ok {
			g = Given{}
		} else if metric != NTPOT {
			c.Metrics = append(c.Metrics, metric)
		}
		t.MS[metric] = Stat{Mean: g.Mean(), Median: g.Median(), Std: g.Std(), Min: g.stat("min"), P90: g.Percentile(90), P99: g.Percentile(99), Max: g.stat("max")}
	}
	for _, p := range []float64{0.1, 1, 5, 10, 25, 75, 90, 95, 99, 99.9} {
		if _, ok := given[TTFT].Percentiles[p]; ok {
			c.Percentiles = append(c.Percentiles, p)
		}
	}
	if t.Completed > 0 {
		c.InputLen, c.OutputLen = t.InputTokens/t.Completed, t.OutputTokens/t.Completed
	}
	return &Run{Schema: Schema, Tool: tool, Config: c, Totals: &t, DurationUS: int64(seconds * 1e6), Given: given}
}

// vllmRun is a result file of vllm bench serve or of benchmark_serving.py.
func vllmRun(o saved) *Run {
	given := map[string]Given{}
	for _, metric := range []string{TTFT, TPOT, ITL, E2EL} {
		if g, ok := (saved{"all": map[string]any(o)}).given("all", 1, func(stat string) string { return stat + "_" + metric + "_ms" }); ok {
			given[metric] = g
		}
	}
	c := Config{Label: o.text("label"), Model: o.text("model_id"), API: "completions", NumPrompts: o.count("num_prompts"), Rate: rate(o.number("request_rate")),
		Concurrency: o.count("max_concurrency"), Burstiness: rate(o.number("burstiness"))}
	if strings.HasSuffix(o.text("backend"), "-chat") {
		c.API = "chat"
	}
	t := Totals{Completed: o.count("completed"), Failed: o.count("failed"), InputTokens: o.count("total_input_tokens"), OutputTokens: o.count("total_output_tokens"),
		RequestRate: o.number("request_throughput"), OutputRate: o.number("output_throughput"), TotalRate: o.number("total_token_throughput"),
		PeakOutput: o.number("max_output_tokens_per_s"), PeakOpen: o.count("max_concurrent_requests")}
	if x := o.number("request_goodput"); !math.IsNaN(x) {
		t.GoodRate = &x
	}
	r := newForeign("vllm bench serve", c, t, o.number("duration"), given)
	r.Started, _ = time.ParseInLocation("20060102-150405", o.text("date"), time.Local) // none is the zero time
	return r
}

// perfRun is a lifecycle report of inference-perf, of all stages or of one. Its times are in seconds.
func perfRun(o saved) *Run {
	given := map[string]Given{}
	for metric, name := range map[string]string{
		TTFT: "time_to_first_token", TPOT: "time_per_output_token", ITL: "inter_token_latency", E2EL: "request_latency", NTPOT: "normalized_time_per_output_token",
	} {
		if g, ok := o.given("successes.latency."+name, 1e3, func(stat string) string { return stat }); ok {
			given[metric] = g
		}
	}
	done := o.count("successes.count")
	tokens := func(of string) int {
		x := o.number("successes." + of + "_tokens.total")
		if math.IsNaN(x) {
			x = o.number("successes."+of+"_len.mean") * float64(done)
		}
		return saved{"x": x}.count("x")
	}
	seconds, requests := o.number("benchmark_time_seconds"), o.number("successes.throughput.requests_per_sec")
	if math.IsNaN(seconds) {
		seconds = float64(done) / requests
	}
	c := Config{API: "completions", NumPrompts: o.count("load_summary.count"), Rate: rate(o.number("load_summary.requested_rate")), Concurrency: o.count("load_summary.concurrency")}
	if c.Concurrency > 0 {
		c.Rate = nil // a stage of the load type concurrent: all requests are due at once
	}
	return newForeign("inference-perf", c, Totals{
		Completed: done, Failed: o.count("failures.count"), InputTokens: tokens("prompt"), OutputTokens: tokens("output"), RequestRate: requests,
		OutputRate: o.number("successes.throughput.output_tokens_per_sec"), TotalRate: o.number("successes.throughput.total_tokens_per_sec"),
	}, seconds, given)
}

// llmdRun is llm-d's benchmark report, v0.1 or v0.2. Each statistic says its unit.
func llmdRun(b []byte) (*Run, error) {
	var all map[string]any
	if err := yaml.Unmarshal(b, &all); err != nil {
		return nil, fmt.Errorf("it is not YAML: %w", err)
	}
	o := saved(all)
	where, rates := "metrics", map[string]string{"output": "output_tokens_per_sec", "total": "total_tokens_per_sec", "requests": "requests_per_sec"}
	if strings.HasPrefix(fmt.Sprint(o["version"]), "0.2") {
		where = "results.request_performance.aggregate"
		rates = map[string]string{"output": "output_token_rate.mean", "total": "total_token_rate.mean", "requests": "request_rate.mean"}
	}
	if o.at(where) == nil {
		return nil, errors.New("it is not a benchmark report of llm-d, v0.1 or v0.2")
	}
	given := map[string]Given{}
	for metric, name := range map[string]string{
		TTFT: "time_to_first_token", TPOT: "time_per_output_token", ITL: "inter_token_latency", E2EL: "request_latency", NTPOT: "normalized_time_per_output_token",
	} {
		path, scale := where+".latency."+name, 1.0
		if strings.HasPrefix(o.text(path+".units"), "s") {
			scale = 1e3
		}
		if g, ok := o.given(path, scale, llmdName); ok {
			given[metric] = g
		}
	}
	total, failed := o.count(where+".requests.total"), o.count(where+".requests.failures")
	done := total - failed - o.count(where+".requests.incomplete")
	requests := o.number(where + ".throughput." + rates["requests"])
	args := "scenario.load.args."
	c := Config{API: "completions", Model: o.text("scenario.model.name"), NumPrompts: total, Rate: rate(o.number(args + "request_rate")), Concurrency: o.count(args + "max_concurrency")}
	if where != "metrics" {
		load := "scenario.load.standardized."
		c.Rate, c.Concurrency = rate(o.number(load+"rate_qps")), o.count(load+"concurrency")
	}
	mean := func(of string) int {
		return saved{"x": o.number(where+".requests."+of+".mean") * float64(done)}.count("x")
	}
	return newForeign("llm-d benchmark report", c, Totals{
		Completed: done, Failed: failed, InputTokens: mean("input_length"), OutputTokens: mean("output_length"), RequestRate: requests,
		OutputRate: o.number(where + ".throughput." + rates["output"]), TotalRate: o.number(where + ".throughput." + rates["total"]),
	}, float64(done)/requests, given), nil
}

// llmdName is llm-d's name of a statistic: p99p9 for p99.9, stddev for std.
func llmdName(stat string) string {
	if stat == "std" {
		return "stddev"
	}
	return strings.Replace(stat, ".", "p", 1)
}

// open reads a file of runs: a saved run, or the file of another tool, whose name is then the label where it has none.
func open(path string) ([]*Run, error) {
	if strings.HasSuffix(path, Suffix) {
		r, err := Load(path)
		return []*Run{r}, err
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("load runs: %w", err)
	}
	runs, err := foreign(path, b)
	if err != nil {
		return nil, fmt.Errorf("load runs from %s: %w", path, err)
	}
	for _, r := range runs {
		if base := filepath.Base(path); r.Config.Label == "" {
			r.Config.Label = strings.TrimSuffix(base, filepath.Ext(base))
		}
	}
	return runs, nil
}
