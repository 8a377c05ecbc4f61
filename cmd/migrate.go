package cmd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"xpyd/cmd/config"
	"xpyd/cmd/migrate"
)

func newMigrateCmd() *cobra.Command {
	names := migrate.Routers()
	cmd := &cobra.Command{
		Use:   "migrate ROUTER -- ITS FLAGS",
		Short: "Translate the command line of another router into a configuration",
		Long: `migrate prints the YAML that is equivalent to the flags of another router, with a
comment for each flag that has no equivalent. It knows the flags of
` + strings.Join(names, ", ") + `.

The router's defaults for ports, policies, and the timeout and size of a request carry over.
For everything else, xpyd's own defaults apply. xpyd serve --as ROUTER -- ITS FLAGS runs
the same configuration without a file. Exit status: 0 if xpyd can start with this YAML,
2 if it cannot, or if the router does not have one of the flags.`,
		Example:   "  xpyd migrate vllm-router -- --vllm-pd-disaggregation --prefill http://p1:8100 --decode http://d1:8200 > config.yaml",
		ValidArgs: names,
		Args:      cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return config.UsageError{Err: fmt.Errorf("migrate needs a router, one of %s; see xpyd migrate --help", strings.Join(names, ", "))}
			}
			flags := args[1:]
			if len(flags) > 0 && flags[0] == "--" {
				flags = flags[1:]
			}
			return printMigration(cmd, args[0], flags)
		},
	}
	cmd.Flags().SetInterspersed(false) // what follows the router's name is not ours to parse
	return cmd
}

// printMigration prints the configuration before it checks it, so that an operator sees it even if
// something is missing, such as engines that the other router finds by itself.
func printMigration(cmd *cobra.Command, router string, flags []string) error {
	text, err := migrate.YAML(router, flags)
	if err != nil {
		return config.UsageError{Err: fmt.Errorf("migrate: %w", err)}
	}
	if _, err := cmd.OutOrStdout().Write(text); err != nil {
		return err
	}
	files := config.NewFiles(false)
	files.Make(router, text)
	set := pflag.NewFlagSet(router, pflag.ContinueOnError)
	config.AddFlags(set)
	if err := set.Set("config", router); err != nil {
		return err
	}
	c, err := config.Load(cmd.Context(), files, set, nil)
	if err != nil {
		return err
	}
	for _, w := range config.Warnings(c) {
		fmt.Fprintln(cmd.ErrOrStderr(), "warning:", w)
	}
	return nil
}

// asFlag names the router whose flags follow after --.
const asFlag = "as"

// addAs lets a command that reads a configuration take the flags of another router after --.
func addAs(cmd *cobra.Command) {
	cmd.Flags().String(asFlag, "", "`router` whose flags follow after --: "+strings.Join(migrate.Routers(), ", ")+". xpyd's own flags and XPYD_* variables override them")
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if cmd.Flags().Changed(asFlag) && cmd.ArgsLenAtDash() == 0 {
			return nil
		}
		return noArgs(cmd, args)
	}
	complete := cobra.FixedCompletions(migrate.Routers(), cobra.ShellCompDirectiveNoFileComp)
	if err := cmd.RegisterFlagCompletionFunc(asFlag, complete); err != nil {
		panic("BUG: " + err.Error())
	}
}

// loader returns the function that reads the command's configuration. again is for a reload and for a
// successor.
func loader(cmd *cobra.Command, args, environ []string, again bool) (func(context.Context) (config.Config, error), error) {
	files, err := filesOf(cmd, args, again)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (config.Config, error) { return config.Load(ctx, files, cmd.Flags(), environ) }, nil
}

// filesOf returns the files of the command's configuration.
func filesOf(cmd *cobra.Command, args []string, again bool) (*config.Files, error) {
	files := config.NewFiles(again)
	if as := cmd.Flags().Lookup(asFlag); as.Changed {
		if err := standIn(cmd.Flags(), files, as.Value.String(), args); err != nil {
			return nil, config.UsageError{Err: err}
		}
	}
	return files, nil
}

// standIn makes the router's flags take the place of the configuration file.
func standIn(flags *pflag.FlagSet, files *config.Files, router string, args []string) error {
	name := "the flags of " + router
	if f := flags.Lookup("config"); f.Changed && f.Value.String() != name {
		return errors.New("--as and --config: both say what the configuration is; give one of them")
	}
	text, err := migrate.YAML(router, args)
	if err != nil {
		return fmt.Errorf("--as: %w", err)
	}
	files.Make(name, text)
	return flags.Set("config", name)
}
