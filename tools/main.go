// Command tools has the tests and benchmarks of xpyd that are one program: clients that leave,
// soaks, and what the proxy costs, alone and compared with others. make calls it in the
// repository's root, after make build.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"xpyd/cmd/config"
)

// The exit codes are 0 for success, 1 for a failure, and 2 for a wrong flag.
const (
	exitFailure = 1
	exitUsage   = 2
)

func main() { os.Exit(run(os.Args[1:])) }

// run runs the command that args name, until it ends or a signal comes, and returns the exit code.
func run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	root := newRootCmd()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, "tools:", err)
	if errors.As(err, new(config.UsageError)) {
		return exitUsage
	}
	return exitFailure
}

func newRootCmd() *cobra.Command {
	root := &cobra.Command{
		Use:           "tools",
		Short:         "Measure and stress xpyd over simulated engines",
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(config.FlagError)
	root.AddCommand(newChurnCmd(), newSoakCmd(), newSickCmd(), newCostCmd(), newEnginesCmd(), newVersusCmd(), newRelayCmd(), newRoutingCmd(), newRoutingEnginesCmd(), newCannedCmd(), newAgreeCmd(), newBenchCostCmd(), newMonitoringCmd(), newDashboardsCmd())
	for _, c := range root.Commands() {
		if c.Args == nil {
			c.Args = noArgs
		}
	}
	return root
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return config.UsageError{Err: fmt.Errorf("%s takes no argument, got %q; see tools %s --help", cmd.Name(), args[0], cmd.Name())}
	}
	return nil
}

// runWith runs a tool with o, unless o is not valid.
func runWith[O any, P interface {
	*O
	Validate() error
}](cmd *cobra.Command, o P, run func(context.Context, O, io.Writer) error) error {
	if err := valid(o); err != nil {
		return err
	}
	return run(cmd.Context(), *o, cmd.OutOrStdout())
}

// valid makes a usage error of what is wrong with o.
func valid(o interface{ Validate() error }) error {
	if err := o.Validate(); err != nil {
		return config.UsageError{Err: err}
	}
	return nil
}
