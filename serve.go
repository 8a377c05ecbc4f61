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
	"reflect"
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
			load := func() (config, error) { return loadConfig(cmd.Flags(), os.Environ()) }
			cfg, err := load()
			if err != nil {
				return err
			}
			return serve(cmd.Context(), cfg, load, os.Stderr)
		},
	}
	addConfigFlags(cmd.Flags())
	return cmd
}

// serve runs the proxy until ctx ends, then drains it. On HUP it takes new pools from
// load.
func serve(ctx context.Context, cfg config, load func() (config, error), logs io.Writer) error {
	log, err := newLogger(cfg.Log, logs)
	if err != nil {
		return err
	}
	p, err := startProxy(cfg, log)
	if err != nil {
		return err
	}
	log.Info().Str("version", readBuildInfo().Version).Str("listen", p.addr).Str("admin", p.adminAddr).
		Strs("prefill", cfg.Router.Prefill).Strs("decode", cfg.Router.Decode).Msg("serving")
	if len(cfg.Router.Prefill) == 0 {
		log.Warn().Msg("no prefill backends: balancing over the decode pool without disaggregation")
	}
	notify("READY=1\nSTATUS=" + fmt.Sprintf("%d prefill, %d decode", len(cfg.Router.Prefill), len(cfg.Router.Decode)))
	if err := p.await(ctx, cfg, load, log); err != nil {
		return errors.Join(err, p.shutdown())
	}
	notify("STOPPING=1")
	log.Info().Dur("drain_ms", cfg.Timeouts.Drain).Msg("draining; a second signal ends at once")
	p.server.Drain()
	again, stop := signal.NotifyContext(context.WithoutCancel(ctx), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	select {
	case <-time.After(cfg.Timeouts.DrainDelay):
	case <-again.Done():
		return errors.New("ended by a second signal")
	}
	done := make(chan error, 1)
	go func() { done <- p.shutdown() }()
	select {
	case err := <-done:
		log.Info().Err(err).Msg("stopped")
		return err
	case <-again.Done():
		return errors.New("ended by a second signal")
	}
}

// await returns when ctx ends, or with the error of a listener that gave up.
func (p *running) await(ctx context.Context, cfg config, load func() (config, error), log zerolog.Logger) error {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-p.failed:
			return err
		case <-hup:
			next, err := p.reload(cfg, load)
			if err != nil {
				log.Error().Err(err).Msg("reload failed; the configuration before it stays in force")
				continue
			}
			cfg = next
		}
	}
}

// reload puts the pools and their health rules of a new configuration in force, all or
// nothing. It returns the configuration that holds from now on.
func (p *running) reload(old config, load func() (config, error)) (config, error) {
	next, err := load()
	if err == nil {
		same := next
		same.Router = old.Router
		if !reflect.DeepEqual(same, old) {
			err = errors.New("a reload changes the pools, policies, caps, queue and health rules only; restart for the other keys")
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

// running is a proxy with both of its ports open.
type running struct {
	server    *proxy.Server
	admin     *http.Server
	addr      string
	adminAddr string
	failed    chan error // a listener gave up
}

// startProxy opens the ports and serves in the background until shutdown.
func startProxy(cfg config, log zerolog.Logger) (*running, error) {
	rt, err := router.New(cfg.Router, cfg.DecodeOnly.MaxShare, time.Now)
	if err != nil {
		return nil, usageError{err}
	}
	ln, err := proxy.Listen(cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("%w (flag --listen, XPYD_LISTEN)", err)
	}
	p := &running{addr: ln.Addr().String(), failed: make(chan error, 2)}
	var adminLn net.Listener
	if cfg.Admin != "" {
		if adminLn, err = net.Listen("tcp", cfg.Admin); err != nil {
			_ = ln.Close()
			return nil, fmt.Errorf("admin: %w (flag --admin, XPYD_ADMIN)", err)
		}
		p.adminAddr = adminLn.Addr().String()
	}
	if p.server, err = proxy.New(cfg.Config, rt, nil, readBuildInfo().Version, log); err != nil {
		_ = ln.Close()
		if adminLn != nil {
			_ = adminLn.Close()
		}
		return nil, err
	}
	go func() {
		if err := p.server.Serve(ln); err != nil {
			p.failed <- fmt.Errorf("serve %s: %w", p.addr, err)
		}
	}()
	if adminLn != nil {
		p.admin = p.server.Admin()
		go func() {
			if err := p.admin.Serve(adminLn); !errors.Is(err, http.ErrServerClosed) {
				p.failed <- fmt.Errorf("serve admin %s: %w", p.adminAddr, err)
			}
		}()
	}
	return p, nil
}

// shutdown drains the data port; the admin port answers until the end.
func (p *running) shutdown() error {
	err := p.server.Shutdown()
	if p.admin != nil {
		err = errors.Join(err, p.admin.Close())
	}
	return err
}

func newLogger(cfg logConfig, w io.Writer) (zerolog.Logger, error) {
	level, err := zerolog.ParseLevel(cfg.Level)
	if err != nil {
		return zerolog.Nop(), usageError{fmt.Errorf("config: log.level: %w", err)}
	}
	if cfg.Format == "console" {
		w = zerolog.ConsoleWriter{Out: w, TimeFormat: time.RFC3339, NoColor: !isTerminal(w)}
	}
	return zerolog.New(w).Level(level).With().Timestamp().Logger(), nil
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// notify tells systemd (Type=notify) about the state; without systemd it does nothing.
func notify(state string) {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return
	}
	if strings.HasPrefix(path, "@") {
		path = "\x00" + path[1:]
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return
	}
	_, _ = conn.Write([]byte(state))
	_ = conn.Close()
}
