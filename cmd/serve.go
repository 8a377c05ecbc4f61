package cmd

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"xpyd/config"
	"xpyd/daemon"
)

func newServeCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the OpenAI API over a prefill and a decode pool",
		Example: "  xpyd serve --prefill http://p1:8100,http://p2:8100 --decode http://d1:8200\n" +
			"  xpyd serve --config /etc/xpyd/config.yaml\n" +
			"  xpyd serve --as vllm-router -- --vllm-pd-disaggregation --prefill http://p1:8100 --decode http://d1:8200",
		RunE: func(cmd *cobra.Command, args []string) error {
			from, err := daemon.Inherit() // must come before the variables are read as configuration
			if err != nil {
				return err
			}
			defer from.Close()
			load, err := loader(cmd, args, os.Environ(), from.Handed())
			if err != nil {
				return err
			}
			reload, err := loader(cmd, args, os.Environ(), true)
			if err != nil {
				return err
			}
			files := config.NewFiles(true)
			rekey := func(ctx context.Context, c config.Config) (config.Config, error) {
				return c.RereadKeys(ctx, files, os.Environ())
			}
			return daemon.Serve(cmd.Context(), daemon.Options{
				Load: load, Reload: reload, Rekey: rekey, From: from, Logs: os.Stderr, Version: readBuildInfo().Version,
			})
		},
	}
	config.AddFlags(cmd.Flags())
	config.CompleteValues(cmd)
	addAs(cmd)
	return cmd
}
