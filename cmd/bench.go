package cmd

import (
	"errors"

	"github.com/spf13/cobra"

	"xpyd/cmd/config"
)

func newBenchCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure xpyd, a vLLM server, or any server that speaks OpenAI's API",
		RunE: func(*cobra.Command, []string) error {
			return config.UsageError{Err: errors.New("bench needs a command: serve, sweep, advise or report; see xpyd bench --help")}
		},
	}
	cmd.AddCommand(newBenchServeCmd(), newBenchSweepCmd(), newBenchAdviseCmd(), newBenchReportCmd())
	return cmd
}
