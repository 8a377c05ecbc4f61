package cmd

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"xpyd/config"
	"xpyd/ctl"
)

func newHealthcheckCmd(flags *adminFlags) *cobra.Command {
	var ready bool
	var limit time.Duration
	cmd := &cobra.Command{
		Use:   "healthcheck",
		Short: "Exit with 0 if the xpyd on this machine is well, for containers",
		Long: `healthcheck asks the admin port whether the process answers. It exits with 0 if it does and
with 1 if it does not. With --ready it asks whether completions are served, which depends on the
engines: do not let that restart the process.

It needs no token. In a container whose process 1 is xpyd serve it finds the admin port as
serve does: by its flags, its file, XPYD_ADMIN.`,
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
	cmd.Flags().BoolVar(&ready, "ready", false, "ask whether completions are served")
	cmd.Flags().DurationVar(&limit, "timeout", 3*time.Second, "longest wait for the answer")
	return cmd
}
