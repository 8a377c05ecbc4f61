package cmd

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"xpyd/bench/result"
	"xpyd/bench/sweep"
	"xpyd/cmd/config"
	"xpyd/sim"
)

// sweepOnTime runs xpyd bench sweep until no cell has failed because the tool was late. A sweep measures only what
// is missing, and a busy machine delays some cells.
func sweepOnTime(t *testing.T, args ...string) (printed, note string, err error) {
	t.Helper()
	for range 40 {
		printed, note, err = runBenchCmd(t.Context(), append([]string{"sweep"}, args...)...)
		if !strings.Contains(note, "  failed: the tool ") {
			return printed, note, err
		}
	}
	t.Fatalf("late each time: %v\n%s", err, note)
	return "", "", nil
}

// TestBenchSweep: two targets by flags alone, one of them slower. It checks the table, the better target
// in words, runs that report reads, and that nothing is left to do the second time.
func TestBenchSweep(t *testing.T) {
	quick, slow := benchEngine(t, sim.Options{APIKey: "secret"}.Fast()), benchEngine(t, sim.Options{APIKey: "secret", TokenLatency: 5 * time.Millisecond})
	dir := t.TempDir()
	key, out := filepath.Join(dir, "key"), filepath.Join(dir, "runs")
	if err := os.WriteFile(key, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"--preset", "mooncake", "--workload", "sonnet-256-6", "--max-prompts", "2", "--repeats", "1", "--key-file", key, "--out", out,
		"--target", "quick:1=" + quick.URL(), "--target", "slow:1=" + slow.URL(), "--goodput", "ttft:60000"}
	plan, _, err := sweepOnTime(t, append(args, "--dry-run")...)
	if err != nil || !strings.Contains(plan, "[1/8] quick sonnet-256-6 rate2-n2 repeat 1: about 2s\n") || !strings.Contains(plan, "8 of 8 cells, about ") || len(quick.Requests()) > 0 {
		t.Fatalf("%v\n%s", err, plan)
	}
	printed, note, err := sweepOnTime(t, args...)
	if err != nil {
		t.Fatal(err, note)
	}
	for _, want := range []string{" slow   8.0    -   2       0 ", "mooncake sonnet-256-6, open loop:\n", "\n  quickest by median TPOT: quick ", "req/s that keep TTFT 60000 ms", "some cells were measured fewer than 3 times"} {
		if !strings.Contains(printed, want) {
			t.Errorf("%q is not in\n%s", want, printed)
		}
	}
	runs, err := result.LoadDir(out)
	if err != nil || len(runs) != 8 || runs[0].Config.Model != "sim" || runs[0].Config.Cell.GPUs != 1 || runs[0].Prompts.LengthBy != "tokenize" {
		t.Fatal(len(runs), err)
	}
	again, note, err := sweepOnTime(t, args...)
	if err != nil || again != printed || strings.Contains(note, "[") {
		t.Errorf("%v, the second time it said\n%s", err, note)
	}
	advised, _, err := runBenchCmd(t.Context(), "advise", out, "--by", "chunk")
	if err != nil || !strings.Contains(advised, "quickest by median TTFT + 15 TPOT: quick ") {
		t.Errorf("%v\n%s", err, advised)
	}
}

// TestBenchSweepInterrupted: Ctrl-C keeps finished cells, and the error says how many are left.
func TestBenchSweepInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var begun atomic.Int32
	e := benchEngine(t, sim.Options{TokenLatency: 5 * time.Millisecond, Hook: func(e sim.Event) {
		if e.Phase == sim.PhaseDecodeReceived && begun.Add(1) == 8 { // in the second cell
			cancel()
		}
	}})
	file := filepath.Join(t.TempDir(), "night.yaml")
	text := "targets: [{name: one, url: \"" + e.URL() + "\"}]\nworkloads: [{name: w, input_len: 8, output_len: 4}]\nloads: [{concurrency: [1, 2, 3], num_prompts: 5}]\nmax_lateness: 1h\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(filepath.Dir(file), "runs")
	printed, note, err := runBenchCmd(ctx, "sweep", file, "--out", out)
	if err == nil || err.Error() != "interrupted: 2 of 3 cells are left; the same command goes on with them" || !strings.Contains(printed, "night w, closed loop:") || !strings.Contains(note, "saved in "+out) {
		t.Fatalf("%v\n%s\n%s", err, printed, note)
	}
	if _, note, err := runBenchCmd(t.Context(), "sweep", file, "--out", out); err != nil || strings.Contains(note, "[1/3]") || !strings.Contains(note, "[2/3]") {
		t.Errorf("%v\n%s", err, note)
	}
}

// TestBenchSweepFails: it does so if a cell has no figures, and prints the other cells.
func TestBenchSweepFails(t *testing.T) {
	e := benchEngine(t, sim.Options{}.Fast())
	printed, note, err := sweepOnTime(t, "--preset", "gpt-oss", "--max-prompts", "2", "--repeats", "1", "--out", t.TempDir(), "--url", e.URL(), "--target", "gone=http://127.0.0.1:1")
	if err == nil || err.Error() != "5 of 10 cells failed; the same command repeats them" || strings.Count(note, "\nfailed: gone 1k-1k conc") != 5 ||
		!strings.HasPrefix(note, "Repeats the benchmark of llm-d's P/D guide to gpt-oss-120b") || !strings.Contains(note, " of 10 cells, about ") || !strings.Contains(printed, strings.TrimPrefix(e.URL(), "http://")) {
		t.Errorf("%v\n%s\n%s", err, note, printed)
	}
}

func TestBenchSweepUsage(t *testing.T) {
	file := filepath.Join(t.TempDir(), "s.yaml")
	if err := os.WriteFile(file, []byte("targets:\n  - {name: a, url: http://a:1}\nworkload: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		`sweep takes one file, or --preset; got 0 files and preset ""`:           {"sweep"},
		`sweep takes one file, or --preset; got 1 files and preset "ray"`:        {"sweep", "x.yaml", "--preset", "ray"},
		`preset "tray": want one of cloudera, gpt-oss, llm-d-pd, mooncake, ray`:  {"sweep", "--preset", "tray"},
		`no target: want targets in the file, --target NAME=URL, or --url`:       {"sweep", "--preset", "ray"},
		`--target "a": want NAME=URL or NAME:GPUS=URL`:                           {"sweep", "--preset", "ray", "--target", "a"},
		`--url: URL "a": want http://host:port`:                                  {"sweep", "--preset", "ray", "--url", "a"},
		`--engine is for --url: the targets of a file have engines of their own`: {"sweep", "--preset", "ray", "--target", "a=http://a:1", "--engine", "P=http://a:1"},
		`--workload "none": the sweep has none of that name`:                     {"sweep", "--preset", "ray", "--url", "http://a:1", "--workload", "none"},
		`--print shows the file of a --preset`:                                   {"sweep", file, "--print"},
		file + `: line 3: no key is called workload, the nearest is workloads`:   {"sweep", file},
		`--by "itl": want some of [chunk tpot ttft]`:                             {"advise", "x", "--by", "itl"},
		`advise takes one directory, got 0`:                                      {"advise"},
		`--engine "P": URL "nowhere": want http://host:port`:                     {"sweep", "--preset", "ray", "--url", "http://a:1", "--engine", "P=nowhere"},
		`goodput itl:5: want ttft, tpot or e2el and a bound in ms`:               {"sweep", "--preset", "ray", "--url", "http://a:1", "--goodput", "itl:5"},
	} {
		var usage config.UsageError
		if _, _, err := runBenchCmd(t.Context(), args...); !errors.As(err, &usage) || err.Error() != want {
			t.Errorf("%q: %v, want %s", args, err, want)
		}
	}
	text, _, err := runBenchCmd(t.Context(), "sweep", "--preset", "ray", "--print")
	if err != nil || !strings.HasPrefix(text, "# Ray Serve's experiments with gpt-oss-120b") {
		t.Errorf("%v\n%s", err, text)
	}
}

// TestSweepsOfTheDocs: the example is a sweep, and the page has the command of each preset.
func TestSweepsOfTheDocs(t *testing.T) {
	text := readText(t, "docs/benchmarking.md")
	_, example, _ := strings.Cut(text, "```yaml\n# night.yaml\n")
	example, _, ok := strings.Cut(example, "```")
	f, err := sweep.Parse("night.yaml", []byte(example))
	if !ok || err != nil || f.Validate() != nil || len(f.Cells()) != 2*2*8*3 || f.Targets[0].Collocated != 2 {
		t.Errorf("%v\n%s", err, example)
	}
	for _, name := range sweep.Presets() {
		if !strings.Contains(text, "`xpyd bench sweep --preset "+name+" ") {
			t.Errorf("no command of the preset %s", name)
		}
	}
	keys := reflect.TypeFor[sweep.File]()
	for _, part := range []reflect.Type{keys, reflect.TypeFor[sweep.Target](), reflect.TypeFor[sweep.Workload](), reflect.TypeFor[sweep.Load]()} {
		for i := range part.NumField() {
			if key := part.Field(i).Tag.Get("yaml"); key != "" && key != "-" && !strings.Contains(text, "`"+key+"`") && !strings.Contains(example, key+":") {
				t.Errorf("nothing tells of the key %s", key)
			}
		}
	}
}
