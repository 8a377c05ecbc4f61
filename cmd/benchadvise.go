package cmd

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"xpyd/bench"
	"xpyd/bench/advice"
	"xpyd/bench/result"
	"xpyd/cmd/config"
)

// chunk is how many tokens the chunk latency waits for.
const chunk = 16

// latencies are the figures that can compare targets.
func latencies() map[string]advice.Latency {
	return map[string]advice.Latency{"tpot": advice.Token(), "ttft": advice.FirstToken(), "chunk": advice.Chunk(chunk)}
}

func newBenchAdviseCmd() *cobra.Command {
	by, objective := []string{"tpot", "ttft"}, []string(nil)
	cmd := &cobra.Command{
		Use:   "advise DIR",
		Short: "Say which target of a sweep is best at which load",
		Long: `advise compares the saved runs of a directory. It says which target has the most throughput (per GPU, if
the numbers of GPUs are known and differ), and which one answers fastest up to which rate. If the repeats
of two targets overlap, it calls neither better.`,
		Example: `  xpyd bench advise runs-ray --by ttft
  xpyd bench advise runs-night --objective ttft:500,tpot:20`,
		Args: oneDirectory("advise"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var lats []advice.Latency
			for _, name := range by {
				lat, ok := latencies()[name]
				if !ok {
					return config.UsageError{Err: fmt.Errorf("--by %q: want some of %v", name, slices.Sorted(maps.Keys(latencies())))}
				}
				lats = append(lats, lat)
			}
			bounds, err := readBounds("objective", objective)
			if err == nil {
				err = bench.CheckBounds("objective", bounds)
			}
			if err != nil {
				return config.UsageError{Err: err}
			}
			runs, err := loadRuns(args[0])
			if err != nil {
				return err
			}
			if len(bounds) > 0 {
				fmt.Fprintf(cmd.OutOrStdout(), "\n%s\n", strings.Join(advice.Objective(runs, bounds), "\n"))
			}
			return printAdvice(cmd.OutOrStdout(), runs, lats...)
		},
	}
	cmd.Flags().StringSliceVar(&by, "by", by, "latencies to compare: tpot, ttft or chunk (the time to 16 tokens); all medians")
	cmd.Flags().StringSliceVar(&objective, "objective", nil, "bounds in ms for the P90 of ttft, tpot and e2el, as in ttft:500,tpot:20: says which target takes the most load within them")
	return cmd
}

func printAdvice(out io.Writer, runs []*result.Run, lats ...advice.Latency) error {
	_, err := fmt.Fprintf(out, "\n%s\n", strings.Join(advice.Words(runs, lats...), "\n"))
	return err
}
