package main

import (
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"xpyd/tools/versus"
)

func newVersusCmd() *cobra.Command {
	var (
		o     versus.Options
		quick bool
		from  []string
	)
	cmd := &cobra.Command{
		Use:   "proxy",
		Short: "Measure the proxy beside nginx and others at the same work, and judge its bars",
		Long: "Measure what the proxy costs beside nginx, a raw relay and, where installed, HAProxy and vllm-router:\n" +
			"CPU a request and an event, memory a stream, added delay. Each runs in a process of its own, afresh\n" +
			"for each measurement, in turns; this process is clients and engines, once as two epoll threads and once\n" +
			"with a goroutine for each connection. A bar is judged on the worse of the two loads. One that does not\n" +
			"hold is shown, and is no failure. With --xpyd old=PATH --xpyd new=PATH builds are compared in one run.",
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if len(from) > 0 {
				return versus.Render(from, o.Docs)
			}
			if quick {
				quicken(&o, cmd.Flags().Changed)
			}
			if err := valid(&o); err != nil {
				return err
			}
			first := ""
			if len(o.Xpyd) > 0 {
				_, first, _ = strings.Cut(o.Xpyd[0], "=")
			}
			if o.Program, o.Version, o.Self, err = programs(cmd.Context(), first); err != nil {
				return err
			}
			return versus.Run(cmd.Context(), o, cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	versusFlags(f, &o)
	f.BoolVar(&quick, "quick", false, "three minutes for the main shapes, one round, of xpyd, nginx and the relay alone; other flags win")
	f.StringSliceVar(&from, "from", nil, "results.json of earlier runs, with commas: measure nothing, only do what --docs says")
	return cmd
}

// versusFlags adds the flags that are options of the run.
func versusFlags(f *pflag.FlagSet, o *versus.Options) {
	f.StringArrayVar(&o.Xpyd, "xpyd", nil, "build of xpyd as `name=path`; repeated, all are compared; none: that of make build")
	f.StringVar(&o.HAProxy, "haproxy", "", "`path` of haproxy; none: looked for in PATH")
	f.StringVar(&o.VLLMRouter, "vllm-router", "", "`path` of vllm-router; none: looked for in PATH")
	f.StringSliceVar(&o.Only, "only", nil, "contenders, with commas; none: all that are installed")
	f.StringVar(&o.Run, "run", "", "`regexp` of the shapes to measure; none: all")
	f.IntVar(&o.Rounds, "rounds", 3, "rounds of each measurement, of which the median counts")
	f.DurationVar(&o.Window, "window", 5*time.Second, "length of a measurement")
	f.StringVar(&o.Load, "load", "both", "clients and engines: `epoll|goroutines|both`; bars are judged on the worse")
	f.IntVar(&o.Cores, "cores", runtime.NumCPU(), "threads of a proxy; it and the load are confined to as many CPUs")
	f.BoolVar(&o.Calls, "calls", false, "count system calls a request or event with perf, in a measurement of their own")
	f.StringVar(&o.Docs, "docs", "", "`directory` of performance.md, whose tables and charts are replaced")
	f.StringVar(&o.Out, "out", "bench-out/proxy", "`directory` of the results")
}

// quicken fills in what no flag has set.
func quicken(o *versus.Options, given func(flag string) bool) {
	if !given("window") {
		o.Window = time.Second
	}
	if !given("rounds") {
		o.Rounds = 1
	}
	if !given("run") {
		o.Run = "^(json|body-512k|flood|paced-64|paced-500|flow-2000|ttft)$"
	}
	if !given("only") {
		o.Only = []string{"nginx", "relay", "direct"}
		if len(o.Xpyd) == 0 {
			o.Only = append(o.Only, "xpyd")
		}
	}
}

// newRelayCmd is a contender of tools proxy.
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
