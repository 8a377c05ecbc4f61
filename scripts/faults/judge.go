package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// verdict is what became of a test, or of a row: the worst of its tests.
type verdict string

const (
	passed  verdict = "passed"
	failed  verdict = "FAILED"
	skipped verdict = "SKIPPED"
	missing verdict = "MISSING" // no such test, or a row without one
	excused verdict = "excused" // skipped for want of what the row is marked to need
)

// result of one test. text is what it said.
type result struct {
	verdict verdict
	text    string
	took    time.Duration
}

// event is one line of test2json.
type event struct {
	Action, Test, Output string
}

// judge reads the events of a run of one test, with its subtests. Whatever is not
// seen to pass has not passed.
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
		case e.Action == "fail": // of the binary too: a panic, a time-out
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

// rowResult is a row with what became of it.
type rowResult struct {
	row
	verdict verdict
	took    time.Duration // of its tests, one after the other
}

// judgeRows gives each row the worst verdict of its tests. admin: this process can
// make a network namespace, so nothing may be skipped for the want of one.
func judgeRows(rows []row, results map[string]result, admin bool) []rowResult {
	var all []rowResult
	for _, r := range rows {
		rr := rowResult{row: r, verdict: passed}
		if len(r.tests) == 0 {
			rr.verdict = missing
		}
		for _, t := range r.tests {
			got, ok := results[t]
			if !ok {
				got.verdict = missing
			}
			if got.verdict == skipped && !admin && r.needs == capNetAdmin && strings.Contains(got.text, "needs "+string(capNetAdmin)) {
				got.verdict = excused
			}
			rr.verdict = worse(rr.verdict, got.verdict)
			rr.took += got.took
		}
		all = append(all, rr)
	}
	return all
}

func worse(a, b verdict) verdict {
	for _, v := range []verdict{failed, missing, skipped, excused} {
		if a == v || b == v {
			return v
		}
	}
	return passed
}

// wrong rows fail the run.
func (r rowResult) wrong() bool { return r.verdict != passed && r.verdict != excused }

func (r rowResult) seconds() string { return fmt.Sprintf("%.1f", r.took.Seconds()) }
