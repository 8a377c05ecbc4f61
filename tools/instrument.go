package main

import (
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"xpyd/tools/instrument"
)

// newCannedCmd is the server of tools instrument, in a process of its own.
func newCannedCmd() *cobra.Command {
	var pace instrument.Pace
	cmd := &cobra.Command{
		Use:    "canned",
		Short:  "Serve streams of equal tokens until a signal comes",
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return instrument.ServeCanned(cmd.Context(), pace, cmd.OutOrStdout())
		},
	}
	cmd.Flags().DurationVar(&pace.First, "first", 100*time.Millisecond, "time to the first token")
	cmd.Flags().DurationVar(&pace.Interval, "interval", 20*time.Millisecond, "time between two tokens")
	return cmd
}

// newAgreeCmd compares the figures of two tools.
func newAgreeCmd() *cobra.Command {
	o := instrument.AgreeOptions{Load: instrument.Load{Count: 60, Rate: 6}}
	cmd := &cobra.Command{
		Use:   "agree",
		Short: "Compare the figures of xpyd bench serve with those of vllm bench serve, in turns",
		Long: "Send the same prompts at the same times by both tools, in turns, to a server that runs. Each figure's\n" +
			"ratio is printed with its extremes. A figure that is beyond the bound in every round fails the command;\n" +
			"one that is beyond it in some rounds only is undecided. vLLM's tool runs twice a round, and the table\n" +
			"says how far it is from itself.",
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.Xpyd, err = findXpyd(o.Xpyd); err != nil {
				return err
			}
			return runWith(cmd, &o, instrument.Agree)
		},
	}
	toolFlags(cmd.Flags(), &o, "bench-out/agree")
	cmd.Flags().Float64Var(&o.Bound, "bound", 0.02, "how far a figure may be off")
	return cmd
}

// newBenchCostCmd compares what load generators cost.
func newBenchCostCmd() *cobra.Command {
	o := instrument.CostOptions{}
	o.Load = instrument.Load{Count: 400, Concurrency: 50}
	cmd := &cobra.Command{
		Use:   "bench-cost",
		Short: "Compare the CPU of xpyd bench serve with that of vllm bench serve and guidellm, in turns",
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.Xpyd, err = findXpyd(o.Xpyd); err != nil {
				return err
			}
			return runWith(cmd, &o, instrument.Cost)
		},
	}
	toolFlags(cmd.Flags(), &o.AgreeOptions, "bench-out/bench-cost")
	cmd.Flags().StringVar(&o.Guidellm, "guidellm", "", "`program` of guidellm; none: it is left out")
	return cmd
}

// toolFlags adds the flags of both. What o holds are their defaults.
func toolFlags(f *pflag.FlagSet, o *instrument.AgreeOptions, out string) {
	xpydFlag(f, &o.Xpyd)
	f.StringVar(&o.VLLM, "vllm", "", "`program` of vLLM (default that of scripts/real-vllm/setup.sh)")
	f.StringVar(&o.Tokenizer, "tokenizer", "", "`directory` of a tokenizer, without which the tools in Python do not start (default likewise)")
	f.StringVar(&o.Engines, "engines", "sim", "a prefill and a decode engine to start, behind xpyd: sim, or real ones on this machine's CPU")
	f.StringVar(&o.URL, "url", "", "base URL of a server that runs; none: engines are started")
	f.StringVar(&o.Load.Model, "model", "", "model that it serves")
	f.StringVar(&o.Load.API, "api", "completions", "completions, or chat, where vLLM's tool takes the role event for a token")
	f.IntVar(&o.InputLen, "input-len", 512, "prompt tokens")
	f.IntVar(&o.Load.OutputLen, "output-len", 64, "answer tokens")
	f.IntVar(&o.Load.Count, "num-prompts", o.Load.Count, "requests of a run")
	f.Float64Var(&o.Load.Rate, "rate", o.Load.Rate, "requests a second; 0: as the concurrency lets")
	f.IntVar(&o.Load.Concurrency, "concurrency", o.Load.Concurrency, "answers open at once; 0: no cap")
	f.IntVar(&o.Load.Warmups, "warmups", 4, "requests before those that count")
	f.IntVar(&o.Load.Seed, "seed", 1, "of the first round; each has the next one")
	f.StringVar(&o.Load.Salt, "salt", "", "begin of each run's cache_salt, where the server caches prefixes")
	f.IntVar(&o.Rounds, "rounds", 5, "rounds")
	f.StringVar(&o.Dir, "out", out, "`directory` of logs and results")
}
