package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// toolRequests is how many requests a load generator must send, except vllm bench serve, which
// keeps its default of 1,000.
const toolRequests = 100

const (
	chat        = "chat"
	completions = "completions"
)

// tool is a load generator, at a pinned version, with a report of its own.
type tool struct {
	name, version string
	requests      int
	// install installs the tool and returns its program.
	install func(context.Context, *job) (string, error)
	// args returns the arguments for a run against url with the given tokenizer. The tool's report
	// goes to j.dir.
	args func(j *job, tokenizer string) ([]string, error)
	env  []string
	// report is the file that the tool writes, and read reads it.
	report string
	read   func([]byte) (counted, error)
}

// counted is what a tool's report says about its requests.
type counted struct{ succeeded, failed int }

func tools() []tool {
	return []tool{
		{name: "vllm bench serve", version: "0.32.0", requests: 1000, install: installVLLM, args: vllmArgs,
			report: "report.json", read: readVLLM},
		{name: "guidellm", version: "0.8.1", requests: toolRequests, install: fromLock("guidellm"), args: guidellmArgs,
			// One process makes the load. By default each stream has its own, which spends seconds on imports.
			env: []string{"HF_HUB_OFFLINE=1", "GUIDELLM__MAX_WORKER_PROCESSES=1"}, report: "report.json", read: readGuidellm},
		// HF_HUB_OFFLINE would make it look for the local tokenizer in the hub's cache.
		{name: "aiperf", version: "0.13.0", requests: toolRequests, install: fromLock("aiperf"), args: aiperfArgs,
			report: "profile_export_aiperf.json", read: readAiperf},
		{name: "inference-perf", version: "0.7.0", requests: toolRequests, install: fromLock("inference-perf"), args: inferencePerfArgs,
			env: []string{"HF_HUB_OFFLINE=1"}, report: "summary_lifecycle_metrics.json", read: readInferencePerf},
	}
}

// toolClients makes each tool use both APIs, streamed.
func toolClients() []client {
	var all []client
	for _, t := range tools() {
		for _, api := range []string{completions, chat} {
			all = append(all, client{name: t.name + " " + api, version: t.version, run: func(ctx context.Context, j *job) (tally, error) {
				j.api = api
				return t.drive(ctx, j)
			}})
		}
	}
	return all
}

func (t tool) drive(ctx context.Context, j *job) (tally, error) {
	program, err := t.install(ctx, j)
	if err != nil {
		return tally{}, err
	}
	tokenizer, err := j.tokenizer(ctx, filepath.Join(filepath.Dir(program), "python"))
	if err != nil {
		return tally{}, err
	}
	args, err := t.args(j, tokenizer)
	if err != nil {
		return tally{}, err
	}
	// It runs in j.dir, because some tools write files of their own where they run.
	if err := call(ctx, filepath.Join(j.dir, "client.log"), j.dir, append(t.env, "NO_PROXY=127.0.0.1"), program, args...); err != nil {
		return tally{}, err
	}
	report, err := os.ReadFile(filepath.Join(j.dir, t.report))
	if err != nil {
		return tally{}, fmt.Errorf("read what it reports: %w", err)
	}
	c, err := t.read(report)
	if err != nil {
		return tally{}, fmt.Errorf("read what it reports in %s: %w", filepath.Join(j.dir, t.report), err)
	}
	return t.judge(c), nil
}

// judge expects that all requests are in the report, and that none failed.
func (t tool) judge(c counted) tally {
	out := tally{requests: c.succeeded + c.failed}
	if c.failed > 0 {
		out.failures = append(out.failures, fmt.Sprintf("its report counts %d failed requests of %d", c.failed, out.requests))
	}
	if out.requests != t.requests {
		out.failures = append(out.failures, fmt.Sprintf("its report counts %d requests, %d were asked for", out.requests, t.requests))
	}
	return out
}

// fromLock installs the tool of that name from tools/NAME.txt.
func fromLock(name string) func(context.Context, *job) (string, error) {
	return func(ctx context.Context, j *job) (string, error) {
		uv, err := j.uv(ctx)
		if err != nil {
			return "", err
		}
		lock := filepath.Join("tools", "clients", "tools", name+".txt")
		dir, err := j.install(name, []string{lock}, "", func(dir string) error {
			if err := venv(ctx, dir, 12); err != nil {
				return err
			}
			return call(ctx, dir+".log", "", j.uvEnv(), uv, "pip", "install", "-q",
				"--python", filepath.Join(dir, "bin", "python"), "--no-deps", "-r", lock)
		})
		return filepath.Join(dir, "bin", name), err
	}
}

// installVLLM uses the scripts of make e2e.
func installVLLM(ctx context.Context, j *job) (string, error) {
	program := filepath.Join(j.e2e, "venv-0.32.0", "bin", "vllm")
	log := filepath.Join(j.dir, "setup.log")
	begun := time.Now()
	defer func() { j.installing += time.Since(begun) }()
	err := call(ctx, log, "", []string{"E2E_CACHE=" + j.e2e}, filepath.Join("scripts", "real-vllm", "setup.sh"), "0.32.0")
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == exitCannot {
		text, _ := os.ReadFile(log) // call has read it
		return "", cannotError{lastLine(text)}
	}
	return program, err
}
