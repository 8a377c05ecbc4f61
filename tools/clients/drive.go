package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"
)

// runTime bounds one client, its installation included.
const runTime = 25 * time.Minute

// job is one client's run.
type job struct {
	*workshop
	fleet *fleet
	xpyd  string
	dir   string // logs and reports; empty at the start
	api   string // "chat" or "completions", which a load generator must use
}

// result is one row of the table.
type result struct {
	client
	tally
	took   time.Duration // of the run alone
	cannot string        // the reason why it could not run; "" if it ran
}

// drive runs one client against a fleet of its own, and asks the engines afterwards.
func drive(ctx context.Context, w *workshop, c client, xpyd string) result {
	r := result{client: c}
	ctx, cancel := context.WithTimeout(ctx, runTime)
	defer cancel()
	j := &job{workshop: w, xpyd: xpyd, dir: filepath.Join(w.dir, "run", strings.ReplaceAll(c.name, " ", "-"))}
	err := j.start(ctx, c, xpyd)
	if err == nil {
		begun := time.Now()
		r.tally, err = c.run(ctx, j)
		r.took = time.Since(begun) - j.installing
		j.installing = 0
	}
	var cannot cannotError
	switch {
	case errors.As(err, &cannot):
		r.cannot = cannot.reason
	case err != nil:
		r.failures = append(r.failures, err.Error())
	default:
		r.failures = append(r.failures, j.fleet.inspect(ctx, &r.tally)...)
	}
	if j.fleet != nil {
		r.failures = append(r.failures, j.fleet.stop()...)
	}
	for _, f := range r.failures {
		fmt.Printf("%s: %s\n", c.name, f)
	}
	return r
}

func (j *job) start(ctx context.Context, c client, xpyd string) (err error) {
	fmt.Printf("%s %s\n", c.name, c.version)
	if err := errors.Join(os.RemoveAll(j.dir), os.MkdirAll(j.dir, 0o755)); err != nil {
		return fmt.Errorf("make a place for the logs of %s: %w", c.name, err)
	}
	if c.vllm {
		j.fleet, err = j.startVLLMFleet(ctx, xpyd, j.dir)
		j.installing = 0 // that was before the run
		return err
	}
	j.fleet, err = startFleet(ctx, xpyd, j.dir, c.key)
	return err
}

// report prints the table and returns the exit status.
func report(out io.Writer, results []result) int {
	failures, cannot := 0, 0
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\nCLIENT\tVERSION\tREQUESTS\tFAILURES\tSECONDS")
	for _, r := range results {
		failures += len(r.failures)
		if r.cannot != "" {
			cannot++
			fmt.Fprintf(table, "%s\t%s\tcannot run here: %s\n", r.name, r.version, r.cannot)
			continue
		}
		fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%.0f\n", r.name, r.version, r.requests, len(r.failures), r.took.Seconds())
	}
	if err := table.Flush(); err != nil {
		fmt.Fprintln(os.Stderr, "clients: print the table:", err)
		return exitFailed
	}
	fmt.Fprintf(out, "\n%d clients, %d failures, %d cannot run here\n", len(results), failures, cannot)
	switch {
	case failures > 0:
		return exitFailed
	case cannot > 0:
		return exitCannot
	}
	return exitDone
}
