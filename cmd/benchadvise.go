package cmd

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"xpyd/bench/advice"
	"xpyd/bench/result"
	"xpyd/config"
)

// chunk is how many tokens the chunk latency waits for.
const chunk = 16

// latencies are the figures by which targets can be compared.
func latencies() map[string]advice.Latency {
	return map[string]advice.Latency{"tpot": advice.Token(), "ttft": advice.FirstToken(), "chunk": advice.Chunk(chunk)}
}

func newBenchAdviseCmd() *cobra.Command {
	by := "tpot"
	cmd := &cobra.Command{
		Use:   "advise DIR",
		Short: "Say which target of a sweep is best at which load",
		Long: `advise compares the saved runs of a directory: which target has the most throughput (a GPU, where the
targets' GPUs are known and differ), and which answers quickest up to which rate. Where the repeats of
two targets overlap, neither is called better.`,
		Example: "  xpyd bench advise runs-ray --by ttft",
		Args:    oneDirectory("advise"),
		RunE: func(cmd *cobra.Command, args []string) error {
			lat, ok := latencies()[by]
			if !ok {
				return config.UsageError{Err: fmt.Errorf("--by %q: want one of %v", by, slices.Sorted(maps.Keys(latencies())))}
			}
			runs, err := result.LoadDir(args[0])
			if err != nil {
				return err
			}
			return printAdvice(cmd.OutOrStdout(), runs, lat)
		},
	}
	cmd.Flags().StringVar(&by, "by", by, "latency that counts: tpot, ttft, or chunk: the time to 16 tokens; all medians")
	return cmd
}

func printAdvice(out io.Writer, runs []*result.Run, lat advice.Latency) error {
	_, err := fmt.Fprintf(out, "\n%s\n", strings.Join(advice.Words(runs, lat), "\n"))
	return err
}
