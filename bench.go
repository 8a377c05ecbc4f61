package main

import (
	"fmt"
	"os"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"xpyd/bench"
	"xpyd/bench/versus"
)

func newBenchCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure the proxy over simulated engines",
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newChurnCmd(), newSoakCmd(), newCostCmd(), newEnginesCmd(), newVersusCmd(), newRelayCmd(), newRoutingCmd(), newRoutingEnginesCmd())
	for _, c := range cmd.Commands() {
		c.Args = noArgs
	}
	return cmd
}

func newChurnCmd() *cobra.Command {
	o := bench.ChurnOptions{KeepAlive: 5 * time.Second, Start: benchProxy(defaultConfig())}
	cmd := &cobra.Command{
		Use:   "churn",
		Short: "Let clients leave in every phase of a completion; fail if anything stays behind",
		Long: "Let clients leave in every phase of a completion: in the body, while the prefill engine\n" +
			"works, in its last milliseconds, after its answer, before the decode engine's first event,\n" +
			"in the stream, after the end. Engines and proxy run in this process, over real sockets.\n" +
			"Exit code 1 if a block stays pinned, a goroutine or descriptor is left, an answer is wrong,\n" +
			"or a phase was hit too rarely.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Validate(); err != nil {
				return usageError{err}
			}
			return bench.Churn(cmd.Context(), o, cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.Clients, "clients", 200, "clients at a time")
	f.DurationVar(&o.Duration, "duration", time.Minute, "how long they come and go")
	f.IntVar(&o.MinPerPhase, "min-per-phase", 100, "hits below which a phase fails the run")
	f.IntVar(&o.Prefill, "prefill", 2, "prefill engines")
	f.IntVar(&o.Decode, "decode", 2, "decode engines")
	f.Uint64Var(&o.Seed, "seed", 1, "of everything random; the schedule of goroutines is not")
	return cmd
}

func newSoakCmd() *cobra.Command {
	var o bench.SoakOptions
	cmd := &cobra.Command{
		Use:   "soak",
		Short: "Break engines and connections under load; fail if anything is lost or leaks",
		Long: "Break engines and connections under load, in every way and at random, reload the proxy and\n" +
			"hand its ports over meanwhile; then leave it in peace. Clients and engines check that each\n" +
			"request has one end, each answer each byte, each handle one use, and that nothing stays behind.\n" +
			"The proxy (xpyd serve) runs in a process of its own. Takes the duration and about 15 s, on a busy machine up to 40 s.\n" +
			"Exit code 1 if an invariant is broken; seed, fault log, proxy log and goroutines are kept then.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			self, err := os.Executable()
			if err != nil {
				return fmt.Errorf("find the program itself: %w", err)
			}
			o.Serve = []string{self, "serve"}
			if err := o.Validate(); err != nil {
				return usageError{err}
			}
			return bench.Soak(cmd.Context(), o, cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.DurationVar(&o.Duration, "duration", 3*time.Minute, "how long the load lasts: a fifth without faults, three with, a fifth without")
	f.IntVar(&o.Streams, "streams", 300, "clients that hold a stream each; a sixth as many ask for short answers")
	f.IntVar(&o.Events, "events", 40, "tokens of a stream, 50 ms apart")
	f.Uint64Var(&o.Seed, "seed", 1, "of everything random; the schedule of goroutines is not")
	f.StringVar(&o.Artefacts, "artefacts", "bench-out/soak", "`directory` for what a failed run leaves behind")
	return cmd
}

func newCostCmd() *cobra.Command {
	var o bench.CostOptions
	cmd := &cobra.Command{
		Use:   "cost",
		Short: "Report what the proxy costs: CPU a completion, allocations an event, memory a stream",
		Long: "Report what the proxy costs: CPU a short completion, allocations and CPU a streamed event,\n" +
			"memory an open stream that waits. The proxy (xpyd serve, metrics and log on) and the simulated\n" +
			"engines run in processes of their own. Missing a goal is shown, not a failure.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Validate(); err != nil {
				return usageError{err}
			}
			self, err := os.Executable()
			if err != nil {
				return fmt.Errorf("find the program itself: %w", err)
			}
			o.Executable = self
			return bench.Cost(cmd.Context(), o, cmd.OutOrStdout())
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
		RunE: func(cmd *cobra.Command, _ []string) error {
			self, err := os.Executable()
			if err != nil {
				return fmt.Errorf("find the program itself: %w", err)
			}
			o.Executable, o.Version = self, readBuildInfo().Version
			if from != "" {
				return versus.Render(from, o.Docs)
			}
			if quick {
				quicken(&o, cmd.Flags().Changed)
			}
			if err := o.Validate(); err != nil {
				return usageError{err}
			}
			return versus.Run(cmd.Context(), o, cmd.OutOrStdout())
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

// benchProxy returns what starts a proxy of cfg in this process, before given pools.
func benchProxy(cfg config) func(prefill, decode []string) (bench.Proxy, error) {
	return func(prefill, decode []string) (bench.Proxy, error) {
		cfg.Listen, cfg.Admin = "127.0.0.1:0", "127.0.0.1:0"
		cfg.Router.Prefill, cfg.Router.Decode = prefill, decode
		cfg.Timeouts.Drain = 5 * time.Second
		p, err := startProxy(cfg, zerolog.Nop())
		if err != nil {
			return bench.Proxy{}, fmt.Errorf("start the proxy: %w", err)
		}
		return bench.Proxy{Addr: p.addr, Admin: p.adminAddr, Stop: p.shutdown}, nil
	}
}
