package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

// lines makes test2json's output of "ACTION TEST" pairs; a third word is output.
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
	results := map[string]result{
		"p.Good": {verdict: passed}, "p.Bad": {verdict: failed}, "p.Gone": {verdict: missing},
		"p.Skipped": {verdict: skipped, text: "needs CAP_NET_ADMIN: operation not permitted"}, "p.Lazy": {verdict: skipped, text: "not today"},
	}
	for _, tc := range []struct {
		name  string
		row   row
		admin bool
		want  verdict
		fails bool
	}{
		{"all pass", row{tests: []string{"p.Good", "p.Good"}}, true, passed, false},
		{"one fails", row{tests: []string{"p.Good", "p.Bad", "p.Gone"}}, true, failed, true},
		{"one is not there", row{tests: []string{"p.Good", "p.Gone"}}, true, missing, true},
		{"one was not run", row{tests: []string{"p.Good", "p.Unknown"}}, true, missing, true},
		{"none", row{}, true, missing, true},
		{"none, and needs what is missing", row{needs: capNetAdmin}, false, missing, true},
		{"skipped", row{tests: []string{"p.Skipped"}}, false, skipped, true},
		{"skipped for want of what it needs", row{needs: capNetAdmin, tests: []string{"p.Good", "p.Skipped"}}, false, excused, false},
		{"skipped although it is there", row{needs: capNetAdmin, tests: []string{"p.Skipped"}}, true, skipped, true},
		{"skipped for another reason", row{needs: capNetAdmin, tests: []string{"p.Lazy"}}, false, skipped, true},
		{"skipped, another fails", row{needs: capNetAdmin, tests: []string{"p.Skipped", "p.Bad"}}, false, failed, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.row.id = "T0"
			rows := judgeRows([]row{tc.row}, results, tc.admin)
			if rows[0].verdict != tc.want {
				t.Errorf("%s, want %s", rows[0].verdict, tc.want)
			}
			if err := report(io.Discard, rows, results, false, time.Second); (err != nil) != tc.fails {
				t.Errorf("the run ends with %v, want a failure: %v", err, tc.fails)
			}
		})
	}
}

func TestReportNamesWhatWasExcusedAndWhatFailed(t *testing.T) {
	results := map[string]result{"p.S": {verdict: skipped, text: "needs CAP_NET_ADMIN"}, "p.F": {verdict: failed, text: "boom"}}
	rows := judgeRows([]row{{id: "T8", needs: capNetAdmin, tests: []string{"p.S"}}, {id: "T9", tests: []string{"p.F"}}}, results, false)
	var out strings.Builder
	if err := report(&out, rows, results, false, time.Second); err == nil {
		t.Error("no error")
	}
	for _, want := range []string{"not run for want of CAP_NET_ADMIN: T8", "== T9 p.F: FAILED\nboom", "2 rows, 2 tests, 1 rows not as they must be"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("report lacks %q:\n%s", want, &out)
		}
	}
}

func TestPatternPicksOneTest(t *testing.T) {
	if got := pattern("TestA/nothing_but_[DONE]/x"); got != `^TestA$/^nothing_but_\[DONE\]$/^x$` {
		t.Error(got)
	}
}
