package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"xpyd/cmd/config"
	"xpyd/router"
	"xpyd/sim"
	"xpyd/tools/churn"
)

func newChurnCmd() *cobra.Command {
	o := churn.Options{KeepAlive: 5 * time.Second}
	var connectors []string
	var roleless bool
	cmd := &cobra.Command{
		Use:   "churn [flags] [-- flags of xpyd serve]",
		Args:  proxyFlags,
		Short: "Let clients leave in every phase of a completion; fail if anything stays behind",
		Long: "Let clients leave in every phase of a completion: in the body, while the prefill engine\n" +
			"works, in its last milliseconds, after its answer, before the decode engine's first event,\n" +
			"in the stream, after the end. Engines and proxy run in this process, over real sockets.\n" +
			"Exit code 1 if a block stays pinned, a goroutine or descriptor is left, an answer is wrong,\n" +
			"or a phase was hit too rarely (with pd.mode auto and never: one that needs no prefill).",
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := config.FromArgs(args)
			if err != nil {
				return err
			}
			for _, name := range connectors {
				c := sim.Connector(name)
				if !slices.Contains(sim.Connectors(), c) {
					return config.UsageError{Err: fmt.Errorf("--connector %q: there are simulated engines of %v", c, sim.Connectors())}
				}
				o.Connectors = append(o.Connectors, c)
			}
			if len(connectors) > 0 {
				cfg.Connector = connectors[0]
			}
			mode := cfg.Router.PD.Mode
			o.Start, o.Alone, o.Never = inProcess(cfg, roleless), mode != router.PDAlways, mode == router.PDNever
			return runWith(cmd, &o, churn.Run)
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.Clients, "clients", 200, "clients at a time")
	f.DurationVar(&o.Duration, "duration", time.Minute, "how long they come and go")
	f.IntVar(&o.MinPerPhase, "min-per-phase", 100, "hits below which a phase fails the run")
	f.IntVar(&o.Prefill, "prefill", 2, "prefill engines")
	f.IntVar(&o.Decode, "decode", 2, "decode engines")
	f.BoolVar(&o.Ranks, "ranks", false, "the engines of each pool are the data-parallel ranks of one server")
	f.BoolVar(&roleless, "roleless", false, "all engines are without a role")
	f.StringSliceVar(&connectors, "connector", nil, "`names` of the KV connectors of engines and proxy, which the engines of each role have in turn (default nixl)")
	f.Uint64Var(&o.Seed, "seed", 1, "of everything random; the schedule of goroutines is not")
	return cmd
}
