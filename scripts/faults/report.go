package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// report prints the table, what the tests said that did not pass, and the rows that
// were excused.
func report(w io.Writer, rows []rowResult, results map[string]result, verbose bool, took time.Duration) error {
	p := &printer{w: w}
	p.table(rows, results)
	told := map[string]bool{}
	var wrong int
	var without []string
	for _, r := range rows {
		if r.wrong() {
			wrong++
		}
		if r.verdict == excused {
			without = append(without, r.id)
		}
		for _, t := range r.tests {
			if (verbose || r.wrong() && results[t].verdict != passed) && !told[t] {
				told[t] = true
				p.printf("\n== %s %s: %s\n%.6000s\n", r.id, t, results[t].verdict, results[t].text)
			}
		}
	}
	p.printf("\n%d rows, %d tests, %d rows not as they must be, %.0f s\n", len(rows), len(results), wrong, took.Seconds())
	if len(without) > 0 {
		p.printf("not run for want of %s: %s\n", capNetAdmin, strings.Join(without, ", "))
	}
	if wrong > 0 {
		return fmt.Errorf("%d of %d rows not as they must be", wrong, len(rows))
	}
	return p.err
}

// printer keeps the first error of a writer.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) printf(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, args...)
	}
}

// table has a line for each row, and below it one for each of its tests.
func (p *printer) table(rows []rowResult, results map[string]result) {
	p.printf("%-4s %-8s %7s  %s\n", "ROW", "VERDICT", "SECONDS", "WHAT, AND THE TESTS THAT SHOW IT")
	for _, r := range rows {
		p.printf("%-4s %-8s %7s  %s\n", r.id, r.verdict, r.seconds(), r.what)
		for _, t := range r.tests {
			mark := ""
			if v := results[t].verdict; v != passed {
				mark = string(v)
			}
			p.printf("     %-8s %7.1f    %s\n", mark, results[t].took.Seconds(), t)
		}
	}
}
