package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// This goes the whole way once, with this program as proxy and as engines, from the load to tables,
// charts and the documentation.
func TestRoutingMeasures(t *testing.T) {
	if !inOwnProcess(t) {
		return
	}
	t.Setenv(actAsProgram, "1") // of the proxies and engines that the run starts
	dir, docs := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(docs, "routing.md"), []byte("method\n<!-- bench-routing: begin -->\nold\n<!-- bench-routing: end -->\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	trace := filepath.Join(dir, "trace.jsonl")
	if err := os.WriteFile(trace, []byte(`{"timestamp": 0, "input_length": 600, "output_length": 2, "hash_ids": [1, 2]}
{"timestamp": 1000, "input_length": 600, "output_length": 2, "hash_ids": [1, 2]}
{"timestamp": 2000, "input_length": 600, "output_length": 2, "hash_ids": [1, 2]}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := call(t, "routing", "--xpyd", testBinary(t), "--only", "least_request,round_robin", "--run", "^(system|trace)$", "--topology", "2P1D",
		"--length", "2s", "--trace", trace, "--out", dir, "--docs", docs)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	checkRoutingResults(t, filepath.Join(dir, "results.json"))
	for _, want := range []string{"prefix+auto: TTFT p90 ms to the best other ≤ 1×: not measured: unknown", "2P1D: shared system prompts (system)", "| oracle |", "| oracle+auto |", "| oracle+never |"} {
		if !strings.Contains(out, want) {
			t.Errorf("report lacks %q:\n%s", want, out)
		}
	}
	text, err := os.ReadFile(filepath.Join(docs, "routing.md"))
	if err != nil || strings.Contains(string(text), "old\n") || !strings.Contains(string(text), "img/bench-routing-ttft-2p1d.svg") {
		t.Errorf("routing.md: error %v:\n%s", err, text)
	}
	if _, err := os.Stat(filepath.Join(docs, "img", "bench-routing-hits-2p1d.svg")); err != nil {
		t.Error(err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "run-*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, error %v", left, err)
	}
}

// checkRoutingResults wants a figure of each contender on each workload, and no lost request.
func checkRoutingResults(t *testing.T, path string) {
	t.Helper()
	js, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var results struct {
		Measurements []struct {
			Workload string
			Rows     []struct {
				Name     string
				Values   map[string][]*float64
				Errors   []string
				Problems []string
			}
		}
	}
	if err := json.Unmarshal(js, &results); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, m := range results.Measurements {
		for _, row := range m.Rows {
			seen[m.Workload+" "+row.Name] = true
			v := row.Values["TTFT p90 ms"]
			if len(row.Errors) > 0 || len(row.Problems) > 0 || len(v) != 1 || v[0] == nil || *v[0] <= 0 {
				t.Errorf("%s, %s: TTFT %v, errors %q, problems %q", m.Workload, row.Name, v, row.Errors, row.Problems)
			}
			if lost := row.Values["errors"]; !strings.HasPrefix(row.Name, "oracle") && (len(lost) != 1 || lost[0] == nil || *lost[0] != 0) {
				t.Errorf("%s, %s: lost requests %v", m.Workload, row.Name, lost)
			}
		}
	}
	for _, want := range []string{"system least_request", "system round_robin", "system oracle", "trace least_request"} {
		if !seen[want] {
			t.Errorf("not measured: %s; measured: %v", want, seen)
		}
	}
}

func TestRoutingRefusesWrongFlags(t *testing.T) {
	t.Setenv(actAsProgram, "1")
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.jsonl")
	if err := os.WriteFile(bad, []byte(`{"timestamp": 0, "input_length": 5, "output_length": 5, "hash_ids": []}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ flag, want string }{
		{"--rounds=0", "0 rounds"}, {"--only=fastest", "fastest"}, {"--only=prefix+sometimes", "sometimes"}, {"--run=(", "missing closing"}, {"--run=^nothing$", "nothing was measured"},
		{"--topology=4P", "4P4D"}, {"--length=10ms", "10ms"}, {"--trace=" + filepath.Join(dir, "none"), "no such file"}, {"--trace=" + bad, "line 1: hash_ids"},
	} {
		if _, err := call(t, "routing", "--out", t.TempDir(), "--xpyd", testBinary(t), tc.flag); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want %q in it", tc.flag, err, tc.want)
		}
	}
}
