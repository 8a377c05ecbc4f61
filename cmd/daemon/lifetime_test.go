package daemon

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"xpyd/admin/members"
	"xpyd/cmd/config"
	"xpyd/router"
)

// While the read of a configuration hangs, the process hears the other signals. After a HUP it reads
// the configuration once more.
func TestSignalsWhileAReloadHangs(t *testing.T) {
	cfg := config.Default()
	cfg.Listen, cfg.Admin, cfg.Router.Decode = "127.0.0.1:0", "", router.MustEntries("http://127.0.0.1:1")
	p, err := Start(cfg, "test", zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Shutdown(); err != nil {
			t.Error(err)
		}
	})
	reads, results := make(chan struct{}), make(chan error)
	load := func(ctx context.Context) (config.Config, error) {
		reads <- struct{}{}
		select {
		case err := <-results:
			return cfg, err
		case <-ctx.Done():
			return cfg, ctx.Err()
		}
	}
	hup, usr2 := make(chan os.Signal), make(chan os.Signal)
	l := lifetime{Proxy: p, cfg: cfg, endSigns: func() {}, load: load, exe: "/nonexistent/xpyd", log: zerolog.Nop(), hup: hup, usr2: usr2}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, err := l.await(ctx)
		ended <- err
	}()
	hup <- syscall.SIGHUP
	<-reads
	hup <- syscall.SIGHUP // heard, and remembered
	hup <- syscall.SIGHUP
	usr2 <- syscall.SIGUSR2
	results <- errors.New("not yet")
	<-reads
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// successorScript is a successor that has read its configuration, and waits for a file before it takes
// over. It writes down a HUP.
const successorScript = `#!/bin/sh
trap 'echo > "$DIR/hup"; exit 0' HUP
echo > "$DIR/started"
n=0
while [ ! -e "$DIR/go" ] && [ $n -lt 600 ]; do sleep .05; n=$((n+1)); done
printf 'READY=1\nSTATUS=up' >&3
exec 3>&-
while [ $n -lt 1200 ]; do sleep .05; n=$((n+1)); done
`

// A HUP, or a reload over the admin port, that comes while a successor starts reaches the successor too,
// which may have read the configuration before it was changed.
func TestReloadDuringAHandOverReachesTheSuccessor(t *testing.T) {
	for _, over := range []string{"HUP", "admin port"} {
		t.Run(over, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv("DIR", dir)
			exe := filepath.Join(dir, "successor")
			if err := os.WriteFile(exe, []byte(successorScript), 0o700); err != nil {
				t.Fatal(err)
			}
			cfg := config.Default()
			cfg.Listen, cfg.Admin, cfg.Router.Decode = "127.0.0.1:0", "", router.MustEntries("http://127.0.0.1:1")
			p, err := Start(cfg, "test", zerolog.Nop())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := p.Shutdown(); err != nil {
					t.Error(err)
				}
			})
			hup, usr2, asks := make(chan os.Signal), make(chan os.Signal), make(chan ask)
			load := func(context.Context) (config.Config, error) { return cfg, nil }
			l := lifetime{Proxy: p, cfg: cfg, endSigns: func() {}, load: load, exe: exe, log: zerolog.Nop(), hup: hup, usr2: usr2, asks: asks}
			replaced := make(chan bool)
			go func() {
				ok, _ := l.await(t.Context())
				replaced <- ok
			}()
			caught := make(chan os.Signal, 1) // as serve does: a shell cannot trap what nohup, say, has had ignored
			signal.Notify(caught, syscall.SIGHUP)
			defer signal.Stop(caught)
			usr2 <- syscall.SIGUSR2
			awaitFile(t, filepath.Join(dir, "started"))
			if over == "HUP" {
				hup <- syscall.SIGHUP
			} else {
				asks <- ask{"tester", make(chan error, 1)}
			}
			if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if !<-replaced {
				t.Fatal("the successor has not taken over")
			}
			awaitFile(t, filepath.Join(dir, "hup"))
		})
	}
}

// meddler is a successor that has written the state file, and ends before it takes over. For "lost" it takes
// the file's directory away.
const meddler = `#!/bin/sh
echo '{"version":1,"edits":[]}' > "$STATE"
[ "$HOW" = lost ] && rm -r "${STATE%/*}"
exit 3
`

// A hand-over that fails leaves the run-time changes in the state file, whatever the successor wrote there.
func TestFailedHandOverKeepsTheStateFile(t *testing.T) {
	for _, how := range []string{"kept", "lost"} {
		t.Run(how, func(t *testing.T) {
			dir := t.TempDir()
			state, exe := filepath.Join(dir, "state", "members.json"), filepath.Join(dir, "successor")
			t.Setenv("STATE", state)
			t.Setenv("HOW", how)
			if err := errors.Join(os.Mkdir(filepath.Dir(state), 0o700), os.WriteFile(exe, []byte(meddler), 0o700)); err != nil {
				t.Fatal(err)
			}
			cfg := config.Default()
			cfg.Listen, cfg.Admin, cfg.Router.Decode = "127.0.0.1:0", "", router.MustEntries("http://127.0.0.1:1", "http://127.0.0.1:2")
			cfg.Members.StateFile = state
			p, err := Start(cfg, "test", zerolog.Nop())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := p.Shutdown(); err != nil {
					t.Error(err)
				}
			})
			if _, err := p.members.Change("127.0.0.1:2", members.Edit{State: "disabled"}); err != nil {
				t.Fatal(err)
			}
			var logs bytes.Buffer
			l := lifetime{Proxy: p, cfg: cfg, endSigns: func() {}, exe: exe, log: zerolog.New(&logs)}
			if l.settle(<-l.succeed(t.Context())) {
				t.Fatal("the successor has taken over")
			}
			told := strings.Contains(logs.String(), "not in the state file")
			if told != (how == "lost") || strings.Contains(logs.String(), `"level":"error"`) == false {
				t.Errorf("the log: %s", logs.String())
			}
			if err := os.MkdirAll(filepath.Dir(state), 0o700); err != nil { // as the operator would
				t.Fatal(err)
			}
			if how == "kept" {
				next, err := members.Open(cfg.Router, state, cfg.Fits, zerolog.Nop())
				if err != nil || next.Config().Decode[1].String() != "http://127.0.0.1:2 state=disabled" {
					t.Errorf("the next process begins with %v, %v", next.Config().Decode, err)
				}
			}
			if _, err := p.members.Change("127.0.0.1:2", members.Edit{State: "ready"}); err != nil {
				t.Errorf("no change after it: %v", err)
			}
		})
	}
}

func awaitFile(t *testing.T, path string) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(path); err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("no %s", filepath.Base(path))
		}
	}
}
