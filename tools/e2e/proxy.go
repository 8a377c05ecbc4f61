package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"xpyd/tools/exposition"
)

// proxy is ./xpyd serve in a process of its own, on ports that it chose.
type proxy struct {
	url, admin string // http://127.0.0.1:…, of both ports
	log        string // path of the file
	cmd        *exec.Cmd
	ended      chan struct{} // closed when the process has; err is set by then
	err        error
}

// The time until it serves, until its pools are up, and until it has drained.
const (
	serveTime = 20 * time.Second
	readyTime = 60 * time.Second
	drainTime = 60 * time.Second
)

// proxy starts xpyd with the arguments and returns once it is ready for requests. It is
// stopped at the check's end.
func (f *fleet) proxy(ctx context.Context, args ...string) (*proxy, error) {
	f.mu.Lock()
	f.served++
	p := &proxy{log: filepath.Join(f.runDir, fmt.Sprintf("xpyd-%d-%d.log", f.opts.ports, f.served)), ended: make(chan struct{})}
	f.mu.Unlock()
	file, err := os.Create(p.log)
	if err != nil {
		return nil, fmt.Errorf("start xpyd: %w", err)
	}
	defer func() { _ = file.Close() }()
	p.cmd = exec.Command(f.opts.xpyd, append([]string{"serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, args...)...)
	p.cmd.Stdout, p.cmd.Stderr = file, file
	// A group of its own: Ctrl-C reaches this process alone, which then ends the proxy. And
	// the kernel ends it if this process dies.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start xpyd: %w", err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	f.mu.Lock()
	f.proxies = append(f.proxies, p)
	f.mu.Unlock()
	if err := p.awaitServing(ctx); err != nil {
		return nil, err
	}
	return p, p.awaitReady(ctx)
}

func (p *proxy) awaitServing(ctx context.Context) error {
	err := poll(ctx, serveTime, func() bool {
		for _, line := range p.lines() {
			if line["message"] == "serving" {
				p.url, p.admin = fmt.Sprint("http://", line["listen"]), fmt.Sprint("http://", line["admin"])
			}
		}
		return p.url != "" || p.gone()
	})
	if err != nil || p.url == "" {
		text, _ := os.ReadFile(p.log)
		return fmt.Errorf("start xpyd %v: it does not serve: %.500s", p.cmd.Args[1:], text)
	}
	return nil
}

func (p *proxy) awaitReady(ctx context.Context) error {
	err := poll(ctx, readyTime, func() bool {
		_, err := get(ctx, p.url+"/readyz")
		return err == nil || p.gone()
	})
	if err != nil || p.gone() {
		return fmt.Errorf("start xpyd %v: not ready, see %s", p.cmd.Args[1:], p.log)
	}
	return nil
}

func (p *proxy) gone() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// stop drains the proxy. It must end with status 0.
func (p *proxy) stop() error {
	if p.gone() {
		return fmt.Errorf("xpyd ended by itself: %v, see %s", p.err, p.log)
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop xpyd: %w", err)
	}
	select {
	case <-p.ended:
	case <-time.After(drainTime):
		err := p.cmd.Process.Kill()
		<-p.ended
		return errors.Join(fmt.Errorf("xpyd did not end within %v of TERM, see %s", drainTime, p.log), err)
	}
	if p.err != nil {
		return fmt.Errorf("stop xpyd: %w, see %s", p.err, p.log)
	}
	return nil
}

// metric is the sum of the series of a metric that carry all labels, each given as
// key="value".
func (p *proxy) metric(name string, labels ...string) (float64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	page, err := exposition.Of(ctx, p.admin)
	if err != nil {
		return 0, fmt.Errorf("read metrics of xpyd: %w", err)
	}
	return page.Sum(name, labels...)
}

// lines is the log so far. A line that is still being written is left out.
func (p *proxy) lines() []map[string]any {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return nil
	}
	var all []map[string]any
	for line := range bytes.Lines(text) {
		var fields map[string]any
		if json.Unmarshal(line, &fields) == nil {
			all = append(all, fields)
		}
	}
	return all
}

// poll asks until done reports true, for at most bound.
func poll(ctx context.Context, bound time.Duration, done func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}
