package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestWhatCountsAsAFailure(t *testing.T) {
	for _, tc := range []struct {
		name            string
		run             func(context.Context, *trial) error
		cases, failures int
		found           bool // by a wrong that was planted
	}{
		{"all held", func(_ context.Context, t *trial) error { t.pass(); t.pass(); return nil }, 2, 0, false},
		{"one did not", func(_ context.Context, t *trial) error { t.pass(); t.fail("so"); return nil }, 2, 1, true},
		{"nothing was judged", func(context.Context, *trial) error { return nil }, 1, 1, false},
		{"not carried out", func(_ context.Context, t *trial) error { t.pass(); return errors.New("no engine") }, 2, 1, false},
		{"not carried out after a failure", func(_ context.Context, t *trial) error { t.fail("so"); return errors.New("no engine") }, 2, 2, true},
		{"panic", func(context.Context, *trial) error { panic("nil map") }, 1, 1, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := check{name: "a check", run: tc.run}.judge(t.Context(), &fleet{})
			if r.cases != tc.cases || r.failures != tc.failures || r.found() != tc.found {
				t.Errorf("%d cases, %d failures, found %v", r.cases, r.failures, r.found())
			}
			if got := report(new(strings.Builder), []row{{"other", 3, 0, 0, nil}, r}); got != tc.failures {
				t.Errorf("the table counts %d failures", got)
			}
		})
	}
}

// A check whose engines start for minutes runs only if it is asked for.
func TestWhichChecksRun(t *testing.T) {
	usual, slow := check{name: "usual"}, check{name: "slow", named: true}
	for run, want := range map[string][2]bool{"": {true, false}, "slow": {false, true}, ".": {true, true}, "usual": {true, false}} {
		pick := regexp.MustCompile(run)
		if got := [2]bool{usual.picked(pick), slow.picked(pick)}; got != want {
			t.Errorf("-run %q: usual and slow are %v, want %v", run, got, want)
		}
	}
}

// A pair has one connector, and each rank is a backend of its own.
func TestPairsOfEngines(t *testing.T) {
	p, d := &engine{spec: spec{role: "prefill"}}, &engine{spec: spec{role: "decode"}}
	two := &engine{spec: spec{role: "prefill", ranks: 2}}
	otherP, otherD := &engine{spec: spec{role: "prefill", kv: "nixl-push"}}, &engine{spec: spec{role: "decode", kv: "nixl-push"}}
	for want, engines := range map[int][]*engine{0: {p, otherD}, 1: {p, d}, 2: {two, d}, 3: {p, two, d}, 4: {p, d, otherP, otherD, two}} {
		if got := pairsOf(engines); got != want {
			t.Errorf("%d engines: %d pairs, want %d", len(engines), got, want)
		}
	}
}

func TestScriptThatCannotRunHere(t *testing.T) {
	for _, tc := range []struct {
		name, script string
		cannot       bool
		want         string
	}{
		{"fine", "echo up", false, ""},
		{"cannot", "echo setting up >&2; echo 'engine: cannot run here: 1 GiB of memory' >&2; exit 3", true, "engine: cannot run here: 1 GiB of memory"},
		{"failure", "echo 'engine: port 8320: in use' >&2; exit 1", false, "engine: port 8320: in use"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := fleet{script: filepath.Join(t.TempDir(), "engine.sh")}
			if err := os.WriteFile(f.script, []byte("#!/bin/sh\n"+tc.script+"\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			err := f.call(t.Context(), nil, "start")
			var cannot cannotError
			if errors.As(err, &cannot) != tc.cannot || tc.cannot && err.Error() != tc.want {
				t.Errorf("%v, cannot %v", err, errors.As(err, &cannot))
			}
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want %q", err, tc.want)
			}
		})
	}
}
