package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// This goes the whole way once, with this program as proxy and as relay, from the load to a table.
func TestProxyMeasures(t *testing.T) {
	if !inOwnProcess(t) {
		return
	}
	t.Setenv(actAsProgram, "1") // of the proxies that the run starts
	dir := t.TempDir()
	out, err := call(t, "proxy", "--only", "relay,direct", "--xpyd", "mine="+testBinary(t), "--run", "^(json|paced-64)$",
		"--rounds", "1", "--window", "500ms", "--out", dir)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var results struct {
		Shapes []struct {
			Name, Load string
			Contenders []struct {
				Name   string
				Values map[string][]*float64
				Errors []string
			}
		}
	}
	js, err := os.ReadFile(filepath.Join(dir, "results.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(js, &results); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, s := range results.Shapes {
		figure := map[string]string{"json": "CPU/request µs", "paced-64": "CPU/event µs"}[s.Name]
		for _, c := range s.Contenders {
			seen[s.Load+" "+s.Name+" "+c.Name] = true
			v := c.Values[figure]
			if len(c.Errors) > 0 || len(v) != 1 || v[0] == nil || (*v[0] > 0) != (c.Name != "direct") {
				t.Errorf("%s, %s, %s: no %s; errors %q", s.Load, s.Name, c.Name, figure, c.Errors)
			}
		}
	}
	for _, want := range []string{"json mine", "json relay", "paced-64 mine", "paced-64 relay", "paced-64 direct"} {
		for _, load := range []string{"epoll", "goroutines"} {
			if !seen[load+" "+want] {
				t.Errorf("not measured: %s %s; measured: %v", load, want, seen)
			}
		}
	}
	if want := "mine: CPU/request µs to nginx ≤ 2.2×: not measured"; !strings.Contains(out, want) {
		t.Errorf("report lacks %q:\n%s", want, out)
	}
}

func TestProxyRefusesWrongFlags(t *testing.T) {
	t.Setenv(actAsProgram, "1")
	for _, tc := range []struct{ flag, want string }{
		{"--rounds=0", "0 rounds"}, {"--xpyd=nameless", "nameless"}, {"--only=apache", "apache"}, {"--load=siege", "siege"}, {"--run=(", "missing closing"}, {"--run=^nothing$", "no shape matches"}, {"--xpyd=mine=/none", "make build"},
	} {
		if _, err := call(t, "proxy", "--out", t.TempDir(), tc.flag, "--xpyd", "mine="+testBinary(t)); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want %q in it", tc.flag, err, tc.want)
		}
	}
}
