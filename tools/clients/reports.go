package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// reportClients are the tools that read xpyd bench's reports as their own. What they read is
// measured here, on the fleet.
func reportClients() []client {
	return []client{
		{name: "inference-perf reports", version: "0.7.0", run: analyzeReports},
		{name: "vllm bench serve reports", version: "0.32.0", run: readVLLMReports},
	}
}

// reportRuns is how many runs are measured, and reportRequests how many requests each has.
const (
	reportRuns     = 3
	reportRequests = 20
)

// measured makes a report in a format of runs at several concurrencies.
func (j *job) measured(ctx context.Context, format string) (string, error) {
	runs, files, log := filepath.Join(j.dir, "runs"), filepath.Join(j.dir, "files"), filepath.Join(j.dir, "xpyd-bench.log")
	for i := range reportRuns {
		if err := call(ctx, log, "", nil, j.xpyd, "bench", "serve", "--url", j.fleet.url, "--input-len", "64", "--output-len", "8",
			"--num-prompts", strconv.Itoa(reportRequests), "--concurrency", strconv.Itoa(2<<i), "--max-lateness", "0", "--no-progress",
			"--save-detailed", "--out", runs); err != nil {
			return "", err
		}
	}
	return files, call(ctx, log, "", nil, j.xpyd, "bench", "report", runs, "--format", format, "--out", files)
}

// analyzeReports has inference-perf draw its charts from our reports of stages.
func analyzeReports(ctx context.Context, j *job) (tally, error) {
	program, err := fromLock("inference-perf")(ctx, j)
	if err != nil {
		return tally{}, err
	}
	files, err := j.measured(ctx, "inference-perf")
	if err != nil {
		return tally{}, err
	}
	var charts []string
	for _, name := range []string{"latency_vs_concurrency", "throughput_vs_concurrency", "throughput_vs_latency"} {
		chart := filepath.Join(files, name+".png")
		if err := os.Remove(chart); err != nil { // xpyd's own picture of that name
			return tally{}, fmt.Errorf("xpyd drew no plot: %w", err)
		}
		charts = append(charts, chart)
	}
	if err := call(ctx, filepath.Join(j.dir, "client.log"), j.dir, []string{"MPLBACKEND=Agg", "MPLCONFIGDIR=" + j.dir}, program, "--analyze", files); err != nil {
		return tally{}, err
	}
	t := tally{requests: reportRuns * reportRequests}
	for _, chart := range charts {
		if info, err := os.Stat(chart); err != nil || info.Size() == 0 {
			t.failures = append(t.failures, fmt.Sprintf("inference-perf --analyze drew no %s", filepath.Base(chart)))
		}
	}
	return t, nil
}

// readVLLMReports has the readers of vllm bench read our result files, those with the lists of all
// requests too.
func readVLLMReports(ctx context.Context, j *job) (tally, error) {
	program, err := installVLLM(ctx, j)
	if err != nil {
		return tally{}, err
	}
	files, err := j.measured(ctx, "vllm-json")
	if err != nil {
		return tally{}, err
	}
	script, err := filepath.Abs(filepath.Join("tools", "clients", "python", "vllm_readers.py"))
	if err != nil {
		return tally{}, fmt.Errorf("find the script: %w", err)
	}
	python, runs := filepath.Join(filepath.Dir(program), "python"), filepath.Join(j.dir, "runs")
	log := filepath.Join(j.dir, "client.log")
	if err := call(ctx, log, j.dir, []string{"SAVE_TO_PYTORCH_BENCHMARK_FORMAT=1"}, python, script, files, runs, strconv.Itoa(reportRuns)); err != nil {
		return tally{}, errors.Join(errors.New("vLLM cannot read our result files"), err)
	}
	return tally{requests: reportRuns * reportRequests}, nil
}
