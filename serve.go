package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"xpyd/proxy"
	"xpyd/router"
)

func newServeCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the OpenAI API over a prefill and a decode pool",
		Example: "  xpyd serve --prefill http://p1:8100,http://p2:8100 --decode http://d1:8200\n" +
			"  xpyd serve --config /etc/xpyd/config.yaml",
		RunE: func(cmd *cobra.Command, _ []string) error {
			from, err := inherit() // before the variables are read as configuration
			if err != nil {
				return err
			}
			defer from.close()
			loader := func(again bool) loader {
				files := newReadFiles(again)
				return func(ctx context.Context) (config, error) { return loadConfig(ctx, files, cmd.Flags(), os.Environ()) }
			}
			return serve(cmd.Context(), loader(from.report != nil), loader(true), from, os.Stderr)
		},
	}
	addConfigFlags(cmd.Flags())
	completeValues(cmd)
	return cmd
}

// loader reads the configuration. It may take its time, but no longer than ctx.
type loader func(ctx context.Context) (config, error)

// serve runs the proxy as load says until ctx ends or another process has taken over, then
// drains it. On HUP it takes new pools from reload, on USR2 it starts its successor.
func serve(ctx context.Context, load, reload loader, from *inheritance, logs io.Writer) error {
	// Caught from the begin, while the configuration is read, until the end, while the
	// process drains: both would kill it.
	hup, usr2 := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	signal.Notify(usr2, syscall.SIGUSR2)
	defer signal.Stop(hup)
	defer signal.Stop(usr2)
	// A reader of the log that has gone is an error of a write, no end of the process.
	signal.Ignore(syscall.SIGPIPE)
	cfg, err := load(ctx)
	if err != nil {
		return err
	}
	log, lines, err := newLogger(cfg.Log, logs)
	if err != nil {
		return err
	}
	defer lines.flush()
	exe, err := executable()
	if err != nil {
		return err
	}
	p, err := openProxy(cfg, from, log)
	if err != nil {
		return err
	}
	p.server.WatchLog(lines.dropped.Load)
	state := fmt.Sprintf("READY=1\nSTATUS=%d prefill, %d decode", len(cfg.Router.Prefill), len(cfg.Router.Decode))
	if err := from.announce(ctx, p.server.Ready, readyTime, state, log); err != nil {
		return errors.Join(err, p.close())
	}
	p.accept()
	log.Info().Str("version", readBuildInfo().Version).Int("pid", os.Getpid()).Str("listen", p.addr).Str("admin", p.adminAddr).
		Strs("prefill", cfg.Router.Prefill).Strs("decode", cfg.Router.Decode).Msg("serving")
	if len(cfg.Router.Prefill) == 0 {
		log.Warn().Msg("no prefill backends: balancing over the decode pool without disaggregation")
	}
	l := lifetime{running: p, cfg: cfg, load: reload, exe: exe, log: log, hup: hup, usr2: usr2}
	l.warn(warnings(cfg), nil)
	replaced, err := l.await(ctx)
	if err != nil {
		return errors.Join(err, p.shutdown())
	}
	return l.end(ctx, replaced)
}

// reload puts the pools and their health rules of a new configuration in force, all or
// nothing. It returns the configuration that holds from now on.
func (p *running) reload(old config, load func() (config, error)) (config, error) {
	next, err := load()
	if err == nil {
		same := next
		same.Router = old.Router
		if changed := changedKeys(same, old); len(changed) > 0 {
			err = fmt.Errorf("%s changed: a reload changes the pools, policies, affinity, pd, caps, queue, health and routing rules only; restart for the other keys, with USR2 and no loss", strings.Join(changed, ", "))
		}
	}
	if err != nil {
		p.server.ReloadFailed()
		return old, err
	}
	if err := p.server.Reload(next.Router); err != nil {
		return old, err
	}
	return next, nil
}

// running is a proxy with its ports open.
type running struct {
	server    *proxy.Server
	admin     *http.Server // nil without an admin port
	ports     []port
	addr      string
	adminAddr string
	failed    chan error // a listener gave up
}

// startProxy opens the ports and serves in the background until shutdown.
func startProxy(cfg config, log zerolog.Logger) (*running, error) {
	p, err := openProxy(cfg, &inheritance{}, log)
	if err == nil {
		p.accept()
	}
	return p, err
}

// openProxy starts everything but the accepting of clients, who queue at the ports. Its
// end is close before accept, shutdown after it.
func openProxy(cfg config, from *inheritance, log zerolog.Logger) (*running, error) {
	rt, err := router.New(cfg.Router, cfg.DecodeOnly.MaxShare, time.Now)
	if err != nil {
		return nil, usageError{err}
	}
	p := &running{failed: make(chan error, 2)}
	if p.ports, err = from.openPorts(cfg); err != nil {
		return nil, err
	}
	p.addr = p.ports[0].Addr().String()
	if p.server, err = proxy.New(cfg.Config, rt, nil, readBuildInfo().Version, log); err != nil {
		return nil, errors.Join(err, p.closePorts())
	}
	if len(p.ports) > 1 {
		p.adminAddr = p.ports[1].Addr().String()
		p.admin = p.server.Admin()
	}
	return p, nil
}

// accept serves both ports in the background.
func (p *running) accept() {
	go func() {
		if err := p.server.Serve(p.ports[0].Listener); err != nil {
			p.failed <- fmt.Errorf("serve %s: %w", p.addr, err)
		}
	}()
	if p.admin == nil {
		return
	}
	go func() {
		err := p.admin.Serve(p.ports[1].Listener)
		if !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) { // shutdown, retire
			p.failed <- fmt.Errorf("serve admin %s: %w", p.adminAddr, err)
		}
	}()
}

// retire leaves the ports to the process that has taken over, and returns when no
// client is left, at the latest when ctx ends or the drain time is over.
func (p *running) retire(ctx context.Context) error {
	if p.admin != nil {
		_ = p.ports[1].Close()
		p.admin.SetKeepAlivesEnabled(false)
	}
	return p.server.Retire(ctx)
}

// shutdown drains the data port; the admin port answers until the end.
func (p *running) shutdown() error {
	err := p.server.Shutdown()
	if p.admin == nil {
		return err
	}
	// After retire its listener is closed, which Serve may not have noticed yet.
	if adminErr := p.admin.Close(); !errors.Is(adminErr, net.ErrClosed) {
		err = errors.Join(err, adminErr)
	}
	return err
}

// close ends a proxy that has accepted nothing.
func (p *running) close() error { return errors.Join(p.server.Shutdown(), p.closePorts()) }

func (p *running) closePorts() error {
	var err error
	for _, port := range p.ports {
		err = errors.Join(err, port.Close())
	}
	return err
}

// newLogger makes the log. Call its flush before the process ends.
func newLogger(cfg logConfig, w io.Writer) (zerolog.Logger, *logBuffer, error) {
	level, err := zerolog.ParseLevel(cfg.Level)
	if err != nil {
		return zerolog.Nop(), nil, usageError{fmt.Errorf("config: log.level: %w", err)}
	}
	console := cfg.Format == "console"
	after := cfg.Flush
	if console {
		after = 0 // somebody may be watching
	}
	lines := newLogBuffer(w, after, console)
	var out io.Writer = lines
	if console {
		out = consoleWriter(lines, !isTerminal(w))
	}
	return zerolog.New(out).Level(level).With().Timestamp().Logger(), lines, nil
}

// consoleWriter writes lines for people.
func consoleWriter(w io.Writer, plain bool) io.Writer {
	return zerolog.ConsoleWriter{Out: w, TimeFormat: time.RFC3339, NoColor: plain}
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
