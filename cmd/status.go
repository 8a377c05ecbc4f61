package cmd

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"xpyd/cmd/config"
	"xpyd/cmd/ctl"
)

// newStatusCmd is both `xpyd status` and `xpyd ctl status`. flags are those of the command above, or nil.
func newStatusCmd(flags *adminFlags) *cobra.Command {
	var asJSON, watch bool
	var every time.Duration
	own := flags == nil
	if own {
		flags = &adminFlags{}
	}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Print the backends of a running xpyd, with their state and load",
		Example: "  xpyd status --admin http://127.0.0.1:8081\n" +
			"  xpyd status --watch",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := flags.client(cmd)
			if err != nil {
				return err
			}
			if every <= 0 {
				return config.UsageError{Err: fmt.Errorf("--every: %v must be above 0", every)}
			}
			if !watch {
				return printStatus(cmd.Context(), c, cmd.OutOrStdout(), asJSON)
			}
			return watchStatus(cmd.Context(), c, cmd.OutOrStdout(), asJSON, every)
		},
	}
	cmd.SetFlagErrorFunc(config.FlagError)
	if own {
		flags.add(cmd)
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object: GET /backends, with ready and readiness")
	cmd.Flags().BoolVar(&watch, "watch", false, "print again and again until interrupted (--every)")
	cmd.Flags().DurationVar(&every, "every", time.Second, "with --watch, time between two prints")
	return cmd
}

func printStatus(ctx context.Context, c *ctl.Client, out io.Writer, asJSON bool) error {
	s, err := c.Status(ctx)
	switch {
	case err != nil:
		return ctl.Explain(c, err)
	case asJSON:
		return s.PrintJSON(out)
	}
	return s.Print(out)
}

// watchStatus prints until ctx ends, on a terminal in one place. A process that restarts is awaited.
func watchStatus(ctx context.Context, c *ctl.Client, out io.Writer, asJSON bool, every time.Duration) error {
	stdout, direct := out.(plain)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		anew := direct && !asJSON && stdout.clear()
		if err := printStatus(ctx, c, out, asJSON); err != nil && ctx.Err() == nil {
			if !anew {
				return err
			}
			fmt.Fprintln(out, err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
