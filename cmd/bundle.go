package cmd

import (
	"bytes"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"xpyd/cmd/config"
	"xpyd/cmd/ctl"
)

func newBundleCmd() *cobra.Command {
	flags, output := &adminFlags{}, ""
	cmd := &cobra.Command{
		Use:   "support-bundle",
		Short: "Write into one file what helps others to understand a running xpyd",
		Long: `support-bundle asks the admin port for the configuration without secrets, the pools, the last events and failures, the
metrics and the versions, and writes them as a compressed tar. It holds no prompt, completion, key or token. It does
hold addresses, and the names of models and keys.`,
		Example: "  xpyd support-bundle --admin http://127.0.0.1:8081\n" +
			"  xpyd support-bundle --output - | tar tz",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := flags.client(cmd)
			if err != nil {
				return err
			}
			var b bytes.Buffer
			if err := c.Bundle(cmd.Context(), &b, readBuildInfo()); err != nil {
				return ctl.Explain(c, err)
			}
			switch output {
			case "-":
				_, err := cmd.OutOrStdout().Write(b.Bytes())
				return err
			case "":
				output = "xpyd-support-" + time.Now().Format("20060102-150405") + ".tar.gz"
			}
			if err := os.WriteFile(output, b.Bytes(), 0o600); err != nil {
				return config.UsageError{Err: fmt.Errorf("--output: %w", err)}
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), output)
			return err
		},
	}
	cmd.SetFlagErrorFunc(config.FlagError)
	flags.add(cmd)
	cmd.Flags().StringVar(&output, "output", "", "`file` to write; - is standard output (default xpyd-support-TIME.tar.gz here)")
	return cmd
}
