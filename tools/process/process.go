package process

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

// start runs a program in a process group of its own, with its output in a file.
func start(ctx context.Context, output string, env []string, name string, args ...string) (*Process, error) {
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

// StartTelling runs a program in a process group of its own, with its output in a file,
// and reads into line the JSON line of it that holds mark.
func StartTelling(ctx context.Context, output string, env []string, mark string, line any, name string, args ...string) (*Process, error) {
	p, err := start(ctx, output, env, name, args...)
	if err != nil {
		return nil, err
	}
	text, err := p.awaitLine(ctx, mark)
	if err == nil {
		err = json.Unmarshal(text, line)
	}
	if err != nil {
		p.Stop()
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
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

// tail is the end of what it has written.
func (p *Process) tail() string {
	b, err := os.ReadFile(p.output)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(b[max(0, len(b)-600):]))
}

// awaitLine waits for a line of its output that holds mark.
func (p *Process) awaitLine(ctx context.Context, mark string) ([]byte, error) {
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
			return nil, fmt.Errorf("%s has ended: %s", p.cmd.Path, p.tail())
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil, fmt.Errorf("%s has not written %s within 30 s, but %s", p.cmd.Path, mark, p.tail())
}

// awaitHTTP waits until it answers a GET with 200, at most 60 s.
func (p *Process) awaitHTTP(ctx context.Context, url string) error {
	for end := time.Now().Add(60 * time.Second); time.Now().Before(end); {
		if _, err := Get(ctx, url); err == nil || ctx.Err() != nil {
			return err
		}
		select {
		case <-p.ended:
			return fmt.Errorf("%s has ended: %s", p.cmd.Path, p.tail())
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
	return errors.New(url + " was not answered with 200 within 60 s")
}

// Get reads a page and leaves no connection behind. A status other than 200 is an error.
func Get(ctx context.Context, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", url, err)
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", url, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("ask %s: %s", url, resp.Status)
	}
	page, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", url, err)
	}
	return page, nil
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

// Find is path if that is given, else where the program is installed, "" if nowhere.
// Debian keeps daemons out of the PATH of those who are not root.
func Find(name, path string) string {
	if path != "" {
		return path
	}
	for _, candidate := range []string{name, "/usr/sbin/" + name} {
		if path, err := exec.LookPath(candidate); err == nil {
			return path
		}
	}
	return ""
}
