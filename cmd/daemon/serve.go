// Package daemon is the life of the process that serves: its ports, its signals, the hand-over to a
// successor, its messages to systemd, and the log. It takes its configuration from a Loader and knows
// no flags. Start runs a proxy without any of that, inside another program.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"xpyd/admin"
	"xpyd/cmd/config"
	"xpyd/engines/journal"
	"xpyd/router"
)

// Loader reads the configuration. It may take long, but must return when ctx ends.
type Loader func(ctx context.Context) (config.Config, error)

// Rekeyer returns the configuration with the files of client keys read again.
type Rekeyer func(ctx context.Context, c config.Config) (config.Config, error)

// Options are what Serve runs with.
type Options struct {
	Load    Loader       // at the start
	Reload  Loader       // on each HUP
	Rekey   Rekeyer      // every keysEvery
	From    *Inheritance // closed by the caller of Inherit
	Logs    io.Writer    // takes the lines of the log
	Version string       // of this build, for metrics and the log
}

// Serve runs the proxy with the configuration of o.Load until ctx ends or another process has taken
// over, and then drains it. On HUP it takes new pools from o.Reload. On USR2 it starts its successor.
func Serve(ctx context.Context, o Options) error {
	// Both signals are caught from the start, while the configuration is read, to the end, while the
	// process drains. Otherwise they would kill it.
	hup, usr2 := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	signal.Notify(usr2, syscall.SIGUSR2)
	defer signal.Stop(hup)
	defer signal.Stop(usr2)
	// If the reader of the log has gone, a write fails, but the process must not end.
	signal.Ignore(syscall.SIGPIPE)
	cfg, err := o.Load(ctx)
	if err != nil {
		return err
	}
	log, lines, level, err := openLog(cfg.Log, o.Logs)
	if err != nil {
		return err
	}
	defer lines.flush()
	exe, err := Executable()
	if err != nil {
		return err
	}
	limitMemory(cfg)
	asks := make(chan ask)
	heard, deaf := context.WithCancel(ctx)
	defer deaf()
	p, err := openProxy(cfg, o.Version, o.From, admin.Control{Reload: asker(heard, asks), Level: level.get, SetLevel: level.set}, log)
	if err != nil {
		return err
	}
	p.server.WatchLog(lines.dropped.Load)
	life, ended := context.WithCancel(context.Background()) // to the end of the drain
	defer ended()
	go newRest(p.server).run(life)
	if err := o.From.announce(ctx, p.server.Ready, ReadyTime, p.state(), log); err != nil {
		return errors.Join(err, p.close())
	}
	p.accept()
	logServing(log, o.Version, p, cfg.MemoryLimit())
	l := lifetime{
		Proxy: p, cfg: cfg, load: o.Reload, rekey: o.Rekey, look: time.Tick(keysEvery), exe: exe, log: log, level: level,
		hup: hup, usr2: usr2, asks: asks,
	}
	return l.run(ctx, deaf)
}

// run serves from the first client to the last. It calls deaf when nobody may ask for a reload any more.
func (l *lifetime) run(ctx context.Context, deaf func()) error {
	l.endSigns = startWatchdog(watchdogTime(), l.server.Turns, l.log)
	defer l.endSigns()
	l.show(l.cfg, nil)
	replaced, err := l.await(ctx)
	deaf()
	if err != nil {
		return errors.Join(err, l.Shutdown())
	}
	return l.end(ctx, replaced)
}

// state is what systemd is told of a process that is ready.
func (p *Proxy) state() string {
	pools := p.members.Config()
	without := ""
	if n := len(pools.Engines); n > 0 {
		without = fmt.Sprintf(", %d without a role", n)
	}
	return fmt.Sprintf("READY=1\nSTATUS=%d prefill, %d decode%s", len(pools.Prefill), len(pools.Decode), without)
}

func logServing(log zerolog.Logger, version string, p *Proxy, memory int64) {
	pools := p.members.Config()
	e := log.Info().Str("version", version).Int("pid", os.Getpid()).Str("listen", p.Addr).Str("admin", p.AdminAddr).
		Strs("prefill", router.Texts(pools.Prefill)).Strs("decode", router.Texts(pools.Decode))
	if len(pools.Engines) > 0 {
		e.Strs("engines", router.Texts(pools.Engines))
	}
	if len(pools.Encode) > 0 {
		e.Strs("encode", router.Texts(pools.Encode))
	}
	if memory > 0 {
		e.Int64("memory_limit", memory)
	}
	p.server.View().Journal.Tell(e, journal.Event{Kind: journal.Started, Text: "serving", Change: "version " + version})
	if len(pools.Pooled(router.Prefill)) == 0 {
		log.Warn().Msg("no prefill backends: balancing over the decode pool without disaggregation")
	}
}
