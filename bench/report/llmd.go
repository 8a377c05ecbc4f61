package report

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"

	"xpyd/bench/dataset"
	"xpyd/bench/result"
)

// llmdReport makes llm-d's benchmark report of a run. stage is its place among the printed runs.
type llmdReport func(r *result.Run, stage int) (tree, error)

// llmdPrinter writes a stream of YAML documents.
func llmdPrinter(report llmdReport) func(*strings.Builder, []*result.Run, Options) error {
	return whole(func(w *strings.Builder, runs []*result.Run) error {
		for stage, r := range runs {
			t, err := report(r, stage)
			if err != nil {
				return err
			}
			text, err := pyYAML(t)
			if err != nil {
				return err
			}
			if stage > 0 {
				w.WriteString("---\n")
			}
			w.WriteString(text)
		}
		return nil
	})
}

// llmdFiles are one file for each stage. llm-d's explorer finds them by the prefix of their names.
func llmdFiles(prefix string, report llmdReport) func([]*result.Run, Options) ([]File, error) {
	return func(runs []*result.Run, _ Options) (files []File, err error) {
		for stage, r := range runs {
			t, err := report(r, stage)
			if err != nil {
				return nil, err
			}
			text, err := pyYAML(t)
			if err != nil {
				return nil, err
			}
			files = append(files, File{fmt.Sprintf("%s_stage_%d_%s.yaml", prefix, stage, FileName(r)), []byte(text)})
		}
		return files, nil
	}
}

// llmdStat is the reports' object of statistics.
func llmdStat(v result.Values, units string) tree {
	t := tree{"units": units, "mean": v.Mean(), "stddev": v.Std(), "min": v.Min(), "max": v.Max()}
	for _, p := range []float64{0.1, 1, 5, 10, 25, 50, 75, 90, 95, 99, 99.9} {
		t["p"+strings.Replace(percentile(p), ".", "p", 1)] = v.Percentile(p)
	}
	return t
}

// llmdLatency leaves out statistics that no answer had, because 0 would read as a time.
func llmdLatency(r *result.Run) tree {
	t := tree{}
	for name, m := range map[string]struct{ metric, units string }{
		"time_to_first_token":              {result.TTFT, "ms"},
		"normalized_time_per_output_token": {result.NTPOT, "ms/token"},
		"time_per_output_token":            {result.TPOT, "ms/token"},
		"inter_token_latency":              {result.ITL, "ms/token"},
		"request_latency":                  {result.E2EL, "ms"},
	} {
		if v := r.Values(m.metric); len(v) > 0 {
			t[name] = llmdStat(v, m.units)
		}
	}
	return t
}

// llmdRequests counts what was sent. The lengths are those of whole answers.
func llmdRequests(r *result.Run) tree {
	return tree{
		"total": len(r.Records), "failures": r.Totals.Failed, "incomplete": r.Totals.Cut,
		"input_length": llmdStat(tokens(r, promptTokens), "count"), "output_length": llmdStat(tokens(r, outputTokens), "count"),
	}
}

func promptTokens(rec *result.Record) int { return rec.Prompt }
func outputTokens(rec *result.Record) int { return rec.Output }

// tokens are counts of whole answers.
func tokens(r *result.Run, of func(*result.Record) int) result.Values {
	var v []float64
	for i := range r.Records {
		if rec := &r.Records[i]; rec.OK() {
			v = append(v, float64(of(rec)))
		}
	}
	return result.NewValues(v)
}

// llmd01 is benchmark report v0.1. Its list of load generators is closed, so the report names the one
// with the same figures. The metadata names the tool itself.
func llmd01(r *result.Run, stage int) (tree, error) {
	c, t := r.Config, r.Totals
	latency := llmdLatency(r)
	if latency["time_to_first_token"] == nil {
		return nil, fmt.Errorf("stage %d has no whole answer, and the report wants a time to the first token", stage)
	}
	config, err := plain(c)
	if err != nil {
		return nil, err
	}
	seconds := float64(r.DurationUS) / 1e6
	start := float64(r.Started.UnixMicro()) / 1e6
	input := 0.0
	if seconds > 0 {
		input = float64(t.InputTokens) / seconds
	}
	return tree{
		"version": "0.1",
		"scenario": tree{
			"model": tree{"name": c.Model},
			"load":  tree{"name": "vllm-benchmark", "args": llmdArgs(r), "metadata": tree{"tool": r.Tool, "stage": stage, "config": config}},
		},
		"metrics": tree{
			"time":     tree{"duration": seconds, "start": start, "stop": start + seconds},
			"requests": llmdRequests(r),
			"latency":  latency,
			"throughput": tree{"input_tokens_per_sec": input, "output_tokens_per_sec": t.OutputRate,
				"total_tokens_per_sec": t.TotalRate, "requests_per_sec": t.RequestRate},
		},
	}, nil
}

// llmdArgs are the arguments that llm-d's own reports of vllm bench serve have.
func llmdArgs(r *result.Run) tree {
	c := r.Config
	args := tree{"num_prompts": len(r.Records) + r.Unsent, "request_rate": "inf", "burstiness": math.Inf(1)}
	if c.Rate != nil {
		args["request_rate"] = *c.Rate
	}
	if c.Burstiness != nil {
		args["burstiness"] = *c.Burstiness
	}
	if c.Concurrency > 0 {
		args["max_concurrency"] = c.Concurrency
	}
	return args
}

// llmd02 is benchmark report v0.2. Except for the version, it is also a report of v0.2.1.
func llmd02(r *result.Run, stage int) (tree, error) {
	config, err := plain(r.Config)
	if err != nil {
		return nil, err
	}
	t := r.Totals
	rate := func(mean float64, units string) tree { return tree{"units": units, "mean": mean} }
	ended := r.Started.Add(time.Duration(r.DurationUS) * time.Microsecond)
	run := tree{"uid": runID(r), "time": tree{
		"start": r.Started.UTC().Format(time.RFC3339Nano), "end": ended.UTC().Format(time.RFC3339Nano),
		"duration": fmt.Sprintf("PT%sS", percentile(float64(r.DurationUS)/1e6)),
	}}
	if r.Config.Label != "" {
		run["description"] = r.Config.Label
	}
	if cell := r.Config.Cell; cell != nil {
		run["eid"] = cell.Sweep
		run["keywords"] = []any{cell.Target, cell.Workload, fmt.Sprintf("repeat-%d", cell.Repeat)}
	}
	scenario := tree{"load": tree{
		"metadata":     tree{"schema_version": "0.0.1", "cfg_id": hash(config)},
		"standardized": llmdLoad(r, stage),
		"native":       tree{"config": config},
	}}
	if len(r.Engines) > 0 {
		scenario["stack"] = llmdStack(r.Engines)
	}
	return tree{
		"version":  "0.2",
		"run":      run,
		"scenario": scenario,
		"results": tree{"request_performance": tree{"aggregate": tree{
			"requests": llmdRequests(r),
			"latency":  llmdLatency(r),
			"throughput": tree{
				"input_token_rate":  rate(t.TotalRate-t.OutputRate, "tokens/s"),
				"output_token_rate": rate(t.OutputRate, "tokens/s"),
				"total_token_rate":  rate(t.TotalRate, "tokens/s"),
				"request_rate":      rate(t.RequestRate, "queries/s"),
			},
		}}},
	}, nil
}

// llmdStack are the engines of --engine. They are of the generic kind, because the kind for inference
// engines needs the model and the number of their accelerators.
func llmdStack(engines []result.Engine) (stack []any) {
	for _, e := range engines {
		what := tree{"kind": "generic", "tool": "vllm", "tool_version": e.Version, "role": "replica"}
		if e.Role != "" {
			what["role"] = e.Role
		}
		if e.GPUs > 0 {
			what["accelerators"] = e.GPUs
		}
		stack = append(stack, tree{
			"metadata":     tree{"schema_version": "0.0.1", "label": e.Name, "cfg_id": hash(tree{"url": e.URL, "version": e.Version, "role": e.Role})},
			"standardized": what,
			"native":       tree{},
		})
	}
	return stack
}

// llmdLoad is the workload in v0.2's words.
func llmdLoad(r *result.Run, stage int) tree {
	c := r.Config
	tool, version, _ := strings.Cut(r.Tool, " ")
	load := tree{"tool": tool, "tool_version": version, "stage": stage, "parallelism": 1, "source": "sampled", "concurrency": math.Inf(1),
		"input_seq_len": seqLen(c, c.InputLen, tokens(r, promptTokens))}
	if c.Dataset == dataset.Random || c.Dataset == dataset.Trace {
		load["source"] = "random"
	}
	if c.IgnoreEOS && c.OutputLen > 0 {
		load["output_seq_len"] = seqLen(c, c.OutputLen, tokens(r, outputTokens))
	}
	if c.Rate != nil && *c.Rate > 0 {
		load["rate_qps"] = *c.Rate
	}
	if c.Concurrency > 0 {
		load["concurrency"] = c.Concurrency
	}
	if c.PrefixLen > 0 {
		load["prefix"] = tree{"num_groups": 1, "num_prefixes": 1, "num_users_per_group": max(len(r.Records), 1),
			"prefix_len": tree{"distribution": "fixed", "value": c.PrefixLen}}
	}
	return load
}

// seqLen is the requested length, or the measured one for a dataset with lengths of its own.
func seqLen(c result.Config, asked int, met result.Values) tree {
	switch {
	case c.Dataset != dataset.Random || asked == 0:
		return tree{"distribution": "other", "value": met.Mean(), "min": int(met.Min()), "max": max(int(met.Max()), 1)}
	case c.RangeRatio > 0:
		span := float64(asked) * c.RangeRatio
		return tree{"distribution": "uniform", "value": asked, "min": int(math.Floor(float64(asked) - span)), "max": int(math.Ceil(float64(asked) + span))}
	}
	return tree{"distribution": "fixed", "value": asked}
}

// plain is a configuration as in the saved run, for a member that takes anything.
func plain(c result.Config) (tree, error) {
	b, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("write the configuration: %w", err)
	}
	d := json.NewDecoder(strings.NewReader(string(b)))
	d.UseNumber()
	var t tree
	if err := d.Decode(&t); err != nil {
		return nil, fmt.Errorf("write the configuration: %w", err)
	}
	return t, nil
}

// hash is an ID of a configuration.
func hash(config tree) string {
	b, _ := json.Marshal(config) // cannot fail: config came from JSON
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16])
}

// runID is the same for the same saved run, and for no other: requests have random IDs.
func runID(r *result.Run) string {
	h := sha256.New()
	fmt.Fprintln(h, r.Started.UnixNano(), r.Config.URL, r.Config.Label)
	for i := range r.Records {
		fmt.Fprintln(h, r.Records[i].ID, r.Records[i].E2ELUS)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}
