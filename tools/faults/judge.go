package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// verdict is the result of a test, or of a row, which has the worst of its tests.
type verdict string

const (
	passed  verdict = "passed"
	failed  verdict = "FAILED"
	skipped verdict = "SKIPPED"
	missing verdict = "MISSING" // no such test, or a row without one
)

// result is the result of one test. text is its output.
type result struct {
	verdict verdict
	text    string
	took    time.Duration
	again   bool // of a second run
}

// results of the tests, by name.
type results map[string]result

// of returns the result of a test. A test that was not run is missing.
func (r results) of(test string) result {
	got, ok := r[test]
	if !ok {
		got.verdict = missing
	}
	return got
}

// event is one line of test2json.
type event struct {
	Action, Test, Output string
}

// judge reads the events of a run of one test with its subtests. What is not seen to pass has not
// passed.
func judge(name string, output []byte, exit error) result {
	var text strings.Builder
	seen := map[string]bool{}
	lines := bufio.NewScanner(bytes.NewReader(output))
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			text.WriteString(lines.Text() + "\n")
			continue
		}
		text.WriteString(e.Output)
		switch {
		case e.Action == "pass" && e.Test == name:
			seen["pass"] = true
		case e.Action == "fail": // of the binary too, on a panic or a time-out
			seen["fail"] = true
		case e.Action == "skip" && e.Test != "":
			seen["skip"] = true
		}
	}
	r := result{verdict: missing, text: text.String()}
	switch {
	case exit != nil || lines.Err() != nil || seen["fail"]:
		r.verdict = failed
	case seen["skip"]:
		r.verdict = skipped
	case seen["pass"]:
		r.verdict = passed
	}
	return r
}

// rowResult is a row with its result.
type rowResult struct {
	row
	verdict verdict
	took    time.Duration // of its tests, one after the other
}

// judgeRows gives each row the worst verdict of its tests.
func judgeRows(rows []row, all results) []rowResult {
	var judged []rowResult
	for _, r := range rows {
		rr := rowResult{row: r, verdict: passed}
		if len(r.all()) == 0 {
			rr.verdict = missing
		}
		for _, t := range r.all() {
			got := all.of(t)
			rr.verdict = worse(rr.verdict, got.verdict)
			rr.took += got.took
		}
		judged = append(judged, rr)
	}
	return judged
}

func worse(a, b verdict) verdict {
	for _, v := range []verdict{failed, missing, skipped} {
		if a == v || b == v {
			return v
		}
	}
	return passed
}

// wrong says that the row fails the run.
func (r rowResult) wrong() bool { return r.verdict != passed }

func (r rowResult) seconds() string { return fmt.Sprintf("%.1f", r.took.Seconds()) }
