package cmd

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"xpyd/bench"
	"xpyd/sim"
)

// readBenchFlags reads a command line of bench serve, and runs nothing.
func readBenchFlags(t *testing.T, args ...string) (bench.Options, []string, error) {
	t.Helper()
	f := &benchFlags{}
	var o bench.Options
	cmd := &cobra.Command{Use: "serve", SilenceErrors: true, SilenceUsage: true, RunE: func(cmd *cobra.Command, args []string) (err error) {
		o, err = f.options(cmd.Flags(), args)
		return err
	}}
	f.add(cmd.Flags())
	addFormatFlag(cmd, &f.format, "vllm")
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	return o, f.notes, err
}

// TestVLLMFlags: each flag of vllm bench serve works here, or gets a note that it has no effect, or is
// refused with what to do instead. None is unknown.
func TestVLLMFlags(t *testing.T) {
	table, err := os.ReadFile(filepath.Join("testdata", "vllm-bench-serve.txt"))
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for line := range strings.Lines(string(table)) {
		want, flag, ok := strings.Cut(strings.TrimSpace(line), "\t")
		if !ok {
			continue
		}
		seen++
		args := strings.Fields(flag)
		if got := fate(t, args); got != want {
			t.Errorf("%s: %s, want %s", flag, got, want)
		}
		args[0] = "--" + strings.ReplaceAll(strings.TrimPrefix(args[0], "--"), "-", "_")
		if got := fate(t, args); got != want {
			t.Errorf("%q: %s, want %s", args, got, want)
		}
	}
	if seen != 102 {
		t.Errorf("%d flags in the table", seen)
	}
}

func fate(t *testing.T, args []string) string {
	_, notes, err := readBenchFlags(t, args...)
	name := strings.ReplaceAll(strings.TrimPrefix(args[0], "--"), "_", "-")
	switch {
	case err != nil && strings.HasPrefix(err.Error(), "--"+name+" of vllm bench serve is not here: "):
		return "refused"
	case err != nil:
		return err.Error()
	case len(notes) == 1 && strings.HasPrefix(notes[0], "--"+name+" has no effect: "):
		return "note"
	case len(notes) > 0:
		return strings.Join(notes, "; ")
	}
	return "meant"
}

// TestVLLMFlagsMean: they mean the same as in vLLM.
func TestVLLMFlagsMean(t *testing.T) {
	for line, check := range map[string]func(o bench.Options) bool{
		"--served-model-name served --model org/name": func(o bench.Options) bool { return o.Client.Model == "served" },
		"--endpoint /gate/v1/chat/completions --base-url http://h:1/": func(o bench.Options) bool {
			return o.Client.API == "chat" && o.Client.URL == "http://h:1/gate"
		},
		"--top-p 0.9 --repetition-penalty 1.1 --logprobs 2": func(o bench.Options) bool {
			return reflect.DeepEqual(o.Client.Extra, map[string]any{"top_p": 0.9, "repetition_penalty": 1.1, "logprobs": 2.0})
		},
		`--top-k 3 --extra-body {"top_k":7}`: func(o bench.Options) bool { return o.Client.Extra["top_k"] == 7.0 },
		"--goodput ttft:200 tpot:50 --header X-A=b:c X-B=1 --rate 4 --metadata tp=1": func(o bench.Options) bool {
			return o.Goodput["tpot"] == 50 && o.Client.Header.Get("X-A") == "b:c" && o.Client.Header.Get("X-B") == "1" && o.Metadata["tp"] == "1"
		},
		"--dataset-name custom --dataset-path p.jsonl": func(o bench.Options) bool {
			return o.Dataset.Kind == "prompts" && o.Dataset.OutputLen == 256 && !o.Client.IgnoreEOS
		},
		"--dataset-name custom --dataset-path p.jsonl --custom-output-len -1 --disable-shuffle": func(o bench.Options) bool {
			return o.Dataset.OutputLen == 0 && o.Dataset.InOrder
		},
		"--dataset-name prefix_repetition --prefix-repetition-suffix-len 9": func(o bench.Options) bool {
			d := o.Dataset
			return d.Kind == "random" && d.PrefixLen == 256 && d.InputLen == 9 && d.Prefixes == 10 && d.OutputLen == 128 && !o.Client.IgnoreEOS
		},
		"--dataset-name timed_trace --dataset-path t.jsonl --timed-trace-sec-multiplier 0.5": func(o bench.Options) bool {
			return o.Dataset.Kind == "trace" && o.Dataset.BlockLen == 16 && o.Dataset.Tick == 500*time.Millisecond && o.Client.IgnoreEOS
		},
		"--dataset trace --file t.jsonl": func(o bench.Options) bool { return o.Dataset.BlockLen == 0 && o.Dataset.Tick == 0 },
		`--random-range-ratio {"input":0.3,"output":0.5}`: func(o bench.Options) bool {
			return o.Dataset.RangeRatio == 0.3 && *o.Dataset.OutputRatio == 0.5
		},
		"--random-range-ratio 1.0":                    func(o bench.Options) bool { return o.Dataset.RangeRatio == 0 && o.Warmups == 1 },
		"--format seed":                               func(o bench.Options) bool { return o.Warmups == 1 },
		"--format table":                              func(o bench.Options) bool { return o.Warmups == 0 },
		"--num-warmups 0":                             func(o bench.Options) bool { return o.Warmups == 0 },
		"--ready-check-timeout-sec 7 --no-oversample": func(o bench.Options) bool { return o.Ready == 7*time.Second && o.NoReuse },
	} {
		o, _, err := readBenchFlags(t, strings.Fields(line)...)
		if err != nil || !check(o) {
			t.Errorf("%s: %v, %+v", line, err, o)
		}
	}
}

func TestVLLMFlagsThatCannotBe(t *testing.T) {
	for line, want := range map[string]string{
		"--dataset-name hf": "dataset hf of vllm bench serve is not here: write the prompts to a file, a line each, for --dataset prompts",
		"--self-timed --rate 3 --dataset trace --file x": "--self-timed sends at the trace's times: leave --rate and --no-self-timed out",
		"--top-p much":                `--top-p "much": want a number`,
		"--metadata tp":               `--metadata "tp": want K=V`,
		"--random-range-ratio 1.5":    "--range-ratio 1.5: want at least 0 and less than 1, or 1 for lengths that are all the same",
		"--range-ratio half":          `--range-ratio "half": want a number, or {"input": A, "output": B}`,
		"--endpoint /v1/embeddings":   `--endpoint "/v1/embeddings": want /v1/completions or /v1/chat/completions`,
		"--header X-Key=secret stray": `--header "stray": want K=V`,
	} {
		if _, _, err := readBenchFlags(t, strings.Fields(line)...); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", line, err, want)
		}
	}
}

// TestPastedCommand runs a typical command twice. It checks the key from the environment, the requests,
// and the place of the result file.
func TestPastedCommand(t *testing.T) {
	e := benchEngine(t, sim.Options{APIKey: "secret"}.Fast())
	var mu sync.Mutex // over bodies
	var bodies []map[string]any
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/completions") {
			var b map[string]any
			if err := json.NewDecoder(r.Body).Decode(&b); err != nil {
				t.Error(err)
			}
			mu.Lock()
			bodies = append(bodies, b)
			mu.Unlock()
		}
		http.Error(w, "not here", http.StatusNotFound)
	}))
	defer server.Close()
	t.Setenv("OPENAI_API_KEY", "secret")
	dir := t.TempDir()
	line := "serve --backend vllm --model sim --tokenizer org/name --trust-remote-code --endpoint /v1/completions --dataset-name random --random-input-len 16" +
		" --random-output-len 4 --num-prompts 3 --max-concurrency 1 --seed 0 --top-p 0.9 --save-result --save-detailed --append-result --result-filename r.json --metadata tp=1 gpu=h100 --disable-tqdm --result-dir " + dir
	for range 2 {
		_, note, err := runBenchCmd(t.Context(), append(strings.Fields(line), "--base-url", e.URL(), "--max-lateness", "0")...)
		if err != nil || !strings.Contains(note, "note: --tokenizer has no effect: the server's own tokenizer counts\n") {
			t.Fatal(err, note)
		}
	}
	b, err := os.ReadFile(filepath.Join(dir, "r.json"))
	if err != nil {
		t.Fatal(err)
	}
	results := strings.Split(strings.TrimSpace(string(b)), "\n")
	for _, text := range results {
		var r map[string]any
		if err := json.Unmarshal([]byte(text), &r); err != nil || r["tp"] != "1" || r["gpu"] != "h100" || r["completed"] != 3.0 {
			t.Errorf("%v: %s", err, text)
		}
	}
	detailed(t, results[0], filepath.Join(dir, "*.run.json"))
	if runs, _ := filepath.Glob(filepath.Join(dir, "*.run.json")); len(results) != 2 || len(runs) < 1 {
		t.Errorf("%d results, runs %v", len(results), runs)
	}
	if _, _, err := runBenchCmd(t.Context(), append(strings.Fields(line), "--base-url", server.URL)...); err == nil {
		t.Error("a server that has nothing is measured")
	}
	mu.Lock()
	defer mu.Unlock()
	for _, b := range bodies {
		if b["top_p"] != 0.9 || b["ignore_eos"] != true || b["max_tokens"] != 4.0 || b["repetition_penalty"] != 1.0 {
			t.Errorf("body %v", b)
		}
	}
	if len(bodies) != 1 { // the test request before the run has shown it
		t.Errorf("%d requests", len(bodies))
	}
}

// detailed checks the lists of --save-detailed in a result file: each request's text and gaps. Saved
// runs must not have the texts.
func detailed(t *testing.T, text, saved string) {
	t.Helper()
	var r struct {
		Texts   []string    `json:"generated_texts"`
		Gaps    [][]float64 `json:"itls"`
		Inputs  []int       `json:"input_lens"`
		Outputs []int       `json:"output_lens"`
		Starts  []float64   `json:"start_times"`
		Errors  []string    `json:"errors"`
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil || len(r.Texts) != 3 || len(r.Errors) != 3 || len(r.Starts) != 3 {
		t.Fatalf("%v: %s", err, text)
	}
	runs, _ := filepath.Glob(saved)
	for i, answer := range r.Texts {
		if answer == "" || len(r.Gaps[i]) != 3 || r.Inputs[i] != 16 || r.Outputs[i] != 4 || r.Errors[i] != "" || i > 0 && r.Starts[i] <= r.Starts[i-1] {
			t.Errorf("request %d: %s", i, text)
		}
		for _, run := range runs {
			if b, err := os.ReadFile(run); err != nil || strings.Contains(string(b), answer) {
				t.Errorf("%s: %v, or an answer in it", run, err)
			}
		}
	}
}

// TestSaveDetailedNeedsAFile: without one it has no effect, and says so.
func TestSaveDetailedNeedsAFile(t *testing.T) {
	o, notes, err := readBenchFlags(t, "--save-detailed")
	if err != nil || o.Client.KeepText || len(notes) != 1 || notes[0] != "--save-detailed has no effect: nothing is saved without --out or --save-result" {
		t.Error(o.Client.KeepText, notes, err)
	}
}
