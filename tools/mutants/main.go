// Command mutants proves that the tests of a completion's path can fail: it plants one
// fault at a time, each a change of a few words, and expects the test that is named
// for it to find it. go run ./tools/mutants [-v] [-quick] [-run REGEXP], in the module's root.
//
// -quick leaves out what is about balance and about what operators are told, and keeps all
// that guards handles and streams.
//
// Nothing in the tree is written: the compiler gets the changed file through an
// overlay. The exit status is 1 if a fault survives, if its text is not in the tree
// any more, if it does not compile, or if the tests fail without a fault.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"text/tabwriter"
	"time"
)

func main() {
	pick := flag.String("run", "", "only mutants whose name matches, and no control")
	quick := flag.Bool("quick", false, "only mutants of what guards handles and streams, and of what both stand on")
	verbose := flag.Bool("v", false, "print what each test said, to see that it fails for the right reason")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *pick, *quick, *verbose); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, pick string, quick, verbose bool) error {
	want, err := regexp.Compile(pick)
	if err != nil {
		return fmt.Errorf("read -run: %w", err)
	}
	var chosen []mutant
	if pick == "" {
		chosen = controls()
	}
	all := guardMutants()
	if !quick {
		all = mutants()
	}
	for _, m := range all {
		if want.MatchString(m.name) {
			chosen = append(chosen, m)
		}
	}
	if len(chosen) == 0 {
		return fmt.Errorf("no mutant matches %q", pick)
	}
	b, err := newBench()
	if err != nil {
		return err
	}
	defer b.close()
	start := time.Now()
	results := b.all(ctx, chosen)
	if err := ctx.Err(); err != nil {
		return err
	}
	return report(results, verbose, time.Since(start))
}

// report prints the table and what went wrong.
func report(results []result, verbose bool, took time.Duration) error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "MUTANT\tFILE\tTEST\tVERDICT\tSECONDS")
	wrong := 0
	for _, r := range results {
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%.1f\n", r.m.name, r.m.file, r.m.where(), r.verdict, r.took.Seconds())
		if r.verdict != r.m.expected() {
			wrong++
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
	fmt.Printf("\n%d mutants and controls, %d not as they must be, %.0f s\n", len(results), wrong, took.Seconds())
	if wrong > 0 {
		return fmt.Errorf("%d of %d not as they must be", wrong, len(results))
	}
	return nil
}
