package cmd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"xpyd/cmd/config"
	"xpyd/cmd/ctl"
	"xpyd/internal/files"
	"xpyd/netio/tlsconf"
)

// adminFlags say how to reach the admin port of a running process.
type adminFlags struct {
	urls      []string // more than one for status alone
	tokenFile string
	proc      string // "/proc"; tests have another
	tls       tlsconf.Client
}

// add gives cmd the flags, and all commands below it.
func (f *adminFlags) add(cmd *cobra.Command) {
	s := cmd.PersistentFlags()
	if f.proc == "" {
		f.proc = "/proc"
	}
	s.StringArrayVar(&f.urls, "admin", []string{"http://127.0.0.1:8081"}, "`URL` of the admin port (or XPYD_ADMIN; in a container, the port of its xpyd serve)")
	s.Lookup("admin").DefValue = `"` + f.urls[0] + `"` // help shows one URL, and no list
	s.StringVar(&f.tokenFile, "admin-token-file", "", "`file` whose first line is the token of the admin port (or XPYD_ADMIN_TOKEN_FILE, XPYD_ADMIN_TOKEN)")
	s.StringVar(&f.tls.CA, "admin-ca", "", "PEM `file` of the CAs of an https:// admin port, if not the system's")
	s.StringVar(&f.tls.Cert, "admin-cert", "", "PEM `file` of a certificate to show to the admin port")
	s.StringVar(&f.tls.Key, "admin-key", "", "PEM `file` of the private key of --admin-cert")
}

// client makes the client. The variables are those of serve, so that a command inside the container of
// serve finds it.
func (f *adminFlags) client(cmd *cobra.Command) (*ctl.Client, error) {
	if len(f.urls) > 1 {
		return nil, config.UsageError{Err: fmt.Errorf("--admin: %s asks one xpyd; only status takes several", cmd.Name())}
	}
	all, err := f.clients(cmd)
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// clients makes a client for each admin port. All have the same token.
func (f *adminFlags) clients(cmd *cobra.Command) (all []*ctl.Client, err error) {
	addrs, tokenFile, token := f.urls, f.tokenFile, ""
	if !cmd.Flags().Changed("admin") {
		addrs = []string{f.ofServe(cmd.Context(), os.Environ(), envOr("XPYD_ADMIN", addrs[0]))}
	}
	if !cmd.Flags().Changed("admin-token-file") {
		tokenFile, token = envOr("XPYD_ADMIN_TOKEN_FILE", ""), envOr("XPYD_ADMIN_TOKEN", "")
	}
	if token == "" {
		var err error
		if token, err = adminToken(tokenFile); err != nil {
			return nil, config.UsageError{Err: err}
		}
	}
	secured, err := f.secured()
	if err != nil {
		return nil, config.UsageError{Err: err}
	}
	for _, addr := range addrs {
		c, err := ctl.New(addr, token, secured)
		if err != nil {
			return nil, config.UsageError{Err: err}
		}
		all = append(all, c)
	}
	return all, nil
}

// ofServe returns where the serve of this container has its admin port, by its flags, its file and the variables. It
// returns otherwise where there is none, or where that cannot be told.
func (f *adminFlags) ofServe(ctx context.Context, environ []string, otherwise string) string {
	args, ok := serveArgsOf(filepath.Join(f.proc, "1", "cmdline"))
	if !ok && !slices.ContainsFunc(environ, func(v string) bool { return strings.HasPrefix(v, "XPYD_ADMIN=") }) {
		args, ok = f.onlyServe()
	}
	if !ok {
		return otherwise
	}
	serve := newServeCmd()
	if err := serve.ParseFlags(args); err != nil {
		return otherwise
	}
	files, err := filesOf(serve, serve.Flags().Args(), true)
	if err != nil {
		return otherwise
	}
	addr, secured, err := config.AdminPort(ctx, files, serve.Flags(), environ)
	if err != nil || addr == "" {
		return otherwise
	}
	if secured {
		return "https://" + addr
	}
	return addr
}

// onlyServe returns the arguments of the only serve that there is, which an init or a script has started: after a
// hand-over, for a while two have the same.
func (f *adminFlags) onlyServe() (args []string, ok bool) {
	lines, _ := filepath.Glob(filepath.Join(f.proc, "[0-9]*", "cmdline"))
	for _, line := range lines {
		other, is := serveArgsOf(line)
		if is && ok && !slices.Equal(args, other) {
			return nil, false
		}
		if is {
			args, ok = other, true
		}
	}
	return args, ok
}

// serveArgsOf returns what follows "xpyd serve" in a command line, before which an init may stand with its own arguments.
func serveArgsOf(file string) (args []string, ok bool) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, false
	}
	words := strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
	i := slices.Index(words, "serve")
	if i < 1 || filepath.Base(words[i-1]) != "xpyd" {
		return nil, false
	}
	return words[i+1:], true
}

// secured returns what an https:// admin port is talked to with.
func (f *adminFlags) secured() (*tls.Config, error) {
	conf, err := f.tls.Load(files.NewReader(false).Bytes)
	var fault *tlsconf.Fault
	if errors.As(err, &fault) {
		return nil, errors.New("--admin-" + strings.TrimPrefix(fault.Error(), "backend_tls."))
	}
	return conf, err
}

func envOr(name, otherwise string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return otherwise
}
