package config

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// AddFlags adds --config and one flag for each key of the configuration.
func AddFlags(fs *pflag.FlagSet) {
	fs.String("config", "", "YAML, TOML or JSON `file` of settings (XPYD_CONFIG); flags and XPYD_* variables win over it")
	for _, k := range configKeys() {
		f := fs.VarPF(&flagValue{key: k}, k.flag(), "", k.help())
		f.DefValue = k.defaultText()
		if k.isBool() {
			f.NoOptDefVal = "true"
		}
	}
}

// FlagError makes a UsageError of what is wrong with a command's flags. For an unknown flag it names
// the nearest known one.
func FlagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return UsageError{Err: err}
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	near := ""
	if name := nearest(unknown.GetSpecifiedName(), names); name != "" {
		near = "the nearest is --" + name + ", "
	}
	return UsageError{Err: fmt.Errorf("%w; %ssee %s --help", err, near, cmd.CommandPath())}
}

// flagValue holds a flag's text until Load parses it. So a wrong value gets the same error from
// flag, environment and file.
type flagValue struct {
	key key
	raw string
}

// Set keeps s. A list that is given twice grows.
func (f *flagValue) Set(s string) error {
	if f.raw != "" && f.key.unit() == "list" {
		s = f.raw + "," + s
	}
	f.raw = s
	return nil
}

func (f *flagValue) String() string { return f.raw }

// Type returns the word that help shows beside the flag.
func (f *flagValue) Type() string { return f.key.unit() }
