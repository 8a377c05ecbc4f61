package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"xpyd/router"
)

func TestRoutingsAreEveryPolicyAndMode(t *testing.T) {
	var want []string
	for _, policy := range router.Policies() {
		if policy != alias {
			want = append(want, policy)
		}
	}
	if len(want) == len(router.Policies()) {
		t.Errorf("%s is no policy any more", alias)
	}
	want = append(append([]string{"defaults"}, want...), "pd.mode=never", "pd.mode=auto")
	var got []string
	for _, r := range routings() {
		got = append(got, r.name)
		if len(r.env()) != 3 || len(r.flags()) != 3 {
			t.Errorf("%s leaves something to the tests: %q, %q", r.name, r.env(), r.flags())
		}
		if policy := strings.TrimPrefix(r.name, "pd.mode="); slices.Contains(router.Policies(), policy) && (r.prefill != policy || r.decode != policy) {
			t.Errorf("%s has %s and %s", r.name, r.prefill, r.decode)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("routings %q, want %q", got, want)
	}
}

func TestRoutingIsSetForTestsAndForThePrograms(t *testing.T) {
	r := routing{prefill: "random", mode: "auto"}
	if got, want := r.env(), []string{"XPYD_PREFILL_POLICY=random", "XPYD_PD_MODE=auto"}; !slices.Equal(got, want) {
		t.Errorf("environment %q, want %q", got, want)
	}
	if got, want := r.flags(), []string{"--prefill-policy=random", "--pd-mode=auto"}; !slices.Equal(got, want) {
		t.Errorf("flags %q, want %q", got, want)
	}
	if got := (routing{}).env(); len(got) != 0 {
		t.Errorf("no routing sets %q", got)
	}
}

func TestWithoutPrefillOnlyTheRowsThatHoldAreRun(t *testing.T) {
	rows := []row{
		{id: "T1", tests: []string{"p.Prefill"}},
		{id: "T2", tests: []string{"p.Handle"}, alone: []string{"p.Stream"}},
		{id: "T3", alone: []string{"p.Client"}},
	}
	for mode, want := range map[string][]string{
		"":       {"p.Prefill", "p.Handle", "p.Stream", "p.Client"},
		"always": {"p.Prefill", "p.Handle", "p.Stream", "p.Client"},
		"never":  {"p.Stream", "p.Client"},
		"auto":   {"p.Stream", "p.Client"},
	} {
		if got := testsOf(routing{mode: mode}.fit(rows)); !slices.Equal(got, want) {
			t.Errorf("pd.mode %q: %q, want %q", mode, got, want)
		}
	}
	if len(rows[1].tests) != 1 {
		t.Error("the matrix has lost a test")
	}
}

func TestQuickRowsTurnOnAChoice(t *testing.T) {
	rows, err := pickRows(matrix(), "", true)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if !r.choice {
			t.Errorf("%s is among them", r.id)
		}
	}
	if all, err := pickRows(matrix(), "", false); err != nil || len(rows) == 0 || len(rows) >= len(all) {
		t.Errorf("%d of %d rows, error %v", len(rows), len(all), err)
	}
	if _, err := pickRows(matrix(), "^T0$", false); err == nil {
		t.Error("no row, and no error")
	}
}

// program writes a shell script that stands for xpyd.
func program(t *testing.T, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "xpyd")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestChurnIsWhatTheProgramSaysOfIt(t *testing.T) {
	r := routing{prefill: "random", decode: "prefix", mode: "never"}
	for _, tc := range []struct {
		name, script string
		want         verdict
		text         string
	}{
		{"passes", `echo "$@"`, passed, "churn --duration 20s --min-per-phase 30 -- --prefill-policy=random --decode-policy=prefix --pd-mode=never\n"},
		{"fails", `echo "1 block stays" >&2; exit 1`, failed, "1 block stays\n"},
		{"is killed", `kill -9 $$`, failed, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := churn(t.Context(), program(t, tc.script), r)
			if err != nil || got.verdict != tc.want || got.text != tc.text {
				t.Errorf("%s, %q, error %v", got.verdict, got.text, err)
			}
		})
	}
	if _, err := churn(t.Context(), filepath.Join(t.TempDir(), "gone"), r); err == nil {
		t.Error("no program, and no error")
	}
}

func TestOneWrongRoutingFailsTheRun(t *testing.T) {
	good := matrixResult{rows: []rowResult{{row: row{id: "T1", tests: []string{"p.Good"}}, verdict: passed}},
		all: results{"p.Good": {verdict: passed, text: "fine"}}}
	bad := matrixResult{rows: []rowResult{{row: row{id: "T1", alone: []string{"p.Bad"}}, verdict: skipped}},
		all: results{"p.Bad": {verdict: skipped, text: "not today"}}}
	left := &result{verdict: failed, text: "1 block stays"}
	for _, tc := range []struct {
		name string
		pass pass
		says []string // none means that the row is as it must be
	}{
		{"all hold", pass{matrix: good, churn: &result{verdict: passed}}, nil},
		{"no churn", pass{matrix: good}, nil},
		{"a test is skipped", pass{matrix: bad}, []string{"0 of 1 rows", "p.Bad: SKIPPED\nnot today"}},
		{"churn fails", pass{matrix: good, churn: left}, []string{"1 of 1 rows", "churn: FAILED\n1 block stays"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out strings.Builder
			p := &printer{w: &out}
			tc.pass.routing.name = "this"
			p.pass(tc.pass, false)
			err := reportPasses(p, []pass{{routing: routing{name: "other"}, matrix: good}, tc.pass})
			if (err == nil) != (tc.says == nil) {
				t.Errorf("the run ends with %v", err)
			}
			for _, want := range tc.says {
				if !strings.Contains(out.String(), want) {
					t.Errorf("report lacks %q:\n%s", want, &out)
				}
			}
			if strings.Contains(out.String(), "fine") {
				t.Errorf("a test that passed is told of:\n%s", &out)
			}
		})
	}
}
