package main

import (
	"fmt"
	"io"
	"time"
)

// report prints the table, and what the tests said that did not pass.
func report(w io.Writer, rows []rowResult, all results, verbose bool, took time.Duration) error {
	p := &printer{w: w}
	p.table(rows, all)
	told := map[string]bool{}
	var wrong int
	for _, r := range rows {
		if r.wrong() {
			wrong++
		}
		for _, t := range r.tests {
			if (verbose || r.wrong() && all.of(t).verdict != passed) && !told[t] {
				told[t] = true
				p.printf("\n== %s %s: %s\n%.6000s\n", r.id, t, all.of(t).verdict, all.of(t).text)
			}
		}
	}
	p.printf("\n%d rows, %d tests, %d rows not as they must be, %.0f s\n", len(rows), len(all), wrong, took.Seconds())
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
func (p *printer) table(rows []rowResult, all results) {
	p.printf("%-4s %-8s %7s  %s\n", "ROW", "VERDICT", "SECONDS", "WHAT, AND THE TESTS THAT SHOW IT")
	for _, r := range rows {
		p.printf("%-4s %-8s %7s  %s\n", r.id, r.verdict, r.seconds(), r.what)
		for _, t := range r.tests {
			mark := ""
			if v := all.of(t).verdict; v != passed {
				mark = string(v)
			}
			p.printf("     %-8s %7.1f    %s\n", mark, all.of(t).took.Seconds(), t)
		}
	}
}
