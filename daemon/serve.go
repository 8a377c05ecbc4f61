// Package daemon is the life of the process that serves: its ports, its signals, the hand-over
// to a successor, what systemd hears of it, and the log. It takes its configuration from a
// Loader and knows no flags. Start runs a proxy without any of that, inside another program.
package daemon

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

	"xpyd/config"
	"xpyd/proxy"
	"xpyd/router"
)

// Loader reads the configuration. It may take its time, but no longer than ctx.
type Loader func(ctx context.Context) (config.Config, error)

// Options are what Serve runs with.
type Options struct {
	Load    Loader       // at the start
	Reload  Loader       // on each HUP
	From    *Inheritance // closed by whoever called Inherit
	Logs    io.Writer    // takes the lines of the log
	Version string       // of this build, for metrics and the log
}

// Serve runs the proxy as o.Load says until ctx ends or another process has taken over, then
// drains it. On HUP it takes new pools from o.Reload, on USR2 it starts its successor.
func Serve(ctx context.Context, o Options) error {
	// Caught from the begin, while the configuration is read, until the end, while the
	// process drains: both would kill it.
	hup, usr2 := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	signal.Notify(usr2, syscall.SIGUSR2)
	defer signal.Stop(hup)
	defer signal.Stop(usr2)
	// A reader of the log that has gone is an error of a write, no end of the process.
	signal.Ignore(syscall.SIGPIPE)
	cfg, err := o.Load(ctx)
	if err != nil {
		return err
	}
	log, lines, err := newLogger(cfg.Log, o.Logs)
	if err != nil {
		return err
	}
	defer lines.flush()
	exe, err := Executable()
	if err != nil {
		return err
	}
	p, err := openProxy(cfg, o.Version, o.From, log)
	if err != nil {
		return err
	}
	p.server.WatchLog(lines.dropped.Load)
	state := fmt.Sprintf("READY=1\nSTATUS=%d prefill, %d decode", len(cfg.Router.Prefill), len(cfg.Router.Decode))
	if err := o.From.announce(ctx, p.server.Ready, ReadyTime, state, log); err != nil {
		return errors.Join(err, p.close())
	}
	p.accept()
	log.Info().Str("version", o.Version).Int("pid", os.Getpid()).Str("listen", p.Addr).Str("admin", p.AdminAddr).
		Strs("prefill", cfg.Router.Prefill).Strs("decode", cfg.Router.Decode).Msg("serving")
	if len(cfg.Router.Prefill) == 0 {
		log.Warn().Msg("no prefill backends: balancing over the decode pool without disaggregation")
	}
	l := lifetime{Proxy: p, cfg: cfg, load: o.Reload, exe: exe, log: log, hup: hup, usr2: usr2}
	l.warn(config.Warnings(cfg), nil)
	replaced, err := l.await(ctx)
	if err != nil {
		return errors.Join(err, p.Shutdown())
	}
	return l.end(ctx, replaced)
}

// reload puts the pools and their health rules of a new configuration in force, all or
// nothing. It returns the configuration that holds from now on.
func (p *Proxy) reload(old config.Config, load func() (config.Config, error)) (config.Config, error) {
	next, err := load()
	if err == nil {
		same := next
		same.Router = old.Router
		if changed := config.ChangedKeys(same, old); len(changed) > 0 {
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

// Proxy is a proxy with its ports open.
type Proxy struct {
	Addr      string // of the data port, as it is open
	AdminAddr string // "" without an admin port

	server *proxy.Server
	admin  *http.Server // nil without an admin port
	ports  []port
	failed chan error
}

// Failed tells of a listener that gave up.
func (p *Proxy) Failed() <-chan error { return p.failed }

// Start opens the ports of cfg and serves in the background until Shutdown. version is that of
// this build.
func Start(cfg config.Config, version string, log zerolog.Logger) (*Proxy, error) {
	p, err := openProxy(cfg, version, &Inheritance{}, log)
	if err == nil {
		p.accept()
	}
	return p, err
}

// openProxy starts everything but the accepting of clients, who queue at the ports. Its
// end is close before accept, Shutdown after it.
func openProxy(cfg config.Config, version string, from *Inheritance, log zerolog.Logger) (*Proxy, error) {
	rt, err := router.New(cfg.Router, cfg.DecodeOnly.MaxShare, time.Now)
	if err != nil {
		return nil, config.UsageError{Err: err}
	}
	p := &Proxy{failed: make(chan error, 2)}
	if p.ports, err = from.openPorts(cfg); err != nil {
		return nil, err
	}
	p.Addr = p.ports[0].Addr().String()
	if p.server, err = proxy.New(cfg.Config, rt, nil, version, log); err != nil {
		return nil, errors.Join(err, p.closePorts())
	}
	if len(p.ports) > 1 {
		p.AdminAddr = p.ports[1].Addr().String()
		p.admin = p.server.Admin()
	}
	return p, nil
}

// accept serves both ports in the background.
func (p *Proxy) accept() {
	go func() {
		if err := p.server.Serve(p.ports[0].Listener); err != nil {
			p.failed <- fmt.Errorf("serve %s: %w", p.Addr, err)
		}
	}()
	if p.admin == nil {
		return
	}
	go func() {
		err := p.admin.Serve(p.ports[1].Listener)
		if !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) { // Shutdown, retire
			p.failed <- fmt.Errorf("serve admin %s: %w", p.AdminAddr, err)
		}
	}()
}

// retire leaves the ports to the process that has taken over, and returns when no
// client is left, at the latest when ctx ends or the drain time is over.
func (p *Proxy) retire(ctx context.Context) error {
	if p.admin != nil {
		_ = p.ports[1].Close()
		p.admin.SetKeepAlivesEnabled(false)
	}
	return p.server.Retire(ctx)
}

// Shutdown drains the data port; the admin port answers until the end.
func (p *Proxy) Shutdown() error {
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
func (p *Proxy) close() error { return errors.Join(p.server.Shutdown(), p.closePorts()) }

func (p *Proxy) closePorts() error {
	var err error
	for _, port := range p.ports {
		err = errors.Join(err, port.Close())
	}
	return err
}

// newLogger makes the log. Call its flush before the process ends.
func newLogger(cfg config.Log, w io.Writer) (zerolog.Logger, *logBuffer, error) {
	level, err := zerolog.ParseLevel(cfg.Level)
	if err != nil {
		return zerolog.Nop(), nil, config.UsageError{Err: fmt.Errorf("config: log.level: %w", err)}
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
