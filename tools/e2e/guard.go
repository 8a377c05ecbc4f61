package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// watchdog is another process of this program, which outlives it. Whatever ends the run, including
// kill -9, the engines that it has started end too.
type watchdog struct {
	cmd   *exec.Cmd
	names io.WriteCloser // +NAME to watch an engine, -NAME to forget it; each is one write
}

func startWatchdog() (*watchdog, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("start the watchdog: %w", err)
	}
	w := &watchdog{cmd: exec.Command(self, "-guard")}
	w.cmd.Stderr = os.Stderr
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C must not reach it
	if w.names, err = w.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start the watchdog: %w", err)
	}
	if err := w.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the watchdog: %w", err)
	}
	return w, nil
}

// mind and forget fail only if the watchdog has died, and close reports that.
func (w *watchdog) mind(name string)   { _, _ = fmt.Fprintf(w.names, "+%s\n", name) }
func (w *watchdog) forget(name string) { _, _ = fmt.Fprintf(w.names, "-%s\n", name) }

func (w *watchdog) close() error {
	_ = w.names.Close()
	if err := w.cmd.Wait(); err != nil {
		return fmt.Errorf("end the watchdog: %w", err)
	}
	return nil
}

// guard is what the watchdog does. It reads names until all writers have gone. Then it stops the
// engines that it watches and has not been told to forget.
func guard(names io.Reader, runDir string) (status int) {
	minded := map[string]bool{}
	lines := bufio.NewScanner(names)
	for lines.Scan() {
		switch line := lines.Text(); {
		case len(line) < 2:
		case line[0] == '+':
			minded[line[1:]] = true
		case line[0] == '-':
			delete(minded, line[1:])
		}
	}
	for name := range minded {
		if _, err := os.Stat(filepath.Join(runDir, name+".pid")); err != nil {
			continue // it did not get as far as a process
		}
		cmd := exec.Command(filepath.Join("scripts", "real-vllm", "engine.sh"), "stop", name, "KILL")
		if text, err := cmd.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "e2e: stop %s: %v: %s\n", name, err, text)
			status = exitFailed
		}
	}
	return status
}
