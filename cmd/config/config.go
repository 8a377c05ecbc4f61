// Package config is what an operator can set. It knows the keys with their defaults, their three
// names (file, flag, variable) and the values that they may have. It also warns of combinations that
// make no sense.
package config

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"xpyd/admin/members"
	"xpyd/proxy"
	"xpyd/router"
)

// Config is all that an operator can set. Each leaf is one key of the file, one flag and one
// environment variable. The three names are derived from the tags (see key).
type Config struct {
	Router       router.Config `mapstructure:",squash"`
	proxy.Config `mapstructure:",squash"`
	Members      members.Config `mapstructure:",squash"`
	Log          Log            `mapstructure:"log"`

	// noticed has a line for each thing that was questionable in the sources themselves. Examples are
	// a variable that looks like ours and names no key, and a file with keys that others may read.
	noticed []string `mapstructure:"-"`
	// givenKeys are the api_keys themselves, without those of files.
	givenKeys []string `mapstructure:"-"`
	// memory is the memory limit of the process, see MemoryLimit.
	memory int64 `mapstructure:"-"`
	// lowered has the keys that memory has lowered.
	lowered []lowered `mapstructure:"-"`
}

// Log configures the lines on standard error.
type Log struct {
	// Level is debug, info, warn or error.
	Level string `mapstructure:"level"`
	// Format is json (one object a line) or console (for people).
	Format string `mapstructure:"format"`
	// Flush is how long a json line below warn may wait to be written together with others.
	Flush time.Duration `mapstructure:"flush"`
}

// Default returns what holds where nothing is set. It has no pools.
func Default() Config {
	return Config{
		Config: proxy.DefaultConfig(),
		Router: router.DefaultConfig(),
		Log:    Log{Level: "info", Format: "json", Flush: 100 * time.Millisecond},
	}
}

// UsageError is a wrong flag, key, URL or file. main prints its one line and exits with 2.
type UsageError struct{ Err error }

func (e UsageError) Error() string { return e.Err.Error() }

func (e UsageError) Unwrap() error { return e.Err }

// Load reads the configuration and validates it. Flags win over environ (in the form of os.Environ),
// which wins over the file of --config or XPYD_CONFIG, which wins over the defaults. Load also reads
// the key files into APIKeys, Keys and BackendAPIKey. Every error is one line that names the field, the
// value and the fix. It is a UsageError, except where a file was not read in time or before ctx
// ended.
func Load(ctx context.Context, files *Files, flags *pflag.FlagSet, environ []string) (Config, error) {
	open := func(path string) readFile { return files.read(ctx, path) }
	c, err := readConfig(open, flags, environ, memoryLimit(files.root), "")
	if err == nil {
		c.nameConnectors()
		err = c.validate()
	}
	if err == nil {
		err = c.readKeyFiles(open, lookupEnv(environ, "CREDENTIALS_DIRECTORY"))
	}
	if err == nil {
		err = c.readTLSFiles(open, lookupEnv(environ, "CREDENTIALS_DIRECTORY"))
	}
	if err == nil {
		err = c.CheckAdmin(c.Admin)
	}
	if err == nil {
		return c, nil
	}
	err = fmt.Errorf("config: %w", err)
	var unread unreadError
	if errors.As(err, &unread) {
		return Config{}, err
	}
	return Config{}, UsageError{Err: err}
}

// AdminPort returns where a serve with these flags has its admin port, and whether it speaks TLS there. It
// reads no more than these keys, so that a key file that has gone is no obstacle, nor a backend that is written wrongly.
func AdminPort(ctx context.Context, files *Files, flags *pflag.FlagSet, environ []string) (addr string, secured bool, err error) {
	c, err := readConfig(func(path string) readFile { return files.read(ctx, path) }, flags, environ, 0, "admin")
	return c.Admin, c.AdminTLS.On(), err
}

// readConfig reads the keys whose paths begin with section.
func readConfig(open opener, flags *pflag.FlagSet, environ []string, memory int64, section string) (Config, error) {
	c := Default()
	keys := configKeys()
	var err error
	if c.noticed, err = strangeVariables(keys, environ); err != nil {
		return c, err
	}
	path := lookupEnv(environ, EnvPrefix+"CONFIG")
	if f := flags.Lookup("config"); f.Changed {
		path = f.Value.String()
	}
	values, file, err := readConfigFile(open, keys, path)
	if err != nil {
		return c, err
	}
	c.noticed = append(c.noticed, openSecrets(keys, values, path, openTo(path, file, lookupEnv(environ, "CREDENTIALS_DIRECTORY")))...)
	given := map[string]bool{}
	for _, k := range keys {
		raw, ok := k.lookup(flags, environ, values)
		if !ok || !strings.HasPrefix(k.path, section) {
			continue
		}
		if err := k.set(&c, raw); err != nil {
			return c, err
		}
		given[k.path] = true
	}
	if !given["kv.lease_margin"] {
		// The default margin is a sixth of the default lease. A shorter lease set alone keeps that ratio.
		c.KV.LeaseMargin = min(c.KV.LeaseMargin, c.KV.Lease/6)
	}
	c.fitMemory(memory, given)
	return c, nil
}
