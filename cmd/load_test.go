package cmd

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"xpyd/cmd/config"
)

// load reads the configuration as a command would, after parsing args.
func load(t *testing.T, args, environ []string) (config.Config, error) {
	t.Helper()
	fs := pflag.NewFlagSet("xpyd", pflag.ContinueOnError)
	config.AddFlags(fs)
	if err := fs.Parse(args); err != nil {
		t.Fatalf("parse %q: %v", args, err)
	}
	return config.Load(t.Context(), config.NewFiles(false), fs, environ)
}

func writeFile(t *testing.T, name, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil { // the umask does not matter
		t.Fatal(err)
	}
	return path
}

var decodeFlag = []string{"--decode", "http://127.0.0.1:8200"}

// checkUsage wants exactly this one line, as a UsageError, without any secret.
func checkUsage(t *testing.T, err error, want string) {
	t.Helper()
	var usage config.UsageError
	switch {
	case err == nil:
		t.Fatalf("no error, want %s", want)
	case !errors.As(err, &usage):
		t.Errorf("%T is no UsageError", err)
	}
	if err.Error() != want {
		t.Errorf("got  %s\nwant %s", err, want)
	}
	if strings.ContainsAny(err.Error(), "\n\r") || strings.Contains(err.Error(), "sesame") {
		t.Errorf("%q must be one line without a secret", err)
	}
}
