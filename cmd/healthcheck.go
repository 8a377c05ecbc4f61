package cmd

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"xpyd/cmd/config"
	"xpyd/cmd/ctl"
)

func newHealthcheckCmd(flags *adminFlags) *cobra.Command {
	var ready bool
	var limit time.Duration
	cmd := &cobra.Command{
		Use:   "healthcheck",
		Short: "Exit with 0 if the xpyd on this machine answers, for container health checks",
		Long: `healthcheck asks the admin port whether the process answers. It exits with 0 if it does, and
with 1 if it does not. With --ready it asks whether xpyd can serve completions. That depends on the
engines, so do not let it restart the process.

It needs no token. It finds the admin port by XPYD_ADMIN, and by the flags and the file of an xpyd serve
that is process 1, as in a container, or that is the only one.`,
		Example: "  HEALTHCHECK CMD [\"/xpyd\", \"healthcheck\"]",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := flags.client(cmd)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), limit)
			defer cancel()
			return ctl.Explain(c, c.Healthy(ctx, ready))
		},
	}
	cmd.SetFlagErrorFunc(config.FlagError)
	flags.add(cmd)
	cmd.Flags().BoolVar(&ready, "ready", false, "ask whether xpyd can serve completions")
	cmd.Flags().DurationVar(&limit, "timeout", 3*time.Second, "longest wait for the answer")
	return cmd
}
