package cmd

import (
	"context"
	"io"
	"time"

	"github.com/spf13/cobra"

	"xpyd/config"
	"xpyd/daemon"
	"xpyd/tools/bench"
	"xpyd/tools/versus"
)

func newBenchCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure the proxy over simulated engines",
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newChurnCmd(), newSoakCmd(), newReloadCmd(), newCostCmd(), newEnginesCmd(), newVersusCmd(), newRelayCmd(), newRoutingCmd(), newRoutingEnginesCmd())
	for _, c := range cmd.Commands() {
		if c.Args == nil {
			c.Args = noArgs
		}
	}
	return cmd
}

// runBench runs a benchmark with o, unless it is nothing to make a run of.
func runBench[O any, P interface {
	*O
	Validate() error
}](cmd *cobra.Command, o P, run func(context.Context, O, io.Writer) error) error {
	if err := o.Validate(); err != nil {
		return config.UsageError{Err: err}
	}
	return run(cmd.Context(), *o, cmd.OutOrStdout())
}

func newCostCmd() *cobra.Command {
	var o bench.CostOptions
	cmd := &cobra.Command{
		Use:   "cost",
		Short: "Report what the proxy costs: CPU a completion, allocations an event, memory a stream",
		Long: "Report what the proxy costs: CPU a short completion, allocations and CPU a streamed event,\n" +
			"memory an open stream that waits. The proxy (xpyd serve, metrics and log on) and the simulated\n" +
			"engines run in processes of their own. Missing a goal is shown, not a failure.",
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.Executable, err = daemon.Executable(); err != nil {
				return err
			}
			return runBench(cmd, &o, bench.Cost)
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.Streams, "streams", 200, "streams whose events are counted")
	f.IntVar(&o.Idle, "idle", 2000, "open streams that wait for their next event")
	f.DurationVar(&o.Window, "window", 10*time.Second, "length of a measurement; a multiple of 5s, the time between two probes of a backend, evens those out")
	return cmd
}

// newEnginesCmd runs the engines of cost in the process that it starts for them.
func newEnginesCmd() *cobra.Command {
	return &cobra.Command{
		Use:    "engines",
		Short:  "Run the engines of xpyd bench cost until standard input ends",
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return bench.Engines(cmd.Context(), cmd.InOrStdin(), cmd.ErrOrStderr())
		},
	}
}

func newVersusCmd() *cobra.Command {
	var (
		o     versus.Options
		quick bool
		from  string
	)
	cmd := &cobra.Command{
		Use:   "proxy",
		Short: "Measure the proxy beside nginx and others at the same work, and judge its bars",
		Long: "Measure what the proxy costs beside nginx, a raw relay and, where installed, HAProxy and vllm-router:\n" +
			"CPU a request and an event, memory a stream, added delay. Each runs in a process of its own, afresh\n" +
			"for each measurement, in turns; this process is clients and engines. A bar that does not hold is shown,\n" +
			"and is no failure. With --xpyd old=PATH --xpyd new=PATH builds are compared in one run.",
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if from != "" {
				return versus.Render(from, o.Docs)
			}
			if o.Executable, err = daemon.Executable(); err != nil {
				return err
			}
			o.Version = readBuildInfo().Version
			if quick {
				quicken(&o, cmd.Flags().Changed)
			}
			return runBench(cmd, &o, versus.Run)
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&o.Xpyd, "xpyd", nil, "build of xpyd as `name=path`; repeated, all are compared; none: this one")
	f.StringVar(&o.HAProxy, "haproxy", "", "`path` of haproxy; none: looked for in PATH")
	f.StringVar(&o.VLLMRouter, "vllm-router", "", "`path` of vllm-router; none: looked for in PATH")
	f.StringSliceVar(&o.Only, "only", nil, "contenders, with commas; none: all that are installed")
	f.StringVar(&o.Run, "run", "", "`regexp` of the shapes to measure; none: all")
	f.IntVar(&o.Rounds, "rounds", 3, "rounds of each measurement, of which the median counts")
	f.DurationVar(&o.Window, "window", 5*time.Second, "length of a measurement")
	f.IntVar(&o.Cores, "cores", 2, "threads of a Go proxy, and workers of nginx")
	f.BoolVar(&quick, "quick", false, "three minutes for the main shapes, of xpyd, nginx and the relay alone; other flags win")
	f.BoolVar(&o.Calls, "calls", false, "count system calls a request or event with perf, in a measurement of their own")
	f.StringVar(&o.Docs, "docs", "", "`directory` of performance.md, whose tables and charts are replaced")
	f.StringVar(&from, "from", "", "results.json of an earlier run: measure nothing, only do what --docs says")
	f.StringVar(&o.Out, "out", "bench-out/proxy", "`directory` of the results")
	return cmd
}

// quicken fills in what no flag has set.
func quicken(o *versus.Options, given func(flag string) bool) {
	if !given("window") {
		o.Window = 1500 * time.Millisecond
	}
	if !given("run") {
		o.Run = "^(json|body-512k|flood|paced-64|paced-500|open-2000|ttft)$"
	}
	if !given("only") {
		o.Only = []string{"nginx", "relay", "direct"}
		if len(o.Xpyd) == 0 {
			o.Only = append(o.Only, "xpyd")
		}
	}
}

// newRelayCmd is a contender of xpyd bench proxy.
func newRelayCmd() *cobra.Command {
	var to string
	cmd := &cobra.Command{
		Use:    "relay",
		Short:  "Join each connection to one to another address, byte for byte",
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return versus.Relay(cmd.Context(), to, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "`host:port`")
	return cmd
}
