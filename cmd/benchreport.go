package cmd

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	printer "xpyd/bench/report"
	"xpyd/bench/result"
	"xpyd/config"
)

func newBenchReportCmd() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:     "report DIR",
		Short:   "Print the saved runs of a directory",
		Long:    "report prints the runs that bench serve --out saved in DIR, the oldest first." + formatHelp(),
		Example: "  xpyd bench report runs --format mooncake",
		Args:    oneDirectory("report"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkFormat(format); err != nil {
				return err
			}
			runs, err := result.LoadDir(args[0])
			if err != nil {
				return err
			}
			return printer.Print(cmd.OutOrStdout(), format, runs)
		},
	}
	addFormatFlag(cmd, &format, "vllm")
	return cmd
}

// oneDirectory holds a command to one argument.
func oneDirectory(name string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return config.UsageError{Err: fmt.Errorf("%s takes one directory, got %d", name, len(args))}
		}
		return nil
	}
}

func addFormatFlag(cmd *cobra.Command, format *string, value string) {
	cmd.Flags().StringVar(format, "format", value, "how to print the result; the formats stand above")
	_ = cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(printer.Formats(), cobra.ShellCompDirectiveNoFileComp)) // the flag is there
}

func formatHelp() string {
	text := "\n\nFormats:\n"
	for _, name := range printer.Formats() {
		text += fmt.Sprintf("  %-10s %s\n", name, printer.About(name))
	}
	return text
}

func checkFormat(format string) error {
	if !slices.Contains(printer.Formats(), format) {
		return config.UsageError{Err: fmt.Errorf("--format %q: want one of %v", format, printer.Formats())}
	}
	return nil
}
