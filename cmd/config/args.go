package config

import (
	"fmt"

	"github.com/spf13/pflag"

	"xpyd/router"
)

// FromArgs returns the configuration that flags of xpyd serve make. What depends on the pools is
// checked when they are known.
func FromArgs(args []string) (Config, error) {
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	AddFlags(flags)
	if err := flags.Parse(args); err != nil {
		return Config{}, UsageError{Err: fmt.Errorf("flags of the proxy: %w", err)}
	}
	if flags.NArg() > 0 {
		return Config{}, UsageError{Err: fmt.Errorf("flags of the proxy: %q is none", flags.Arg(0))}
	}
	cfg, err := readConfig(openFile, flags, nil, 0, "")
	if err != nil {
		return cfg, UsageError{Err: fmt.Errorf("flags of the proxy: %w", err)}
	}
	some := cfg
	some.Router.Prefill, some.Router.Decode = router.MustEntries("http://127.0.0.1:1"), router.MustEntries("http://127.0.0.1:2")
	if err := some.validate(); err != nil {
		return cfg, UsageError{Err: fmt.Errorf("flags of the proxy: %w", err)}
	}
	return cfg, nil
}
