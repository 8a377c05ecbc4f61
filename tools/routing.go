package main

import (
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"xpyd/router"
	"xpyd/tools/routing"
)

func newRoutingCmd() *cobra.Command {
	var (
		o     routing.Options
		quick bool
		from  string
		xpyd  string
	)
	cmd := &cobra.Command{
		Use:   "routing",
		Short: "Measure routing policies over simulated engines with prefix caches, and judge the goals",
		Long: "Measure how well xpyd's policies, and vllm-router's where it is installed, spread the same requests\n" +
			"over simulated engines that cache prompts: share of the prompts that caches save, TTFT, tokens/s,\n" +
			"imbalance, beside an oracle that knows the caches. Contenders are named by their prefill policy,\n" +
			"with +always, +auto or +never for pd.mode. A goal that is not met is shown, and is no failure.",
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if from != "" {
				return routing.Render(from, o.Docs)
			}
			o.Policies, o.Modes = router.Policies(), router.PDModes()
			if quick {
				quickenRouting(&o, cmd.Flags().Changed)
			}
			if err := valid(&o); err != nil {
				return err
			}
			if o.Xpyd, o.Version, o.Self, err = programs(cmd.Context(), xpyd); err != nil {
				return err
			}
			return routing.Run(cmd.Context(), o, cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	xpydFlag(f, &xpyd)
	routingFlags(f, &o)
	f.BoolVar(&quick, "quick", false, "five minutes: 4P4D, and the contenders that matter most; other flags win")
	f.StringVar(&from, "from", "", "results.json of an earlier run: measure nothing, only do what --docs says")
	return cmd
}

// routingFlags adds the flags that are options of the run.
func routingFlags(f *pflag.FlagSet, o *routing.Options) {
	f.StringVar(&o.VLLMRouter, "vllm-router", "", "`path` of vllm-router; none: looked for in PATH")
	f.StringSliceVar(&o.Only, "only", nil, "contenders, with commas; none: the standard ones that are there")
	f.StringVar(&o.Run, "run", "", "`regexp` of the workloads to measure; none: all")
	f.StringSliceVar(&o.Topologies, "topology", []string{"4P4D", "2P6D", "8P8D"}, "numbers of prefill and decode engines, with commas")
	f.IntVar(&o.Rounds, "rounds", 1, "rounds of each measurement, each with other requests, of which the median counts")
	f.DurationVar(&o.Length, "length", 30*time.Second, "of a measurement; its first three tenths warm the caches and do not count")
	f.IntVar(&o.Parallel, "parallel", 3, "measurements at a time, each with engines of its own")
	f.Uint64Var(&o.Seed, "seed", 1, "of the requests")
	f.StringVar(&o.Trace, "trace", "", "`file` of requests in the format of Mooncake's published traces, a further workload")
	f.StringVar(&o.Docs, "docs", "", "`directory` of routing.md, whose tables and charts are replaced")
	f.StringVar(&o.Out, "out", "bench-out/routing", "`directory` of the results")
}

// quickenRouting fills in what no flag has set.
func quickenRouting(o *routing.Options, given func(flag string) bool) {
	if !given("length") {
		o.Length = 15 * time.Second
	}
	if !given("topology") {
		o.Topologies = []string{"4P4D"}
	}
	if !given("run") {
		o.Run = "^(system|chats|documents|random|bursts|selective)$"
	}
	if !given("only") {
		o.Only = []string{"prefix+auto", "prefix+always", "prefix+never", "least_request", "round_robin", "vllm-router/cache_aware"}
	}
}

// newRoutingEnginesCmd runs the engines of tools routing in the process that it
// starts for them.
func newRoutingEnginesCmd() *cobra.Command {
	var plan string
	cmd := &cobra.Command{
		Use:    "routing-engines",
		Short:  "Run the engines of a measurement of tools routing until a signal comes",
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return routing.Engines(cmd.Context(), plan, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&plan, "plan", "", "engines, as `JSON`")
	return cmd
}
