// Package config is what an operator can set: the keys with their defaults, their three names
// (file, flag, variable), what their values may be, and what is odd about them together.
package config

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/spf13/viper"

	"xpyd/proxy"
	"xpyd/router"
)

// EnvPrefix starts the name of every variable that xpyd reads.
const EnvPrefix = "XPYD_"

// Config is all that an operator can set. Each leaf is one key of the file, one flag
// and one environment variable; the three names are derived from the tags (see key).
type Config struct {
	Router       router.Config `mapstructure:",squash"`
	proxy.Config `mapstructure:",squash"`
	Log          Log `mapstructure:"log"`

	// noticed is what was questionable in the sources themselves, one line each: variables
	// that look like ours and name no key, a file with keys that others may read.
	noticed []string `mapstructure:"-"`
}

// Log is about the lines on standard error.
type Log struct {
	// Level is debug, info, warn or error.
	Level string `mapstructure:"level"`
	// Format is json (one object a line) or console (for people).
	Format string `mapstructure:"format"`
	// Flush is how long a json line below warn may wait to be written together with others.
	Flush time.Duration `mapstructure:"flush"`
}

// Default is the configuration that nobody has set anything of. It lacks the pools.
func Default() Config {
	return Config{
		Config: proxy.DefaultConfig(),
		Router: router.DefaultConfig(),
		Log:    Log{Level: "info", Format: "json", Flush: 100 * time.Millisecond},
	}
}

// UsageError is a wrong flag, key, URL or file: main prints its one line and exits 2.
type UsageError struct{ Err error }

func (e UsageError) Error() string { return e.Err.Error() }
func (e UsageError) Unwrap() error { return e.Err }

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

// FlagError makes a UsageError of what is wrong with a command's flags; one that is
// unknown gets the nearest known one.
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

// opener returns a file of the configuration.
type opener func(path string) readFile

// Load reads the configuration: flags over environ (the form of os.Environ)
// over the file of --config or XPYD_CONFIG over the defaults. It returns it validated,
// the key files read into APIKeys and BackendAPIKey. Every error is one line that names
// the field, the value and the fix: a UsageError, but where a file was not read in time or
// before ctx ended.
func Load(ctx context.Context, files *Files, flags *pflag.FlagSet, environ []string) (Config, error) {
	open := func(path string) readFile { return files.read(ctx, path) }
	c, err := readConfig(open, flags, environ)
	if err == nil {
		err = c.validate()
	}
	if err == nil {
		err = c.readKeyFiles(open, lookupEnv(environ, "CREDENTIALS_DIRECTORY"))
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

func readConfig(open opener, flags *pflag.FlagSet, environ []string) (Config, error) {
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
	file, mode, err := readConfigFile(open, keys, path)
	if err != nil {
		return c, err
	}
	c.noticed = append(c.noticed, openSecrets(keys, file, path, openTo(path, mode, lookupEnv(environ, "CREDENTIALS_DIRECTORY")))...)
	given := map[string]bool{}
	for _, k := range keys {
		raw, ok := k.lookup(flags, environ, file)
		if !ok {
			continue
		}
		if err := k.set(&c, raw); err != nil {
			return c, err
		}
		given[k.path] = true
	}
	if !given["kv.lease_margin"] {
		// A sixth is the share of the default; a short lease set alone keeps it.
		c.KV.LeaseMargin = min(c.KV.LeaseMargin, c.KV.Lease/6)
	}
	return c, nil
}

// readConfigFile returns the file's values by key path, and its mode; a section without a
// value ("timeouts:") counts as absent.
func readConfigFile(open opener, keys []key, path string) (map[string]any, fs.FileMode, error) {
	if path == "" {
		return nil, 0, nil
	}
	file := open(path)
	if file.err != nil {
		return nil, 0, fmt.Errorf("%s: %w", path, file.err)
	}
	v := viper.New()
	v.SetConfigType("yaml")
	if ext := filepath.Ext(path); slices.Contains([]string{".toml", ".json"}, ext) {
		v.SetConfigType(ext[1:])
	}
	if err := v.ReadConfig(bytes.NewReader(file.text)); err != nil {
		return nil, 0, fmt.Errorf("%s: %w", path, fileError(err))
	}
	values := map[string]any{}
	for _, p := range slices.Sorted(slices.Values(v.AllKeys())) {
		val := v.Get(p)
		known := slices.ContainsFunc(keys, func(k key) bool { return k.path == p })
		member := firstMember(keys, p)
		switch {
		case known && val != nil:
			values[p] = val
		case val == nil && (known || member != ""):
		case member != "":
			return nil, 0, fmt.Errorf("%s: %s holds one value and must hold keys, such as %s", path, p, member)
		default:
			return nil, 0, fmt.Errorf("%s: %s is no known key; %s", path, p, nearestKey(keys, p))
		}
	}
	return values, file.mode, nil
}

// firstMember is the first key of a section; "" when there is no such section.
func firstMember(keys []key, section string) string {
	for _, k := range keys {
		if strings.HasPrefix(k.path, section+".") {
			return k.path
		}
	}
	return ""
}

// nearestKey hints at the key that path was meant for.
func nearestKey(keys []key, path string) string {
	var paths []string
	for _, k := range keys {
		paths = append(paths, k.path)
	}
	return hint("", nearest(path, paths))
}

// hint says what an unknown name was meant for, if that can be told.
func hint(prefix, near string) string {
	if near == "" {
		return "xpyd serve --help lists all"
	}
	return "the nearest is " + prefix + near
}

// fileError shortens what the readers say of a file to one line without its path.
func fileError(err error) error {
	var pe *os.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	text := strings.TrimPrefix(err.Error(), "While parsing config: ") // viper's
	return errors.New(strings.Join(strings.Fields(text), " "))
}

// serviceHost matches the variable that Kubernetes puts into every container of a
// namespace for each Service in it; one that is called xpyd collides with our prefix.
var serviceHost = regexp.MustCompile(`^(XPYD(?:_[A-Z0-9_]+)?)_SERVICE_HOST$`)

// strangeVariables are the XPYD_ variables that name no key. A misspelt one is a setting
// that silently does nothing; but others may have put it there, as images do with
// XPYD_VERSION, so it is worth a warning and no more. An error is one that was meant to
// ask clients for their keys: without it the door would stand open.
func strangeVariables(keys []key, environ []string) (found []string, err error) {
	known := map[string]bool{EnvPrefix + "CONFIG": true}
	for _, k := range keys {
		known[k.env()] = true
	}
	var services []string
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		if m := serviceHost.FindStringSubmatch(name); m != nil {
			services = append(services, m[1])
		}
	}
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		short, ours := strings.CutPrefix(name, EnvPrefix)
		if !ours || known[name] || ofService(services, name) {
			continue
		}
		near := nearest(short, shortNames(known))
		if strings.Contains(near, "API_KEY") && distance(short, near) <= 2 {
			return nil, fmt.Errorf("the variable %s names no known key; %s", name, hint(EnvPrefix, near))
		}
		found = append(found, fmt.Sprintf("the variable %s names no known key and does nothing; %s", name, hint(EnvPrefix, near)))
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}

// shortNames are the names of variables without the prefix that all have.
func shortNames(known map[string]bool) (names []string) {
	for name := range known {
		names = append(names, strings.TrimPrefix(name, EnvPrefix))
	}
	return names
}

// ofService: NAME_SERVICE_HOST, NAME_SERVICE_PORT…, NAME_PORT… of a Kubernetes Service.
func ofService(services []string, name string) bool {
	return slices.ContainsFunc(services, func(s string) bool {
		rest, ok := strings.CutPrefix(name, s)
		return ok && (strings.HasPrefix(rest, "_SERVICE_") || rest == "_PORT" || strings.HasPrefix(rest, "_PORT_"))
	})
}

func lookupEnv(environ []string, name string) string {
	v, _ := findEnv(environ, name)
	return v
}

func findEnv(environ []string, name string) (string, bool) {
	for _, kv := range slices.Backward(environ) {
		if n, v, ok := strings.Cut(kv, "="); ok && n == name {
			return v, true
		}
	}
	return "", false
}
