package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// Process is a program that is measured or measured with, and what it has started.
type Process struct {
	cmd    *exec.Cmd
	output string // the file that its standard output and error go to
	ended  chan struct{}
}

// Start runs a program in a process group of its own, with its output in a file.
func Start(ctx context.Context, output string, env []string, name string, args ...string) (*Process, error) {
	out, err := os.OpenFile(output, os.O_CREATE|os.O_TRUNC|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	defer func() { _ = out.Close() }() // the child has its own
	p := &Process{cmd: exec.CommandContext(ctx, name, args...), output: output, ended: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.Env = append(os.Environ(), env...)
	// A group of its own: Ctrl-C reaches this process alone, which then ends the child.
	// The child ends with this process, however that ends.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p.cmd.Cancel = func() error { return p.cmd.Process.Signal(syscall.SIGTERM) }
	p.cmd.WaitDelay = 5 * time.Second
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		_ = p.cmd.Wait() // by a signal, or its output tells
		close(p.ended)
	}()
	return p, nil
}

// PID is the process id, also after the end.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Stop ends the process group; what does not end within 3 s is killed.
func (p *Process) Stop() {
	group := -p.cmd.Process.Pid
	_ = syscall.Kill(group, syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(3 * time.Second):
		_ = syscall.Kill(group, syscall.SIGKILL)
		<-p.ended
	}
}

// Tail is the end of what it has written.
func (p *Process) Tail() string {
	b, err := os.ReadFile(p.output)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(b[max(0, len(b)-600):]))
}

// AwaitLine waits for a line of its output that holds mark.
func (p *Process) AwaitLine(ctx context.Context, mark string) ([]byte, error) {
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); {
		b, err := os.ReadFile(p.output)
		if err != nil {
			return nil, fmt.Errorf("read the output of %s: %w", p.cmd.Path, err)
		}
		for line := range bytes.Lines(b) {
			if bytes.Contains(line, []byte(mark)) && bytes.HasSuffix(line, []byte("\n")) {
				return line, nil
			}
		}
		select {
		case <-p.ended:
			return nil, fmt.Errorf("%s has ended: %s", p.cmd.Path, p.Tail())
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil, fmt.Errorf("%s has not written %s within 30 s, but %s", p.cmd.Path, mark, p.Tail())
}

// AwaitHTTP waits until it answers a GET with 200, at most 60 s.
func (p *Process) AwaitHTTP(ctx context.Context, url string) error {
	for end := time.Now().Add(60 * time.Second); time.Now().Before(end); {
		if ok, err := answers(ctx, url); ok || ctx.Err() != nil {
			return err
		}
		select {
		case <-p.ended:
			return fmt.Errorf("%s has ended: %s", p.cmd.Path, p.Tail())
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
	return errors.New(url + " was not answered with 200 within 60 s")
}

func answers(ctx context.Context, url string) (bool, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false, fmt.Errorf("ask %s: %w", url, err)
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false, fmt.Errorf("ask %s: %w", url, err)
	}
	return resp.StatusCode == http.StatusOK, resp.Body.Close()
}

// FreePort is a port that nobody listens on at this moment, for programs that cannot
// say which they were given.
func FreePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	return l.Addr().String(), l.Close()
}

// Find is the path of a program, "" if it is not installed. Debian keeps daemons out of
// the PATH of those who are not root.
func Find(name string) string {
	for _, candidate := range []string{name, "/usr/sbin/" + name} {
		if path, err := exec.LookPath(candidate); err == nil {
			return path
		}
	}
	return ""
}
