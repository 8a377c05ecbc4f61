package main

import (
	"time"

	"github.com/spf13/cobra"

	"xpyd/tools/cost"
)

func newCostCmd() *cobra.Command {
	var (
		o    cost.Options
		xpyd string
	)
	cmd := &cobra.Command{
		Use:   "cost",
		Short: "Report what the proxy costs: CPU a completion, allocations an event, memory a stream",
		Long: "Report what the proxy costs: CPU a short completion, allocations and CPU a streamed event,\n" +
			"memory an open stream that waits. The proxy (xpyd serve, metrics and log on) and the simulated\n" +
			"engines run in processes of their own. Missing a goal is shown, not a failure.",
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.Xpyd, err = findXpyd(xpyd); err != nil {
				return err
			}
			if o.Self, err = self(); err != nil {
				return err
			}
			return runWith(cmd, &o, cost.Run)
		},
	}
	f := cmd.Flags()
	xpydFlag(f, &xpyd)
	f.IntVar(&o.Streams, "streams", 200, "streams whose events are counted")
	f.IntVar(&o.Idle, "idle", 2000, "open streams that wait for their next event")
	f.BoolVar(&o.TLS, "tls", false, "speak TLS on both sides of the proxy")
	f.DurationVar(&o.Window, "window", 10*time.Second, "length of a measurement; a multiple of 5s, the time between two probes of a backend, evens those out")
	return cmd
}

// newEnginesCmd runs the engines of cost in the process that it starts for them.
func newEnginesCmd() *cobra.Command {
	var cert, key string
	cmd := &cobra.Command{
		Use:    "engines",
		Short:  "Run the engines of tools cost until a signal comes",
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cost.Engines(cmd.Context(), cmd.OutOrStdout(), cert, key)
		},
	}
	cmd.Flags().StringVar(&cert, "cert", "", "certificate, for TLS")
	cmd.Flags().StringVar(&key, "key", "", "its key")
	return cmd
}
