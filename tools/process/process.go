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

// Process is a program that is measured or measures, with what it has started. It runs until Stop
// or End, or until this process ends in any way.
type Process struct {
	cmd    *exec.Cmd
	output string // the file that its standard output and error go to
	ended  chan struct{}
	err    error // of the exit, once ended is closed
}

// Start runs a program in a process group of its own, with its output in a file.
func Start(output string, env []string, name string, args ...string) (*Process, error) {
	out, err := os.OpenFile(output, os.O_CREATE|os.O_TRUNC|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	defer func() { _ = out.Close() }() // the child has its own
	p := &Process{cmd: exec.Command(name, args...), output: output, ended: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.Env = append(os.Environ(), env...)
	// It gets a process group of its own. Ctrl-C then reaches only this process, which ends the
	// child. The child ends with this process, however that ends.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go p.wait()
	return p, nil
}

func (p *Process) wait() {
	p.err = p.cmd.Wait()
	close(p.ended)
}

// StartTelling is Start, and reads into line the JSON line of the output that holds mark.
func StartTelling(ctx context.Context, output string, env []string, mark string, line any, name string, args ...string) (*Process, error) {
	p, err := Start(output, env, name, args...)
	if err != nil {
		return nil, err
	}
	text, err := p.AwaitLine(ctx, mark)
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

// Gone reports whether the program has ended.
func (p *Process) Gone() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// Stop ends the process group, and kills what does not end within 3 s.
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

// End tells the program to end. The program must do so within bound and with status 0, and not
// before it was told.
func (p *Process) End(bound time.Duration) error {
	if p.Gone() {
		return fmt.Errorf("%s ended by itself: %v, see %s", p.cmd.Path, p.err, p.output)
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may be ending
	select {
	case <-p.ended:
	case <-time.After(bound):
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
		<-p.ended
		return fmt.Errorf("%s did not end within %v of TERM, see %s", p.cmd.Path, bound, p.output)
	}
	if p.err != nil {
		return fmt.Errorf("end %s: %w, see %s", p.cmd.Path, p.err, p.output)
	}
	return nil
}

// tail returns the end of what it has written.
func (p *Process) tail() string {
	b, err := os.ReadFile(p.output)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(b[max(0, len(b)-600):]))
}

// AwaitLine waits for a line of its output that holds mark, at most 30 s.
func (p *Process) AwaitLine(ctx context.Context, mark string) ([]byte, error) {
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); {
		gone := p.Gone() // read first, so that the last output counts
		b, err := os.ReadFile(p.output)
		if err != nil {
			return nil, fmt.Errorf("read the output of %s: %w", p.cmd.Path, err)
		}
		for line := range bytes.Lines(b) {
			if bytes.Contains(line, []byte(mark)) && bytes.HasSuffix(line, []byte("\n")) {
				return line, nil
			}
		}
		if gone {
			return nil, fmt.Errorf("%s has ended: %s", p.cmd.Path, p.tail())
		}
		if err := p.pause(ctx); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%s has not written %s within 30 s, but %s", p.cmd.Path, mark, p.tail())
}

// AwaitHTTP waits until it answers a GET with 200, at most 60 s.
func (p *Process) AwaitHTTP(ctx context.Context, url string) error {
	for end := time.Now().Add(60 * time.Second); time.Now().Before(end); {
		if _, err := Get(ctx, url); err == nil || ctx.Err() != nil {
			return err
		}
		if p.Gone() {
			return fmt.Errorf("%s has ended: %s", p.cmd.Path, p.tail())
		}
		if err := p.pause(ctx); err != nil {
			return err
		}
	}
	return errors.New(url + " was not answered with 200 within 60 s")
}

// pause waits for a moment, or less if the program or ctx ends.
func (p *Process) pause(ctx context.Context) error {
	select {
	case <-p.ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(10 * time.Millisecond):
		return nil
	}
}

// Send posts JSON with more header fields, each a name and a value, and returns the answer to be read.
func Send(ctx context.Context, client *http.Client, url string, body []byte, header ...string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("send a request: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("send a request: %w", err)
	}
	return resp, nil
}

// Get reads a page and then closes its connection. A status other than 200 is an error.
func Get(ctx context.Context, url string) ([]byte, error) {
	return exchange(ctx, http.MethodGet, url, nil)
}

// Post sends JSON and reads the answer, as Get does.
func Post(ctx context.Context, url string, body []byte) ([]byte, error) {
	return exchange(ctx, http.MethodPost, url, body)
}

func exchange(ctx context.Context, method, url string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", url, err)
	}
	req.Close = true
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
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

// FreePort returns a port without a listener at this moment, for programs that cannot say which
// port they were given.
func FreePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	return l.Addr().String(), l.Close()
}

// Find returns path if that is given, otherwise the place where the program is installed, or "" if
// it is not. Debian keeps daemons out of the PATH of users other than root.
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
