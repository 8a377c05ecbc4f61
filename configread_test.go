package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"
)

// fifo makes a pipe with a name, which nobody writes to.
func fifo(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pipe.yaml")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// feed writes the text to the pipe, which it ends with that.
func feed(t *testing.T, pipe, text string) {
	t.Helper()
	f, err := os.OpenFile(pipe, os.O_WRONLY, 0)
	if err != nil {
		t.Error(err)
		return
	}
	if _, err := f.WriteString(text); err != nil {
		t.Error(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// A configuration that does not come keeps no process from its end.
func TestTermWhileTheConfigurationIsRead(t *testing.T) {
	for _, args := range [][]string{{"serve", "--config"}, {"check", "--config"}, {"serve", "--decode=http://127.0.0.1:1", "--api-key-file"}} {
		t.Run(args[0]+args[len(args)-1], func(t *testing.T) {
			t.Parallel()
			pipe := fifo(t)
			p := startSelf(t, append(args, pipe)...)
			// The write end opens without waiting once the process has opened the other.
			var w int
			eventually(t, "opened", func() bool {
				var err error
				w, err = syscall.Open(pipe, syscall.O_WRONLY|syscall.O_NONBLOCK, 0)
				return err == nil
			})
			defer func() { _ = syscall.Close(w) }()
			p.signal(p.cmd.Process.Pid, syscall.SIGTERM)
			if code := p.exit(); code != exitFailure {
				t.Errorf("exit code %d", code)
			}
			p.gone()
			if got := strings.Join(p.others, "\n"); !strings.Contains(got, pipe) || !strings.Contains(got, "told to stop before it was read") {
				t.Errorf("it said %q", got)
			}
		})
	}
}

// A pipe may stand in for a file at the start, and a HUP does not end a process that is
// still starting. A reload and a successor want a file: what the pipe held is gone.
func TestConfigurationFromAPipe(t *testing.T) {
	t.Parallel()
	_, d := pairOfEngines(t, -1)
	pipe := fifo(t)
	p := startSelf(t, "serve", "--config", pipe)
	var w int
	eventually(t, "opened", func() bool {
		var err error
		w, err = syscall.Open(pipe, syscall.O_WRONLY|syscall.O_NONBLOCK, 0)
		return err == nil
	})
	p.signal(p.cmd.Process.Pid, syscall.SIGHUP)
	feed(t, pipe, "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\ndecode: ["+d.URL()+"]\n")
	_ = syscall.Close(w)
	pid := p.serving(1)
	const why = "config: " // and the path
	refused := func(l logLine) {
		t.Helper()
		if got, _ := l["error"].(string); !strings.HasPrefix(got, why+pipe+": is no regular file") {
			t.Errorf("error %q", got)
		}
	}
	refused(p.await(1, "reload failed; the configuration before it stays in force"))
	p.signal(pid, syscall.SIGUSR2)
	p.await(1, "the hand-over failed; this process serves on")
	p.awaitReady()
	p.signal(pid, syscall.SIGTERM)
	p.gone()
	if got := strings.Join(p.others, "\n"); got != "xpyd: "+why+pipe+": is no regular file, and so can be read at the start only; to reload or hand over, give a file" {
		t.Errorf("the successor said %q", got)
	}
}

// While a configuration is read that does not come, the other signals are heard; a HUP
// has it read once more after that.
func TestSignalsWhileAReloadHangs(t *testing.T) {
	cfg := defaultConfig()
	cfg.Listen, cfg.Admin, cfg.Router.Decode = "127.0.0.1:0", "", []string{"http://127.0.0.1:1"}
	p, err := startProxy(cfg, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.shutdown(); err != nil {
			t.Error(err)
		}
	})
	reads, results := make(chan struct{}), make(chan error)
	load := func(ctx context.Context) (config, error) {
		reads <- struct{}{}
		select {
		case err := <-results:
			return cfg, err
		case <-ctx.Done():
			return cfg, ctx.Err()
		}
	}
	hup, usr2 := make(chan os.Signal), make(chan os.Signal)
	l := lifetime{running: p, cfg: cfg, load: load, exe: "/nonexistent/xpyd", log: zerolog.Nop(), hup: hup, usr2: usr2}
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

// Each read has its time, and a path that hangs is not asked again meanwhile.
func TestReadOfAFileThatHangs(t *testing.T) {
	pipe := fifo(t)
	files := newReadFiles(false)
	files.limit = 20 * time.Millisecond
	for _, want := range []string{"is not read after 20ms; ", "an earlier read of it still hangs; "} {
		r := files.read(t.Context(), pipe)
		if r.err == nil || !strings.HasPrefix(r.err.Error(), want) {
			t.Errorf("%v, want %q", r.err, want)
		}
	}
	feed(t, pipe, "late")
	eventually(t, "let go", func() bool { files.mu.Lock(); defer files.mu.Unlock(); return len(files.hung) == 0 })
	go feed(t, pipe, "again")
	files.limit = patience
	if r := files.read(t.Context(), pipe); r.err != nil || string(r.text) != "again" {
		t.Errorf("%q, %v", r.text, r.err)
	}
}

func TestFilesThatAreRefused(t *testing.T) {
	large := writeFile(t, "large.yaml", strings.Repeat("#", readSize+1), 0o600)
	_, err := load(t, []string{"--config", large}, nil)
	checkUsage(t, err, "config: "+large+": is larger than 4MiB")
	_, err = load(t, append([]string{"--api-key-file", large}, decodeFlag...), nil)
	checkUsage(t, err, `config: api_key_file: "`+large+`" cannot be read: is larger than 4MiB; give a file that this user may read (flag --api-key-file, XPYD_API_KEY_FILE)`)
	dir := t.TempDir()
	_, err = load(t, []string{"--config", dir}, nil)
	checkUsage(t, err, "config: "+dir+": is a directory")
	_, err = load(t, []string{"--config", "/dev/zero"}, nil)
	checkUsage(t, err, "config: /dev/zero: is larger than 4MiB")
}
