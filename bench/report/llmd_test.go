package report

import (
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"xpyd/bench/result"
)

// schema is a compiled JSON schema in testdata that also holds formats.
func schema(t *testing.T, version string) *jsonschema.Schema {
	t.Helper()
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	s, err := c.Compile(filepath.Join("testdata", "llm-d-"+version+".schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// document reads a report as JSON does, with the word .inf for infinity.
func document(t *testing.T, text string) any {
	t.Helper()
	var v any
	if err := yaml.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return noInfinity(v)
}

func noInfinity(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			v[key] = noInfinity(value)
		}
	case []any:
		for i := range v {
			v[i] = noInfinity(v[i])
		}
	case float64:
		if math.IsInf(v, 1) {
			return ".inf"
		}
	}
	return v
}

// shapes are runs of every shape that the reports have to describe: rates, caps, ramps, sweeps,
// prefixes, uneven lengths, other datasets, failures, answers of one token, engines.
func shapes(t *testing.T) map[string]*result.Run {
	t.Helper()
	all := map[string]*result.Run{"rate": saved(t, "rate"), "cap": saved(t, "cap"), "failed": failed(t), "sweep": sweep(t)[0]}
	uneven := saved(t, "rate")
	uneven.Config.RangeRatio, uneven.Config.PrefixLen, uneven.Config.Rate, uneven.Config.Burstiness = 0.3, 64, nil, nil
	uneven.Config.Label, uneven.Config.Headers = "yes", []string{"X-Team"}
	file := saved(t, "cap")
	file.Config.Dataset, file.Config.InputLen, file.Config.OutputLen = "sharegpt", 0, 0
	file.Config.Ramp = &result.Ramp{Strategy: "linear", From: 1, To: 9}
	short := saved(t, "rate")
	for i := range short.Records {
		short.Records[i].Output, short.Records[i].ITLUS = 1, nil
	}
	short.Sum()
	behind := saved(t, "cap")
	behind.Engines = []result.Engine{{Name: "P1", Role: "prefill", URL: "http://p", Version: "0.32.0", GPUs: 4}, {Name: "X", URL: "http://x"}}
	all["uneven"], all["file"], all["short"], all["engines"] = uneven, file, short, behind
	return all
}

func TestLLMDReportsAreValid(t *testing.T) {
	for name, r := range shapes(t) {
		for _, version := range []string{"0.1", "0.2"} {
			if err := schema(t, version).Validate(document(t, printed(t, "llm-d-"+version, r))); err != nil {
				t.Errorf("%s as %s: %v", name, version, err)
			}
		}
	}
}

// TestTheSchemasFindFaults: they do not let everything through.
func TestTheSchemasFindFaults(t *testing.T) {
	for _, c := range []struct{ version, old, new string }{
		{"0.1", "units: ms\n", "units: GB\n"}, {"0.1", "name: vllm-benchmark", "name: xpyd"}, {"0.1", "total_tokens_per_sec", "tokens_per_sec"},
		{"0.2", "units: ms/token", "units: ms"}, {"0.2", "stage: 0", "stage: -1"}, {"0.2", "duration: PT", "duration: T"}, {"0.2", "  native:", "  natural:"},
	} {
		text := printed(t, "llm-d-"+c.version, saved(t, "rate"))
		wrong := strings.Replace(text, c.old, c.new, 1)
		if wrong == text {
			t.Errorf("%s has no %q", c.version, c.old)
		}
		if schema(t, c.version).Validate(document(t, wrong)) == nil {
			t.Errorf("%s with %q is valid", c.version, c.new)
		}
	}
}

// TestLLMDReportIsPythons: the reports in testdata were written by Python's yaml.dump from the same
// members, so layout, order and quotes are those of llm-d's own reports.
func TestLLMDReportIsPythons(t *testing.T) {
	for _, name := range []string{"rate.llm-d-0.1", "cap.llm-d-0.2"} {
		run, format, _ := strings.Cut(name, ".")
		want, err := os.ReadFile(filepath.Join("testdata", name+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		if got := printed(t, format, saved(t, run)); got != string(want) {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, want)
		}
	}
}

// guideReport are lines of the report in llm-d's guide for prefill and decode, with this run's words.
const guideReport = `metrics:
  latency:
    inter_token_latency:
      mean: 
      p0p1: 
      p1: 
      p10: 
      p5: 
      p90: 
      p95: 
      p99: 
      p99p9: 
      stddev: 
      units: ms/token
    request_latency:
      units: ms
    time_per_output_token:
      p25: 
      p50: 
      p75: 
      units: ms/token
    time_to_first_token:
      units: ms
  requests:
    input_length:
      mean: 256.0
      units: count
    output_length:
      mean: 24.0
      units: count
    total: 60
  throughput:
    output_tokens_per_sec: 
    requests_per_sec: 
    total_tokens_per_sec: 
  time:
    duration: 
    start: 
scenario:
  load:
    args:
      burstiness: 1.0
      num_prompts: 60
      request_rate: 20.0
    name: vllm-benchmark
  model:
    name: sim
version: '0.1'`

// TestLLMDReportHasThePublishedMembers: they are in the order of the guide's report.
func TestLLMDReportHasThePublishedMembers(t *testing.T) {
	r := saved(t, "rate")
	text := printed(t, "llm-d-0.1", r)
	at := 0
	for _, line := range strings.Split(guideReport, "\n") {
		i := strings.Index(text[at:], "\n"+line)
		if at == 0 && strings.HasPrefix(text, line) {
			i = 0
		}
		if i < 0 {
			t.Fatalf("no %q after\n%s", line, text[:at])
		}
		at += i + 1
	}
}

// TestLLMDCountsWhatFailed: it does so, and leaves out times that were not measured.
func TestLLMDCountsWhatFailed(t *testing.T) {
	text := printed(t, "llm-d-0.2", failed(t))
	if !strings.Contains(text, "failures: 11\n") || !strings.Contains(text, "incomplete: 1\n") {
		t.Error(text)
	}
	none := failed(t)
	for i := range none.Records {
		none.Records[i].Failure = "http_429"
	}
	none.Sum()
	if text := printed(t, "llm-d-0.2", none); strings.Contains(text, "time_to_first_token") {
		t.Error(text)
	}
	if err := Print(&strings.Builder{}, "llm-d-0.1", []*result.Run{none}); err == nil || !strings.Contains(err.Error(), "no whole answer") {
		t.Error(err)
	}
}

// TestLLMDFiles: there is one for each stage, and llm-d's explorer finds it.
func TestLLMDFiles(t *testing.T) {
	for format, want := range map[string]string{
		"llm-d-0.1": `^benchmark_report,_stage_\d+_openai-infqps-concurrency\d-sim-.*\.yaml$`, "llm-d-0.2": `^benchmark_report_v0\.2,_stage_\d+_openai-.*\.yaml$`,
	} {
		files := filesOf(t, format, sweep(t))
		if len(files) != 12 {
			t.Errorf("%s: %d files", format, len(files))
		}
		for name, text := range files {
			if !regexp.MustCompile(want).MatchString(name) || strings.Count(text, "\nversion: ") != 1 {
				t.Errorf("%s has %s:\n%.200s", format, name, text)
			}
		}
	}
}
