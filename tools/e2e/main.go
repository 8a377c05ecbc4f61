// Command e2e judges xpyd in front of real vLLM engines: it starts them on this machine's
// processor, sends requests through ./xpyd serve, and compares with an engine that works
// alone. make e2e calls it; by hand, after make build and scripts/real-vllm/setup.sh:
//
//	go run ./tools/e2e [-run REGEXP] [-keep] [-ports 8320] [-xpyd ./xpyd] [-version 0.32.0]
//
// in the module's root. E2E_CACHE is the folder that setup.sh has filled.
//
// The exit status is 0 if every case of every check held, 1 if one did not, 2 for a wrong
// flag, and 3 if the engines cannot run here.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"

	"xpyd/tools/process"
)

// The exit statuses.
const (
	exitHeld    = 0
	exitFailed  = 1
	exitUsage   = 2
	exitCannot  = 3 // as that of scripts/real-vllm: this machine cannot run the engines
	defaultPort = 8320
)

// checks returns all rows of the table, in the order of their run. Those that leave engines as they
// found them come first.
func checks() []check {
	return append([]check{
		{name: "exact 1P1D", run: exactOneOne},
		{name: "exact 2P1D", run: exactTwoOne},
		{name: "counters", run: counters},
		{name: "routing", run: routing},
		{name: "verify", run: verifies},
		{name: "mixed", run: mixed, named: true},
		{name: "ranks", run: ranks, named: true},
		{name: "events", run: kvEvents, named: true},
	}, faultChecks()...)
}

type options struct {
	pick    *regexp.Regexp // nil picks all
	xpyd    string         // path of the program
	wrongs  bool           // plant faults that the checks must find
	ports   int            // of the first engine; the others use the ports after it
	keep    bool
	kv      connector
	version string // of vLLM; "" for the default one of scripts/real-vllm
}

func main() {
	os.Exit(run())
}

func run() int {
	var o options
	pick := flag.String("run", "", "only checks whose name matches")
	name := flag.String("connector", connectors()[0].name, "how KV travels between the engines; the checks are those of docs/results/engines.md")
	guarded := flag.Bool("guard", false, "stop the engines named on standard input when that ends; e2e starts this itself")
	flag.BoolVar(&o.wrongs, "wrongs", false, "build xpyd with one thing wrong after the other, -run picks which: a check must fail by each")
	flag.StringVar(&o.xpyd, "xpyd", "./xpyd", "program to judge")
	flag.IntVar(&o.ports, "ports", defaultPort, "first of 20 ports for engines; their side channels are 1000 above")
	flag.BoolVar(&o.keep, "keep", false, "leave the engines running, for the next run to use; make e2e-down ends them")
	flag.StringVar(&o.version, "version", "", "version of vLLM, as given to setup.sh (its default)")
	flag.Parse()
	if *guarded {
		cache, err := process.E2ECache()
		if err != nil {
			fmt.Fprintln(os.Stderr, "e2e:", err)
			return exitFailed
		}
		return guard(os.Stdin, filepath.Join(cache, "run"))
	}
	var err error
	if o.pick, err = regexp.Compile(*pick); err != nil {
		fmt.Fprintln(os.Stderr, "e2e: read -run:", err)
		return exitUsage
	}
	if o.kv, err = connectorNamed(*name); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return exitUsage
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	failures, err := judge(ctx, o)
	var cannot cannotError
	switch {
	case errors.As(err, &cannot):
		fmt.Fprintln(os.Stderr, cannot.Error())
		return exitCannot
	case err != nil:
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return exitFailed
	case failures > 0:
		return exitFailed
	}
	return exitHeld
}

// judge carries the run out and prints its table. Whatever happens, everything that it has started
// ends, unless it must be kept.
func judge(ctx context.Context, o options) (failures int, err error) {
	if o.xpyd, err = filepath.Abs(o.xpyd); err != nil {
		return 0, fmt.Errorf("find the program: %w", err)
	}
	f, err := newFleet(o)
	if err != nil {
		return 0, err
	}
	defer func() {
		err = errors.Join(err, f.close())
		fmt.Println("logs of the engines and of xpyd:", f.runDir)
	}()
	if o.kv.store {
		if _, err := f.engine(ctx, storeServer()); err != nil {
			return 0, err
		}
	}
	if o.wrongs {
		return judgeWrongs(ctx, f, o.pick)
	}
	return judgeChecks(ctx, f, o.pick)
}

func judgeChecks(ctx context.Context, f *fleet, pick *regexp.Regexp) (failures int, err error) {
	var rows []row
	for _, c := range checks() {
		if !c.picked(pick) || !f.opts.kv.has(c.name) {
			continue
		}
		r := c.judge(ctx, f)
		rows = append(rows, r)
		var cannot cannotError
		if errors.As(r.err, &cannot) {
			return 0, r.err
		}
		if ctx.Err() != nil {
			return 0, fmt.Errorf("interrupted in check %q", c.name)
		}
	}
	if len(rows) == 0 {
		return 0, fmt.Errorf("no check of %s matches %q", f.opts.kv.name, pick)
	}
	return report(os.Stdout, rows), nil
}
