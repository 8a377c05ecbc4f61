// Command mutants proves that the tests of a completion's path can fail: it plants one
// fault at a time, each a change of a few words, and expects the test that is named
// for it to find it. It runs in the repository's root:
//
//	mutants [-v] [-quick] [-run REGEXP] [-list] [-stale]
//
// -quick has the mutants of streams and handles alone, and leaves out those of retries and
// limits. -list shows where each is planted, -stale only those whose place is gone. Neither runs a
// test.
//
// A mutant names a function and a piece of it, which is found by its tokens wherever the function
// has moved to. It writes nothing in the tree, because the compiler gets the changed file through
// an overlay. The mutants that tests of one package find share a build, in which the environment plants
// one when it runs. Those that are no change of a function's body, or that are not found there, have
// builds of their own. The exit status is 1 if a fault survives, if its place is gone, if it does not
// compile, or if the tests fail without a fault.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"text/tabwriter"
	"time"
)

// options are the flags.
type options struct {
	pick                        string
	quick, verbose, list, stale bool
	rerun                       bool
}

func main() {
	var o options
	flag.StringVar(&o.pick, "run", "", "only mutants whose name matches, and no control")
	flag.BoolVar(&o.quick, "quick", false, "only mutants of streams and handles")
	flag.BoolVar(&o.verbose, "v", false, "print what each test said, to see that it fails for the right reason")
	flag.BoolVar(&o.rerun, "rerun", false, "a control that fails runs once more, and must pass then")
	flag.BoolVar(&o.list, "list", false, "show where each mutant is planted, and run nothing")
	flag.BoolVar(&o.stale, "stale", false, "show the mutants that find no place any more, and run nothing")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	chosen, err := o.choose()
	if err != nil {
		return err
	}
	b, err := newBench()
	if err != nil {
		return err
	}
	defer b.Close()
	if o.list || o.stale {
		return b.list(chosen, o.list)
	}
	start := time.Now()
	b.chosen, b.rerun = chosen, o.rerun
	if err := b.share(ctx, chosen); err != nil {
		return err
	}
	results := b.all(ctx, chosen)
	if err := ctx.Err(); err != nil {
		return err
	}
	return report(results, o.verbose, time.Since(start))
}

// choose returns the mutants that the flags ask for, after the controls.
func (o options) choose() (chosen []mutant, err error) {
	want, err := regexp.Compile(o.pick)
	if err != nil {
		return nil, fmt.Errorf("read -run: %w", err)
	}
	if o.pick == "" {
		chosen = controls()
	}
	all := mutants()
	if o.quick {
		all = guards()
	}
	for _, m := range all {
		if want.MatchString(m.name) {
			chosen = append(chosen, m)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("no mutant matches %q", o.pick)
	}
	return chosen, nil
}

// list prints where mutants are planted, or only those that are not to be planted.
func (b *bench) list(chosen []mutant, whole bool) error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	var wrong []error
	for _, m := range chosen {
		p, err := b.plant(m)
		if err != nil {
			wrong = append(wrong, fmt.Errorf("%q: %w", m.name, err))
		} else if whole {
			_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s %s\n", m.name, p.file, m.in, p.tests, m.test)
		}
	}
	if err := errors.Join(append(wrong, w.Flush())...); err != nil {
		return fmt.Errorf("%d of %d find no place any more:\n%w", len(wrong), len(chosen), err)
	}
	fmt.Printf("%d mutants and controls have their place\n", len(chosen))
	return nil
}

// report prints the table and what went wrong.
func report(results []result, verbose bool, took time.Duration) error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "MUTANT\tIN\tTEST\tVERDICT\tSECONDS")
	wrong, own := 0, 0
	for _, r := range results {
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%.1f\n", r.m.name, r.m.in, r.m.test, r.verdict, r.took.Seconds())
		if r.verdict != r.m.expected() {
			wrong++
		}
		if r.own {
			own++
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, r := range results {
		if verbose || r.verdict != r.m.expected() {
			fmt.Printf("\n== %s: %s, want it %s\n%.4000s\n", r.m.name, r.verdict, r.m.expected(), r.output)
		}
	}
	fmt.Printf("\n%d mutants and controls (%d in builds of their own), %d not as they must be, %.0f s\n", len(results), own, wrong, took.Seconds())
	if wrong > 0 {
		return fmt.Errorf("%d of %d not as they must be", wrong, len(results))
	}
	return nil
}
