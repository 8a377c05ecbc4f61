package config

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"xpyd/internal/nearest"
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
	near := ""
	if name := meant(cmd.Flags(), unknown.GetSpecifiedName()); name != "" {
		near = "the nearest is --" + name + ", "
	}
	return UsageError{Err: fmt.Errorf("%w; %ssee %s --help", err, near, cmd.CommandPath())}
}

// otherNames has what other servers and proxies call a flag of ours, where no spelling leads there.
var otherNames = map[string]string{
	"port": "listen", "host": "listen", "bind": "listen", "bind-address": "listen", "addr": "listen", "address": "listen", "http-port": "listen",
	"prefill-url": "prefill", "prefill-urls": "prefill", "prefiller-host": "prefill", "prefiller-hosts": "prefill", "prefill-servers": "prefill",
	"decode-url": "decode", "decode-urls": "decode", "decoder-host": "decode", "decoder-hosts": "decode", "decode-servers": "decode",
	"worker-urls": "decode", "workers": "decode", "static-backends": "decode", "backends": "decode", "upstream": "decode",
	"policy": "decode-policy", "routing-logic": "decode-policy", "session-key": "affinity-headers",
	"kv-connector": "connector", "prometheus-port": "admin", "prometheus-host": "admin", "metrics-port": "admin", "admin-port": "admin",
	"timeout": "timeouts-request", "request-timeout": "timeouts-request", "request-timeout-secs": "timeouts-request",
	"max-payload-size": "limits-body", "max-body-size": "limits-body", "max-concurrent-requests": "limits-client-in-flight",
	"queue-size": "queue-length", "queue-timeout-secs": "queue-wait", "shutdown-grace-period-secs": "timeouts-drain", "grace-period": "timeouts-drain",
	"verbose": "log-level", "debug": "log-level", "verbosity": "log-level", "log-json": "log-format",
}

// meant returns the flag of the set that name is most likely meant for, or "".
func meant(flags *pflag.FlagSet, name string) string {
	if known := flags.Lookup(otherNames[name]); known != nil {
		return known.Name
	}
	var names []string
	flags.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return nearest.Name(name, names)
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
