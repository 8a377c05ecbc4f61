// Command clients drives xpyd with the clients that its users have, unchanged: the official
// SDKs of OpenAI and Anthropic, and the load generators of the guides for prefill and decode. Two of
// the generators also read the reports of xpyd bench, as if they had written them. Each has a fresh
// fleet of simulated engines and ./xpyd serve on loopback. The SDKs run once more before real vLLM
// engines. make clients calls it; by hand, after make build, in the module's root:
//
//	go run ./tools/clients [-run REGEXP] [-sdks] [-xpyd ./xpyd]
//
// Everything that it installs, at pinned versions, goes to CLIENTS_CACHE (default xpyd-clients in
// the user's cache directory), and vLLM to E2E_CACHE, as with scripts/real-vllm/setup.sh.
//
// The exit status is 0 if no request and no check failed, 1 if one did, 2 for a wrong flag,
// and 3 if a client cannot run here and no other one failed.
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
	"runtime"
	"slices"
	"syscall"
)

const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
	exitCannot = 3
)

// client is one row of the table.
type client struct {
	name    string
	version string
	key     bool // xpyd wants a key, and its limits are low
	vllm    bool // the engines are real ones
	// run installs the client and drives it.
	run func(context.Context, *job) (tally, error)
}

// tally is what a client says about its run.
type tally struct {
	requests int
	failures []string // a line for each
}

// cannotError says that nothing is wrong with xpyd, but this machine lacks something.
type cannotError struct{ reason string }

func (e cannotError) Error() string { return "cannot run here: " + e.reason }

func main() {
	// The engines die with the thread that started them if this process is killed.
	runtime.LockOSThread()
	os.Exit(run())
}

func run() int {
	pick := flag.String("run", "", "only clients whose name matches")
	sdks := flag.Bool("sdks", false, "only the SDKs before simulated engines, which take two minutes")
	xpyd := flag.String("xpyd", "./xpyd", "program to drive")
	flag.Parse()
	want, err := regexp.Compile(*pick)
	if err != nil {
		fmt.Fprintln(os.Stderr, "clients: read -run:", err)
		return exitUsage
	}
	chosen := sdkClients()
	if !*sdks {
		chosen = slices.Concat(chosen, vllmClients(), toolClients(), reportClients())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	results, err := driveAll(ctx, chosen, want, *xpyd)
	if err != nil {
		fmt.Fprintln(os.Stderr, "clients:", err)
		return exitFailed
	}
	return report(os.Stdout, results)
}

// driveAll drives the chosen clients one after the other.
func driveAll(ctx context.Context, chosen []client, want *regexp.Regexp, xpyd string) (results []result, err error) {
	w, err := openWorkshop()
	if err != nil {
		return nil, err
	}
	if xpyd, err = filepath.Abs(xpyd); err != nil {
		return nil, fmt.Errorf("find the program to drive: %w", err)
	}
	if _, err := os.Stat(xpyd); err != nil {
		return nil, fmt.Errorf("find the program to drive (make build): %w", err)
	}
	defer func() {
		if wrong := w.stopVLLM(); wrong != nil {
			err = errors.Join(err, fmt.Errorf("end the vLLM engines: %w", wrong))
		}
	}()
	for _, c := range chosen {
		if !want.MatchString(c.name) {
			continue
		}
		results = append(results, drive(ctx, w, c, xpyd))
		if ctx.Err() != nil {
			return nil, fmt.Errorf("interrupted in %s", c.name)
		}
	}
	if len(results) == 0 {
		return nil, fmt.Errorf("no client matches %q", want)
	}
	return results, nil
}
