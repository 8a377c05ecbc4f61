package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
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
			"  xpyd status --watch --admin http://10.0.0.1:8081 --admin http://10.0.0.2:8081",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := flags.clients(cmd)
			if err != nil {
				return err
			}
			if every <= 0 {
				return config.UsageError{Err: fmt.Errorf("--every: %v must be above 0", every)}
			}
			if !watch {
				return errors.Join(printStatus(cmd.Context(), all, cmd.OutOrStdout(), asJSON)...)
			}
			return watchStatus(cmd.Context(), all, cmd.OutOrStdout(), asJSON, every)
		},
	}
	cmd.SetFlagErrorFunc(config.FlagError)
	if own {
		flags.add(cmd)
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object for each --admin: GET /backends, with ready, readiness and admin")
	cmd.Flags().BoolVar(&watch, "watch", false, "print again and again until interrupted (--every)")
	cmd.Flags().DurationVar(&every, "every", time.Second, "with --watch, time between two prints")
	return cmd
}

// printStatus prints the status of each process. One that does not answer fails the command, once the others are printed.
func printStatus(ctx context.Context, all []*ctl.Client, out io.Writer, asJSON bool) (failed []error) {
	for i, c := range all {
		if len(all) > 1 && !asJSON {
			fmt.Fprintf(out, "%s%s: ", strings.Repeat("\n", min(i, 1)), c.Base())
		}
		s, err := c.Status(ctx)
		switch {
		case err != nil && len(all) > 1 && !asJSON:
			fmt.Fprintln(out, "does not answer")
			fallthrough
		case err != nil:
			err = ctl.Explain(c, err)
		case asJSON:
			err = s.PrintJSON(out)
		default:
			err = s.Print(out)
		}
		if err != nil {
			failed = append(failed, err)
		}
	}
	return failed
}

// watchStatus prints until ctx ends, on a terminal in one place. A process that restarts is awaited there, and elsewhere
// while another one answers.
func watchStatus(ctx context.Context, all []*ctl.Client, out io.Writer, asJSON bool, every time.Duration) error {
	stdout, direct := out.(plain)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		anew := direct && !asJSON && stdout.clear()
		failed := printStatus(ctx, all, out, asJSON)
		switch {
		case len(failed) == 0 || ctx.Err() != nil:
		case anew:
			fmt.Fprintln(out, errors.Join(failed...))
		case len(failed) == len(all):
			return errors.Join(failed...)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func newEventsCmd() *cobra.Command {
	flags := &adminFlags{}
	var asJSON, follow bool
	var since string
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Print what has changed: engines that went down or were ejected, drains, reloads, and why",
		Long: `events prints the last 1,000 changes of state of a running xpyd: when, which engine, why, and who did it.
docs/events.md lists the kinds.`,
		Example: "  xpyd events --since 1h\n" +
			"  xpyd events --follow",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := flags.client(cmd)
			if err != nil {
				return err
			}
			return usageOf(ctl.Explain(c, c.Events(cmd.Context(), cmd.OutOrStdout(), since, asJSON, follow)))
		},
	}
	cmd.SetFlagErrorFunc(config.FlagError)
	flags.add(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object a line, as GET /events has them")
	cmd.Flags().BoolVar(&follow, "follow", false, "go on until interrupted")
	cmd.Flags().StringVar(&since, "since", "", "only what came after: `how long ago` (15m), or the number of an event")
	return cmd
}

func newFailuresCmd() *cobra.Command {
	flags := &adminFlags{}
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "failures",
		Short: "Print which completions failed last, and why, by code and engine",
		Long: `failures prints the last 500 completions that failed, but not because of their clients, by code and engine, and the
newest of them with their ids. The log has a line with each id.`,
		Example: "  xpyd failures --admin http://127.0.0.1:8081",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := flags.client(cmd)
			if err != nil {
				return err
			}
			return ctl.Explain(c, c.Failures(cmd.Context(), cmd.OutOrStdout(), asJSON))
		},
	}
	cmd.SetFlagErrorFunc(config.FlagError)
	flags.add(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object: GET /failures")
	return cmd
}

func newAdviceCmd() *cobra.Command {
	flags := &adminFlags{}
	var ttft, tpot string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "advice",
		Short: "Print which ratio of prefill to decode engines the traffic asks for",
		Long: `advice prints which ratio of prefill to decode engines the traffic of the last 15 minutes asks for, and with --ttft or
--tpot, which split of the engines takes how many requests a second within these bounds. docs/admin.md explains the figures.`,
		Example: "  xpyd advice --ttft 500ms --tpot 20ms",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := flags.client(cmd)
			if err != nil {
				return err
			}
			return usageOf(ctl.Explain(c, c.Advice(cmd.Context(), cmd.OutOrStdout(), ttft, tpot, asJSON)))
		},
	}
	cmd.SetFlagErrorFunc(config.FlagError)
	flags.add(cmd)
	cmd.Flags().StringVar(&ttft, "ttft", "", "bound for the P90 of the time to first token, such as `500ms`")
	cmd.Flags().StringVar(&tpot, "tpot", "", "bound for the mean time of an output token, such as `20ms`")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object: GET /advice")
	return cmd
}
