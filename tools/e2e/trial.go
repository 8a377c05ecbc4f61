package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"runtime/debug"
	"sync"
	"text/tabwriter"
	"time"
)

// check is one row of the closing table. run fails its cases through the trial. An error of its own
// says that the check could not be carried out, which counts as a failure.
type check struct {
	name  string
	run   func(ctx context.Context, t *trial) error
	named bool // it runs only if -run is given, because its engines are no other check's and start for minutes
}

// picked reports whether -run picks the check.
func (c check) picked(run *regexp.Regexp) bool {
	return run.MatchString(c.name) && (!c.named || run.String() != "")
}

// checkTime bounds one check with the start of its engines. It is far longer than a busy machine
// needs.
const checkTime = 20 * time.Minute

// trial is one run of a check. Its methods may be called from several goroutines.
type trial struct {
	fleet *fleet
	name  string
	start time.Time

	mu            sync.Mutex
	passed, fails int
}

// pass counts a case that held.
func (t *trial) pass() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.passed++
}

// fail counts a case that did not hold and prints why. The run goes on.
func (t *trial) fail(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fails++
	t.print("FAIL "+format, args...)
}

// enough reports whether that many cases have failed that more would show nothing new.
func (t *trial) enough() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.fails >= 5
}

// say prints a line of progress.
func (t *trial) say(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.print(format, args...)
}

func (t *trial) print(format string, args ...any) {
	fmt.Printf("%6.1f s  %s: %s\n", time.Since(t.start).Seconds(), t.name, fmt.Sprintf(format, args...))
}

// row is the result of a check.
type row struct {
	name            string
	cases, failures int
	took            time.Duration
	err             error // why it could not be carried out
}

// judge carries the check out, and ends the proxies that it has started.
func (c check) judge(ctx context.Context, f *fleet) (r row) {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	t := &trial{fleet: f, name: c.name, start: time.Now()}
	t.say("begins")
	err := c.carryOut(ctx, t)
	for _, problem := range f.endProxies() {
		t.fail("%v", problem)
	}
	if err == nil && t.passed == 0 && t.fails == 0 {
		err = errors.New("no case was judged")
	}
	if err != nil {
		t.fail("not carried out: %v", err)
	}
	return row{c.name, t.passed + t.fails, t.fails, time.Since(t.start), err}
}

// carryOut turns a panic into an error, so that the engines are stopped after it.
func (c check) carryOut(ctx context.Context, t *trial) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return c.run(ctx, t)
}

// report prints the table and returns the number of failures.
func report(w io.Writer, rows []row) (failures int) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(tw, "\nCHECK\tCASES\tFAILURES\tSECONDS")
	var cases int
	var took time.Duration
	for _, r := range rows {
		_, _ = fmt.Fprintf(tw, "%s\t%d\t%d\t%.1f\n", r.name, r.cases, r.failures, r.took.Seconds())
		cases, failures, took = cases+r.cases, failures+r.failures, took+r.took
	}
	_, _ = fmt.Fprintf(tw, "all\t%d\t%d\t%.1f\n", cases, failures, took.Seconds())
	_ = tw.Flush()
	return failures
}
