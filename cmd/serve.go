package cmd

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"xpyd/cmd/config"
	"xpyd/cmd/daemon"
)

func newServeCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the proxy in front of a prefill and a decode pool",
		Long: `serve runs the proxy in front of a prefill and a decode pool. Without --prefill it is a plain
balancer over the decode pool. Flags override XPYD_ variables, and these override the file of
--config. docs/configuration.md explains every key.

Signals: HUP rereads the configuration, USR2 hands the ports over to a new process without loss,
TERM drains and ends. docs/operations.md has the details.`,
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
