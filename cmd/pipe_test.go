package cmd

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// fifo makes a named pipe without a writer.
func fifo(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pipe.yaml")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// feed writes the text to the pipe and closes it.
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

// A process ends on TERM even while the read of its configuration hangs.
func TestTermWhileTheConfigurationIsRead(t *testing.T) {
	for _, args := range [][]string{{"serve", "--config"}, {"check", "--config"}, {"serve", "--decode=http://127.0.0.1:1", "--api-key-file"}} {
		t.Run(args[0]+args[len(args)-1], func(t *testing.T) {
			t.Parallel()
			pipe := fifo(t)
			p := startSelf(t, append(args, pipe)...)
			// The write end opens without waiting after the process has opened the read end.
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

// A pipe may replace a file at the start, and a HUP does not end a process that is still starting.
// A reload and a successor need a file, because what the pipe held is gone.
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
	const why = "config: " // the path follows
	refused := func(l logLine) {
		t.Helper()
		if got, _ := l["error"].(string); !strings.HasPrefix(got, why+pipe+": is no regular file") {
			t.Errorf("error %q", got)
		}
	}
	refused(p.await(1, "reload failed; the previous configuration stays in force"))
	p.signal(pid, syscall.SIGUSR2)
	p.await(1, "the hand-over failed; this process serves on")
	p.awaitReady()
	p.signal(pid, syscall.SIGTERM)
	p.gone()
	if got := strings.Join(p.others, "\n"); got != "xpyd: "+why+pipe+": is no regular file; give one, because it is read more than once" {
		t.Errorf("the successor said %q", got)
	}
}
