package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"xpyd/cmd/config"
	"xpyd/cmd/daemon"
	"xpyd/router"
	"xpyd/tools/churn"
)

// xpydFlag adds the flag for the program that is measured.
func xpydFlag(f *pflag.FlagSet, path *string) {
	f.StringVar(path, "xpyd", "", "`path` of xpyd; none: here, above, or above this program, as make build leaves it")
}

// findXpyd returns the absolute path of the program. path is the flag's value, or "" if the flag
// was not given.
func findXpyd(path string) (string, error) {
	places := []string{path}
	if path == "" {
		places = []string{"xpyd", filepath.Join("..", "xpyd")}
		if self, err := os.Executable(); err == nil {
			places = append(places, filepath.Join(filepath.Dir(self), "..", "xpyd"))
		}
	}
	for _, p := range places {
		if info, err := os.Stat(p); err == nil && info.Mode().IsRegular() {
			return filepath.Abs(p)
		}
	}
	return "", config.UsageError{Err: fmt.Errorf("xpyd is none of %q: make build, or name it with --xpyd", places)}
}

// self returns this program, which also runs engines and relays.
func self() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find this program: %w", err)
	}
	return path, nil
}

// versionOf asks xpyd.
func versionOf(ctx context.Context, xpyd string) (string, error) {
	text, err := exec.CommandContext(ctx, xpyd, "version", "--json").Output()
	var build struct{ Version string }
	if err == nil {
		err = json.Unmarshal(text, &build)
	}
	if err != nil {
		return "", fmt.Errorf("ask %s for its version: %w", xpyd, err)
	}
	return build.Version, nil
}

// programs finds what a comparison runs: xpyd, its version, and this program.
func programs(ctx context.Context, given string) (xpyd, version, own string, err error) {
	if xpyd, err = findXpyd(given); err != nil {
		return "", "", "", err
	}
	version, err = versionOf(ctx, xpyd)
	own, errOwn := self()
	return xpyd, version, own, errors.Join(err, errOwn)
}

// proxyFlags returns what stands after "--".
func proxyFlags(cmd *cobra.Command, args []string) error {
	if at := cmd.ArgsLenAtDash(); at != 0 {
		return noArgs(cmd, args)
	}
	return nil
}

// serveCommand returns the command line of a proxy with flags of its own, which it checks.
func serveCommand(given string, args []string) ([]string, error) {
	if _, err := config.FromArgs(args); err != nil {
		return nil, err
	}
	xpyd, err := findXpyd(given)
	if err != nil {
		return nil, err
	}
	return append([]string{xpyd, "serve"}, args...), nil
}

// inProcess returns a function that starts a proxy of cfg in this process, in front of given pools.
func inProcess(cfg config.Config, roleless bool) func(prefill, decode []string) (churn.Proxy, error) {
	return func(prefill, decode []string) (churn.Proxy, error) {
		cfg.Listen, cfg.Admin = "127.0.0.1:0", "127.0.0.1:0"
		cfg.Router.Prefill, cfg.Router.Decode = router.MustEntries(prefill...), router.MustEntries(decode...)
		if roleless {
			cfg.Router.Engines = append(cfg.Router.Prefill, cfg.Router.Decode...)
			cfg.Router.Prefill, cfg.Router.Decode = nil, nil
		}
		cfg.Timeouts.Drain = 5 * time.Second
		p, err := daemon.Start(cfg, "tools", zerolog.Nop())
		if err != nil {
			return churn.Proxy{}, fmt.Errorf("start the proxy: %w", err)
		}
		return churn.Proxy{Addr: p.Addr, Admin: p.AdminAddr, Stop: p.Shutdown}, nil
	}
}
