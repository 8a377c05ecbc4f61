// Command faults runs the fault matrix. Each row says what is injected and what must happen, and
// the command runs the tests that show it. It runs in the repository's root:
//
//	faults [-v] [-run REGEXP] [-prefill-policy NAME] [-decode-policy NAME] [-pd-mode NAME]
//
// -each REGEXP does so for each routing that it matches (each policy in both pools, what
// is the default, pd.mode auto and never), with a churn after it, and ends with one table.
//
// -judge FILE runs nothing, and judges the rows by a run of all tests, whose events go test -json has
// written to FILE.
//
// The exit status is 1 if a row has no test, or if one of its tests fails, is skipped
// or is not there. No row needs a privilege, so there is no excuse for a skip.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"time"
)

// passTime bounds one pass over the matrix and its churn, which need a fraction of it.
const passTime = 10 * time.Minute

// options are the command line.
type options struct {
	pick    string // regexp of the ids of rows
	verbose bool
	one     routing // of the only pass, if each is empty
	each    string  // regexp of the names of routings
	quick   bool
	rerun   bool
	judge   string // file with the events of a run of all tests
	tools   string // the program that has the churn
}

func main() {
	var o options
	flag.StringVar(&o.pick, "run", "", "only rows whose id matches, as in '^T(1|2)$'")
	flag.BoolVar(&o.verbose, "v", false, "print what each test said")
	flag.StringVar(&o.one.prefill, "prefill-policy", "", "the proxy's, of the tests that do not set it; none: theirs")
	flag.StringVar(&o.one.decode, "decode-policy", "", "likewise")
	flag.StringVar(&o.one.mode, "pd-mode", "", "likewise; with auto and never only the tests that need no prefill are run")
	flag.StringVar(&o.each, "each", "", "run the matrix and a churn with each routing whose name matches; '.' is all")
	flag.BoolVar(&o.quick, "quick", false, "with -each: only the rows that turn on the choice of a backend, and no churn")
	flag.BoolVar(&o.rerun, "rerun", false, "a test that fails runs once more, alone, and must pass then")
	flag.StringVar(&o.judge, "judge", "", "run nothing, and judge the rows by the events that go test -json has written to this file")
	flag.StringVar(&o.tools, "tools", "dist/tools", "the program that has the churn")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "faults:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	if o.judge != "" && (o.each != "" || o.one != (routing{})) {
		return errors.New("-judge is about tests that have run, with no routing")
	}
	rows, err := pickRows(matrix(), o.pick, o.quick)
	if err != nil {
		return err
	}
	b, err := newBench(ctx, o.rerun)
	if err != nil {
		return err
	}
	defer b.Close()
	if o.judge != "" {
		m, err := b.recorded(o.judge, rows)
		if err != nil {
			return err
		}
		return report(os.Stdout, m, o.verbose)
	}
	if err := b.build(ctx, testsOf(rows)); err != nil {
		return err
	}
	if o.each != "" {
		return runEach(ctx, o, b, rows)
	}
	if len(o.one.fit(rows)) == 0 {
		return fmt.Errorf("no row that matches %q holds with pd.mode %s", o.pick, o.one.mode)
	}
	made, err := b.matrices(ctx, []routing{o.one}, rows)
	if err != nil {
		return err
	}
	return report(os.Stdout, made[0], o.verbose)
}

// pickRows returns the rows whose ids match. With quick it returns those that depend on a choice.
func pickRows(all []row, pick string, quick bool) ([]row, error) {
	want, err := regexp.Compile(pick)
	if err != nil {
		return nil, fmt.Errorf("read -run: %w", err)
	}
	var rows []row
	for _, r := range all {
		if want.MatchString(r.id) && (r.choice || !quick) {
			rows = append(rows, r)
		}
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("no row matches %q", pick)
	}
	return rows, nil
}
