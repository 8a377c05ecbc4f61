package main

import (
	"fmt"
	"io"
)

// report prints the table of one pass, and the output of the tests that did not pass.
func report(w io.Writer, m matrixResult, verbose bool) error {
	p := &printer{w: w}
	p.table(m.rows, m.all)
	p.texts(m, verbose)
	p.printf("\n%d rows, %d tests, %d rows not as they must be, %.0f s\n", len(m.rows), len(m.all), m.wrong(), m.took.Seconds())
	if n := m.wrong(); n > 0 {
		return fmt.Errorf("%d of %d rows not as they must be", n, len(m.rows))
	}
	return p.err
}

// reportPasses prints a line for each routing.
func reportPasses(p *printer, passes []pass) error {
	wrong := 0
	p.printf("\n%-20s %-8s %-14s %7s  %-8s %7s\n", "ROUTING", "VERDICT", "MATRIX", "SECONDS", "CHURN", "SECONDS")
	for _, ps := range passes {
		verdict := passed
		if ps.wrong() {
			verdict, wrong = failed, wrong+1
		}
		m := ps.matrix
		rows := fmt.Sprintf("%d of %d rows", len(m.rows)-m.wrong(), len(m.rows))
		p.printf("%-20s %-8s %-14s %7.1f", ps.routing.name, verdict, rows, m.took.Seconds())
		if c := ps.churn; c != nil {
			p.printf("  %-8s %7.1f", c.verdict, c.took.Seconds())
		}
		p.printf("\n")
	}
	if wrong > 0 {
		return fmt.Errorf("%d of %d routings not as they must be", wrong, len(passes))
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
		for _, t := range r.all() {
			mark := ""
			if got := all.of(t); got.verdict != passed {
				mark = string(got.verdict)
			} else if got.again {
				mark = "AGAIN"
			}
			p.printf("     %-8s %7.1f    %s\n", mark, all.of(t).took.Seconds(), t)
		}
	}
}

// texts prints the output of the tests that did not pass at once. With verbose it prints that of all tests.
func (p *printer) texts(m matrixResult, verbose bool) {
	told := map[string]bool{}
	for _, r := range m.rows {
		for _, t := range r.all() {
			if got := m.all.of(t); (verbose || got.again || got.verdict != passed) && !told[t] {
				told[t] = true
				p.printf("\n== %s %s: %s\n%.6000s\n", r.id, t, got.verdict, got.text)
			}
		}
	}
}

// pass prints the result of a routing, with the output of everything that did not pass.
func (p *printer) pass(ps pass, verbose bool) {
	m := ps.matrix
	p.printf("%s: %d rows, %d tests, %d rows not as they must be, %.0f s", ps.routing.name, len(m.rows), len(m.all), m.wrong(), m.took.Seconds())
	c := ps.churn
	if c != nil {
		p.printf("; churn %s, %.0f s", c.verdict, c.took.Seconds())
	}
	p.printf("\n")
	p.texts(m, verbose)
	if c != nil && (verbose || c.verdict != passed) {
		p.printf("\n== churn: %s\n%s\n", c.verdict, c.text)
	}
}
