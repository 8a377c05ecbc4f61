// Command faults runs the fault matrix: for each row, what is injected and what must
// come of it, it runs the tests that show it. go run ./scripts/faults [-v] [-run REGEXP]
// [-prefill-policy NAME] [-decode-policy NAME], in the module's root. pd.mode stays always:
// a request that goes to decode alone meets no fault of prefill.
//
// The exit status is 1 if a row has no test, or if one of its tests fails, is skipped
// or is not there. No row needs a privilege, so there is no excuse for a skip.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"time"
)

// allTime bounds a run. The whole matrix takes a fraction of it.
const allTime = 10 * time.Minute

func main() {
	pick := flag.String("run", "", "only rows whose id matches, as in '^T(1|2)$'")
	verbose := flag.Bool("v", false, "print what each test said")
	routing := map[string]*string{
		"XPYD_PREFILL_POLICY": flag.String("prefill-policy", "", "the proxy's, of the tests that do not set it; none: theirs"),
		"XPYD_DECODE_POLICY":  flag.String("decode-policy", "", "likewise"),
	}
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, allTime)
	defer cancel()
	var env []string // of the tests: as an operator sets it for the proxy
	for name, value := range routing {
		if *value != "" {
			env = append(env, name+"="+*value)
		}
	}
	if err := run(ctx, *pick, *verbose, env); err != nil {
		fmt.Fprintln(os.Stderr, "faults:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, pick string, verbose bool, env []string) error {
	want, err := regexp.Compile(pick)
	if err != nil {
		return fmt.Errorf("read -run: %w", err)
	}
	var rows []row
	for _, r := range matrix() {
		if want.MatchString(r.id) {
			rows = append(rows, r)
		}
	}
	if len(rows) == 0 {
		return fmt.Errorf("no row matches %q", pick)
	}
	start := time.Now()
	b, err := newBench(ctx, env)
	if err != nil {
		return err
	}
	defer b.close()
	list := testsOf(rows)
	if err := b.build(ctx, packagesOf(list)); err != nil {
		return err
	}
	all := b.all(ctx, list)
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("run the matrix: %w", err)
	}
	return report(os.Stdout, judgeRows(rows, all), all, verbose, time.Since(start))
}
