package cmd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"xpyd/bench/result"
	"xpyd/cmd/config"
	"xpyd/sim"
)

// benchEngine is a simulated engine that needs a key.
func benchEngine(t *testing.T, o sim.Options) *sim.Engine {
	t.Helper()
	e, err := sim.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// runBenchCmd runs xpyd bench with args.
func runBenchCmd(ctx context.Context, args ...string) (out, note string, err error) {
	var o, n bytes.Buffer
	root := newRootCmd()
	root.SetOut(&o)
	root.SetErr(&n)
	root.SetArgs(append([]string{"bench"}, args...))
	err = root.ExecuteContext(ctx)
	return o.String(), n.String(), err
}

// TestBenchServe: vLLM's flag names, a key, bounds after their flag, the block, and both files.
func TestBenchServe(t *testing.T) {
	t.Parallel()
	e := benchEngine(t, sim.Options{APIKey: "secret"}.Fast())
	dir := t.TempDir()
	key := filepath.Join(dir, "key")
	if err := os.WriteFile(key, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, note, err := runBenchCmd(t.Context(), "serve", "--base-url", e.URL(), "--key-file", key, "--backend", "openai-chat", "--endpoint", "/v1/chat/completions",
		"--dataset-name", "random", "--random-input-len", "32", "--random-output-len", "4", "--num-prompts", "20", "--request-rate", "200", "--burstiness", "2",
		"--max-concurrency", "8", "--percentile-metrics", "ttft,e2el", "--metric-percentiles", "50,99.9", "--header", "X-Team=blue", "--result-dir", dir, "--seed", "7",
		"--engine", "node:2="+e.URL(), "--max-lateness", "0", "--goodput", "ttft:60000", "tpot:60000")
	if err != nil {
		t.Fatal(err, note)
	}
	for _, want := range []string{"Successful requests:                     20        \n", "Request goodput (req/s):", "P99.9 E2EL (ms):", "Maximum request concurrency:             8         \n"} {
		if !strings.Contains(out, want) {
			t.Errorf("the block lacks %q:\n%s", want, out)
		}
	}
	if strings.Contains(out, "TPOT") || !strings.Contains(note, "Burstiness factor: 2.0 (Gamma distribution)\n") || !strings.Contains(note, "20/20 requests: 20 completed, 0 failed") {
		t.Errorf("out\n%s\nnotes\n%s", out, note)
	}
	runs, err := result.LoadDir(dir)
	if err != nil || len(runs) != 1 || runs[0].Config.Seed != 7 || runs[0].Config.API != "chat" || runs[0].Config.Headers[0] != "X-Team" {
		t.Fatal(runs, err)
	}
	if e := runs[0].Engines; len(e) != 1 || e[0].Name != "node" || e[0].GPUs != 2 || *e[0].Generated != 80 {
		t.Errorf("engines %+v", e)
	}
	if !strings.Contains(note, "node Engine 000: Avg prompt throughput: ") || !strings.Contains(note, "note: engine node, vLLM 0.32.0: prompt tokens computed ") {
		t.Error(note)
	}
	files, _ := filepath.Glob(filepath.Join(dir, "openai-chat-200.0qps-concurrency8-sim-*.json"))
	if len(files) != 2 {
		t.Fatal(files)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil || bytes.Contains(b, []byte("secret")) || bytes.Contains(b, []byte("blue")) || !json.Valid(bytes.TrimSpace(b)) {
			t.Errorf("%s: %v, or a secret in it, or no JSON", f, err)
		}
	}
	again, _, err := runBenchCmd(t.Context(), "report", dir)
	if err != nil || again != out {
		t.Errorf("report prints\n%s, serve printed\n%s (%v)", again, out, err)
	}
}

// TestBenchServeInterrupted: a signal ends the run. What was measured is printed and saved, and the
// error says that it is not everything.
func TestBenchServeInterrupted(t *testing.T) {
	e := benchEngine(t, sim.Options{TokenLatency: 20 * time.Millisecond})
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for len(e.Requests()) < 7 && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	out, note, err := runBenchCmd(ctx, "serve", "--url", e.URL(), "--input-len", "8", "--output-len", "5", "--concurrency", "2", "--max-lateness", "0", "--out", dir)
	if err == nil || !strings.HasPrefix(err.Error(), "interrupted after ") || !strings.Contains(out, "Successful requests:") || !strings.Contains(note, "note: interrupted: ") {
		t.Errorf("%v\n%s\n%s", err, out, note)
	}
	if runs, err := result.LoadDir(dir); err != nil || !runs[0].Interrupted || runs[0].Totals.Completed < 3 {
		t.Error(runs, err)
	}
}

// TestBenchServeFails: it does so if no request succeeds.
func TestBenchServeFails(t *testing.T) {
	e := benchEngine(t, sim.Options{}.Fast())
	if err := e.SetFault(sim.Fault{Kind: sim.FaultStatus, Value: http.StatusTooManyRequests}); err != nil {
		t.Fatal(err)
	}
	out, note, err := runBenchCmd(t.Context(), "serve", "--url", e.URL(), "--input-len", "8", "--output-len", "5", "--num-prompts", "3", "--warmups", "0")
	if err == nil || err.Error() != "no request succeeded, 3 failed" || !strings.Contains(out, "Failed requests:                         3         \n") || !strings.Contains(note, "note: failed with http_429: 3, as in: 429 ") {
		t.Errorf("%v\n%s\n%s", err, out, note)
	}
	// As in vllm bench serve, the test request before the run shows it at once.
	_, _, err = runBenchCmd(t.Context(), "serve", "--url", e.URL(), "--input-len", "8", "--output-len", "5", "--num-prompts", "3")
	if err == nil || !strings.HasPrefix(err.Error(), "warm up: http_429: 429 Too Many Requests") {
		t.Error(err)
	}
}

func TestBenchUsage(t *testing.T) {
	dir := t.TempDir()
	for want, args := range map[string][]string{
		`bench takes no argument, got "nothing"; see xpyd bench --help`:                {"nothing"},
		"bench needs a command: serve, sweep, advise or report; see xpyd bench --help": nil,
		`serve takes no argument, got "extra"; see xpyd bench serve --help`:            {"serve", "extra"},
		`--rate "fast": want a number or inf`:                                          {"serve", "--rate", "fast"},
		`--goodput "ttft": want METRIC:MILLISECONDS`:                                   {"serve", "--goodput", "ttft"},
		`--engine "http://p": want NAME=URL or NAME:GPUS=URL`:                          {"serve", "--engine", "http://p"},
		`--header "X-Key": want K=V`:                                                   {"serve", "--header", "X-Key"},
		"--ramp has rates of its own: leave --rate out":                                {"serve", "--ramp", "linear", "--rate", "3"},
		`--backend "tgi": want openai, vllm or openai-chat`:                            {"serve", "--backend", "tgi"},
		"dataset sharegpt needs a file":                                                {"serve", "--dataset", "sharegpt"},
		`--format "pdf": want one of [vllm seed vllm-json llm-d-0.1 llm-d-0.2 inference-perf mooncake ray csv table loads html]`: {"report", dir, "--format", "pdf"},
		`URL "127.0.0.1:8080": want http://host:port`:                                                           {"serve", "--url", "127.0.0.1:8080"},
		`API "embeddings": want completions or chat`:                                                            {"serve", "--api", "embeddings"},
		"--file: stat /nope/x.json: no such file or directory; give one that exists":                            {"serve", "--dataset", "sharegpt", "--file", "/nope/x.json"},
		"load the runs: stat /nope: no such file or directory; give a directory of --out, or a file of results": {"report", "/nope"},
		"load the runs in " + dir + ": no file ends with .run.json":                                             {"advise", dir},
		`--objective "ttft": want METRIC:MILLISECONDS`:                                                          {"advise", savedSweep, "--objective", "ttft"},
		"objective itl:5: want ttft, tpot or e2el and a bound in ms":                                            {"advise", savedSweep, "--objective", "itl:5"},
		"report takes directories and files of runs, got none":                                                  {"report"},
		"unknown flag: --burstines; the nearest is --burstiness, see xpyd bench serve --help":                   {"serve", "--burstines", "1"},
	} {
		var usage config.UsageError
		if _, note, err := runBenchCmd(t.Context(), args...); !errors.As(err, &usage) || err.Error() != want || note != "" {
			t.Errorf("%q: %v, notes %q, want %s", args, err, note, want)
		}
	}
}
