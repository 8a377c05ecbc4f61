package main

import (
	"errors"
	"os/exec"
	"testing"
)

func TestOnlyAFailingTestKills(t *testing.T) {
	exit := exec.Command("false").Run()
	named, control := mutant{test: "TestA/b_c"}, mutant{}
	for _, tc := range []struct {
		name   string
		m      mutant
		output string
		err    error
		want   verdict
	}{
		{"fails", named, "--- FAIL: TestA (0.01s)\n    --- FAIL: TestA/b_c (0.01s)\n", exit, killed},
		{"passes", named, "PASS\n", nil, survived},
		{"does not exist", named, "testing: warning: no tests to run\nPASS\n", nil, survived},
		{"another one fails", named, "--- FAIL: TestAB (0.01s)\n", exit, hung},
		{"panics", named, "panic: BUG: handle sent twice\n", exit, killed},
		{"panics in the middle", named, "{}\npanic: BUG\n", exit, killed},
		{"runs out of time", named, "--- FAIL: TestA (9s)\npanic: test timed out after 2m0s\n", exit, hung},
		{"does not start", named, "", errors.New("exec: not found"), hung},
		{"control passes", control, "PASS\n", nil, survived},
		{"control fails", control, "--- FAIL: TestA (0.01s)\n", exit, dead},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := tc.m.read(tc.output, tc.err); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
}

// -stale shows that each still has its place. make mutants runs it first.
func TestMutantsAreWellFormed(t *testing.T) {
	seen := map[string]bool{}
	for _, m := range append(mutants(), controls()...) {
		if seen[m.name] || m.old == m.new || m.old == "" || m.in == "" {
			t.Errorf("mutant %+v: want its own name, a change and a function", m)
		}
		seen[m.name] = true
	}
}
