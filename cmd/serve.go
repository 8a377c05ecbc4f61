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
			"  xpyd serve --config /etc/xpyd/config.yaml",
		RunE: func(cmd *cobra.Command, _ []string) error {
			from, err := daemon.Inherit() // must come before the variables are read as configuration
			if err != nil {
				return err
			}
			defer from.Close()
			loader := func(again bool) daemon.Loader {
				files := config.NewFiles(again)
				return func(ctx context.Context) (config.Config, error) {
					return config.Load(ctx, files, cmd.Flags(), os.Environ())
				}
			}
			return daemon.Serve(cmd.Context(), daemon.Options{
				Load: loader(from.Handed()), Reload: loader(true), From: from, Logs: os.Stderr, Version: readBuildInfo().Version,
			})
		},
	}
	config.AddFlags(cmd.Flags())
	config.CompleteValues(cmd)
	return cmd
}
