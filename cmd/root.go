// Package cmd is the command line of xpyd, with one file for each command.
package cmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"xpyd/cmd/config"
)

// The exit codes are 0 for success, 1 for a failure, and 2 for a wrong flag, key, URL or file.
const (
	exitFailure = 1
	exitUsage   = 2
)

// Run runs the command that args name until it ends or a signal arrives, and returns the exit code.
func Run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	root := newRootCmd()
	root.SetArgs(args)
	root.SetOut(plain{os.Stdout})
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	say("xpyd: " + err.Error())
	var usage config.UsageError
	if errors.As(err, &usage) || strings.HasPrefix(err.Error(), "unknown command") {
		return exitUsage
	}
	return exitFailure
}

// lastWordTime is how long the reader of standard error may take to read why the process ends.
const lastWordTime = time.Second

// say writes a line on standard error. A reader that has stopped must not keep the process from ending.
func say(line string) {
	said := make(chan struct{})
	go func() {
		defer close(said)
		fmt.Fprintln(os.Stderr, spellOut(line))
	}()
	select {
	case <-said:
	case <-time.After(lastWordTime):
	}
}

// Root returns the tree of commands, for the tool that generates the manual pages.
func Root() *cobra.Command { return newRootCmd() }

func newRootCmd() *cobra.Command {
	root := &cobra.Command{
		Use:           "xpyd",
		Short:         "A proxy for vLLM prefill/decode disaggregation",
		Version:       readBuildInfo().Version,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetFlagErrorFunc(config.FlagError)
	root.AddCommand(newServeCmd(), newDemoCmd(), newSimCmd(), newBenchCmd(), newCheckCmd(), newMigrateCmd(), newVerifyCmd(),
		newCtlCmd(), newStatusCmd(nil), newEventsCmd(), newFailuresCmd(), newAdviceCmd(), newBundleCmd(), newHealthcheckCmd(&adminFlags{}), newVersionCmd())
	for _, c := range root.Commands() {
		if c.Args == nil {
			c.Args = noArgs
		}
	}
	return root
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return config.UsageError{Err: fmt.Errorf("%s takes no argument, got %q; see xpyd %s --help", cmd.Name(), args[0], cmd.Name())}
	}
	return nil
}
