package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

// lines makes test2json's output from "ACTION TEST" pairs. A third word is output.
func lines(events ...string) []byte {
	var b strings.Builder
	for _, e := range events {
		action, rest, _ := strings.Cut(e, " ")
		test, text, _ := strings.Cut(rest, " ")
		fmt.Fprintf(&b, `{"Action":%q,"Test":%q,"Output":%q}`+"\n", action, test, text)
	}
	return []byte(b.String())
}

func TestOnlyATestSeenToPassHasPassed(t *testing.T) {
	exit := errors.New("exit status 1")
	for _, tc := range []struct {
		name   string
		output []byte
		exit   error
		want   verdict
	}{
		{"passes", lines("run TestA", "pass TestA", "pass"), nil, passed},
		{"passes with subtests", lines("run TestA", "run TestA/b", "pass TestA/b", "pass TestA", "pass"), nil, passed},
		{"fails", lines("run TestA", "fail TestA", "fail"), exit, failed},
		{"a subtest fails", lines("run TestA", "fail TestA/b", "fail TestA", "fail"), exit, failed},
		{"does not exist", lines("output  testing: warning: no tests to run", "pass"), nil, missing},
		{"another one passes", lines("run TestAB", "pass TestAB", "pass"), nil, missing},
		{"says nothing", nil, nil, missing},
		{"is skipped", lines("run TestA", "skip TestA", "pass"), nil, skipped},
		{"a subtest is skipped", lines("run TestA", "skip TestA/b", "pass TestA", "pass"), nil, skipped},
		{"has no test files", lines("skip"), nil, missing},
		{"dies", lines("run TestA", "output TestA panic: BUG", "fail"), exit, failed},
		{"passes, then the process dies", lines("run TestA", "pass TestA"), exit, failed},
		{"no JSON", []byte("flag provided but not defined\n"), exit, failed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := judge("TestA", tc.output, tc.exit); got.verdict != tc.want {
				t.Errorf("%s, want %s", got.verdict, tc.want)
			}
		})
	}
	if got := judge("TestA/b", lines("run TestA", "pass TestA", "pass"), nil); got.verdict != missing {
		t.Errorf("a subtest that is not there: %s", got.verdict)
	}
}

func TestRowIsTheWorstOfItsTests(t *testing.T) {
	all := results{
		"p.Good": {verdict: passed}, "p.Bad": {verdict: failed}, "p.Gone": {verdict: missing}, "p.Lazy": {verdict: skipped},
	}
	for _, tc := range []struct {
		name  string
		tests []string
		want  verdict
	}{
		{"all pass", []string{"p.Good", "p.Good"}, passed},
		{"one fails", []string{"p.Good", "p.Bad", "p.Gone"}, failed},
		{"one is not there", []string{"p.Good", "p.Gone", "p.Lazy"}, missing},
		{"one was not run", []string{"p.Good", "p.Unknown"}, missing},
		{"none", nil, missing},
		{"one is skipped", []string{"p.Good", "p.Lazy"}, skipped},
	} {
		t.Run(tc.name, func(t *testing.T) {
			rows := judgeRows([]row{{id: "T0", tests: tc.tests}}, all)
			if rows[0].verdict != tc.want {
				t.Errorf("%s, want %s", rows[0].verdict, tc.want)
			}
			if err := report(io.Discard, matrixResult{rows: rows, all: all}, false); (err == nil) != (tc.want == passed) {
				t.Errorf("the run ends with %v", err)
			}
		})
	}
}

func TestReportTellsWhatFailed(t *testing.T) {
	all := results{"p.Good": {verdict: passed, text: "fine"}, "p.Bad": {verdict: failed, text: "boom"}}
	rows := judgeRows([]row{{id: "T8", tests: []string{"p.Good"}}, {id: "T9", tests: []string{"p.Bad", "p.Gone"}}}, all)
	var out strings.Builder
	if err := report(&out, matrixResult{rows: rows, all: all}, false); err == nil {
		t.Error("no error")
	}
	for _, want := range []string{"== T9 p.Bad: FAILED\nboom", "== T9 p.Gone: MISSING", "2 rows, 2 tests, 1 rows not as they must be"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("report lacks %q:\n%s", want, &out)
		}
	}
	if strings.Contains(out.String(), "fine") {
		t.Errorf("a test that passed is told of:\n%s", &out)
	}
}
