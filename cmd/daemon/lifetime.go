package daemon

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"xpyd/cmd/config"
	"xpyd/engines/journal"
)

// lifetime is a process that serves, from its first client to its end.
type lifetime struct {
	*Proxy
	cfg  config.Config
	load Loader // reads the configuration for a reload
	// rekey reads the keys again. told is why they could not be used the last time.
	rekey Rekeyer
	told  string
	look  <-chan time.Time // when to do that
	exe   string           // what a successor runs
	hup   <-chan os.Signal
	usr2  <-chan os.Signal
	asks  <-chan ask // for reloads
	log   zerolog.Logger
	// missed: a reload was asked for while a successor was starting. The successor may have read the
	// configuration before.
	missed bool

	level    *logLevel
	endSigns func() // of life, which systemd gets
}

// keysEvery is how often the files of client keys are looked at.
const keysEvery = 10 * time.Second

// await serves until ctx ends, a listener gives up (an error), or a successor has taken over
// (replaced).
func (l *lifetime) await(ctx context.Context) (replaced bool, err error) {
	trial, cancel := context.WithCancel(ctx)
	defer cancel()
	var successor chan takeover // nil without a successor
	next, keys := rereading{load: l.load}, rereading{}
	for {
		select {
		case <-ctx.Done():
			if successor != nil {
				return l.settle(<-successor), nil
			}
			return false, nil
		case err := <-l.failed:
			if successor != nil {
				cancel()
				replaced = l.settle(<-successor)
			}
			return replaced, err
		case took := <-successor:
			if l.settle(took) {
				return true, nil
			}
			successor, l.missed = nil, false
		case <-l.hup:
			l.begin(trial, &next, ask{by: "signal HUP"}, successor != nil)
		case ask := <-l.asks:
			l.begin(trial, &next, ask, successor != nil)
		case read := <-next.result:
			next.end(trial, l.reload(read, next.askers()))
			keys = rereading{} // what is being read may be of files before
		case <-l.look:
			l.lookAtKeys(trial, &keys)
		case read := <-keys.result:
			l.replaceKeys(read)
			keys = rereading{}
		case <-l.usr2:
			if successor != nil {
				l.log.Warn().Msg("a successor is being started already; this USR2 does nothing")
				continue
			}
			successor = l.succeed(trial)
		}
	}
}

// begin begins a reload. starting says that a successor is being started.
func (l *lifetime) begin(ctx context.Context, next *rereading, by ask, starting bool) {
	l.missed = starting
	next.start(ctx, by)
}

// ask asks for a reload. result, which may be nil, has room for how it went.
type ask struct {
	by     string // who asks; empty: nobody
	result chan<- error
}

// rereading reads the configuration for a reload. The process hears signals meanwhile.
type rereading struct {
	load   Loader
	result chan reread // nil while no read is under way
	again  bool        // the configuration may have changed since it was opened
	// asked wait for the read under way, and later for the one after it.
	asked, later []ask
}

type reread struct {
	cfg config.Config
	err error
}

// start begins a read for an ask. If one is under way, another follows it.
func (r *rereading) start(ctx context.Context, by ask) {
	if r.result != nil {
		r.again = true
		r.later = append(r.later, by)
		return
	}
	r.asked = append(r.asked, by)
	result := make(chan reread, 1)
	go func() {
		cfg, err := r.load(ctx)
		result <- reread{cfg, err}
	}()
	r.result = result
}

// end is called after result has sent, with how the reload went. It begins another read if start was
// called meanwhile.
func (r *rereading) end(ctx context.Context, err error) {
	for _, ask := range r.asked {
		if ask.result != nil {
			ask.result <- err
		}
	}
	r.result, r.asked, r.later = nil, r.later, nil
	if r.again {
		r.again = false
		r.start(ctx, ask{})
	}
}

// askers says who has asked for the read under way.
func (r *rereading) askers() string {
	var names []string
	for _, ask := range r.asked {
		if ask.by != "" && !slices.Contains(names, ask.by) {
			names = append(names, ask.by)
		}
	}
	return strings.Join(names, ", ")
}

// asker returns a function that asks for a reload and waits for its result.
func asker(life context.Context, asks chan<- ask) func(ctx context.Context, by string) error {
	over := errors.New("this process is about to end")
	return func(ctx context.Context, by string) error {
		result := make(chan error, 1) // nobody may wait for it any more
		select {
		case asks <- ask{by, result}:
		case <-life.Done():
			return over
		case <-ctx.Done():
			return ctx.Err()
		}
		select {
		case err := <-result:
			return err
		case <-life.Done():
			return over
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// tell logs a change of this process and keeps it in the journal.
func (l *lifetime) tell(line *zerolog.Event, e journal.Event) { l.server.View().Journal.Tell(line, e) }

// reload puts a new configuration in force, or keeps the old one. by is who asked for it.
func (l *lifetime) reload(read reread, by string) error {
	next, err := read.cfg, read.err
	if err != nil {
		l.server.ReloadFailed()
	} else {
		err = l.Proxy.reload(l.cfg, next)
	}
	if err != nil {
		l.tell(l.log.Error(), journal.Event{Kind: journal.Reload, Text: "reload failed; the previous configuration stays in force", Reason: err.Error(), By: by})
		return err
	}
	if next.Log.Level != l.cfg.Log.Level {
		_ = l.level.set(next.Log.Level) // it has been validated
	}
	limitMemory(next)
	joined, left, list := config.Changes(l.cfg, next)
	l.tell(l.log.Info().Int("joined", joined).Int("left", left).Strs("changes", list), journal.Event{
		Kind: journal.Reload, Text: "pools reloaded", Change: strings.Join(list, ", "), By: by,
	})
	l.show(next, config.Warnings(l.cfg))
	l.cfg = next
	return nil
}

// lookAtKeys begins to read the files of client keys again, unless that is under way.
func (l *lifetime) lookAtKeys(ctx context.Context, keys *rereading) {
	cfg := l.cfg
	if l.rekey == nil || cfg.APIKeyFile+cfg.KeysFile == "" || keys.result != nil {
		return
	}
	keys.load = func(ctx context.Context) (config.Config, error) { return l.rekey(ctx, cfg) }
	keys.start(ctx, ask{})
}

// replaceKeys puts keys that have been read again in force, or says once why they cannot be.
func (l *lifetime) replaceKeys(read reread) {
	err := read.err
	if err == nil {
		err = l.server.KeysFit(read.cfg.Terms())
	}
	if err == nil {
		l.server.ReplaceKeys(read.cfg.Terms())
		l.cfg.APIKeys, l.cfg.Keys, l.told = read.cfg.APIKeys, read.cfg.Keys, ""
		return
	}
	if text := err.Error(); text != l.told {
		l.told = text
		l.tell(l.log.Error(), journal.Event{Kind: journal.Keys, Text: "keys not reloaded; those before stay in force", Reason: text})
	}
}

// show has the admin port show the configuration, and logs the warnings about it that were not there before.
func (l *lifetime) show(cfg config.Config, before []string) {
	now := config.Warnings(cfg)
	if l.desk != nil {
		l.desk.Configured(now, config.Settings(cfg))
	}
	for _, w := range now {
		if !slices.Contains(before, w) {
			l.log.Warn().Str("setting", w).Msg("questionable setting")
		}
	}
}

// succeed starts a successor. The channel delivers its result, once.
func (l *lifetime) succeed(ctx context.Context) chan takeover {
	result := make(chan takeover, 1)
	l.members.Hold(true) // the successor reads the state file, and would miss what changes after that
	s, err := startSuccessor(l.exe, l.ports)
	if err != nil {
		result <- takeover{err: err}
		return result
	}
	l.tell(l.log.Info().Int("successor", s.cmd.Process.Pid).Str("executable", l.exe), journal.Event{
		Kind: journal.HandOver, Text: "USR2: started a successor", By: "signal USR2",
	})
	go func() { result <- s.await(ctx, successorTime) }()
	return result
}

// settle reports whether the successor has taken over. This process tells systemd before it can end,
// because it is the main process until then.
func (l *lifetime) settle(t takeover) bool {
	if t.err != nil {
		l.keepMembers()
	}
	if errors.Is(t.err, errStopping) {
		l.log.Info().Int("successor", t.pid).Msg("the hand-over was given up: this process stops")
		return false
	}
	if t.err != nil {
		l.server.ReloadFailed()
		l.tell(l.log.Error().Int("successor", t.pid).Str("executable", l.exe), journal.Event{
			Kind: journal.HandOver, Text: "the hand-over failed; this process serves on", Reason: t.err.Error(),
		})
		return false
	}
	l.endSigns() // systemd listens to the successor from now on
	notifyWithin(newsTime, "MAINPID="+strconv.Itoa(t.pid)+"\n"+t.state)
	l.tell(l.log.Info().Int("pid", os.Getpid()).Int("successor", t.pid), journal.Event{Kind: journal.HandOver, Text: "handed over; draining"})
	select {
	case <-l.hup: // at the last moment
		l.missed = true
	default:
	}
	if l.missed { // it has caught HUP since before its report
		_ = syscall.Kill(t.pid, syscall.SIGHUP)
	}
	return true
}

// keepMembers writes the changes of this process into the state file again, because a successor that has
// failed may have written its own there. From then on changes are possible again.
func (l *lifetime) keepMembers() {
	if err := l.members.Keep(); err != nil {
		l.log.Error().Err(err).Msg("the run-time changes are in force, but not in the state file, which the failed successor may have changed")
	}
	l.members.Hold(false)
}

// end drains. A process that was replaced waits as long as its clients need. One that was told to stop
// closes idle connections and gives requests timeouts.drain. The next signal ends the requests with an
// error at once, and one more ends the process.
func (l *lifetime) end(ctx context.Context, replaced bool) error {
	delay := l.cfg.Timeouts.DrainDelay
	if replaced {
		delay = 0
		if err := l.retire(ctx); err != nil {
			l.log.Error().Err(err).Msg("the port stays open for a successor and for this process")
		}
	}
	again := make(chan os.Signal, 2)
	signal.Notify(again, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(again)
	if !replaced {
		notify("STOPPING=1")
		l.server.Drain()
		l.tell(l.log.Info().Int("pid", os.Getpid()).Dur("drain_ms", l.cfg.Timeouts.Drain), journal.Event{
			Kind: journal.Stopping, Text: "draining; a second signal cuts what still runs, a third ends at once",
		})
	}
	return l.stop(delay, again)
}

// stop shuts down after the delay.
func (l *lifetime) stop(delay time.Duration, again <-chan os.Signal) error {
	var cut error
	done := make(chan error, 1)
	begin := time.After(delay)
	for {
		select {
		case <-begin:
			begin = nil
			go func() { done <- l.Shutdown() }()
		case err := <-done:
			err = errors.Join(err, cut)
			l.log.Info().Int("pid", os.Getpid()).Err(err).Msg("stopped")
			return err
		case <-again:
			if cut != nil {
				return errors.New("ended by a third signal")
			}
			cut = errors.New("cut short by a second signal")
			l.server.Cut()
			if begin != nil {
				begin = time.After(0)
			}
		}
	}
}
