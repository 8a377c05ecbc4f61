package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"

	"xpyd/tools/process"
)

// fleet is the engines and proxies of a run. It owns their processes.
type fleet struct {
	opts   options
	script string // scripts/real-vllm/engine.sh
	runDir string // logs and process numbers, of the engines as engine.sh keeps them
	guard  *watchdog
	blocks string // the connector's place; "" for those that have none

	mu      sync.Mutex
	engines map[string]*engine // by name; running, or at least started once
	proxies []*proxy           // of the check that runs
	served  int                // proxies started so far, for the names of their logs
}

// cannotError says that this machine cannot run the engines, in the words of the script that found
// out.
type cannotError struct{ line string }

func (e cannotError) Error() string { return e.line }

func newFleet(o options) (*fleet, error) {
	root, err := os.Getwd()
	if err != nil {
		return nil, fmt.Errorf("find the module's root: %w", err)
	}
	script := filepath.Join(root, "scripts", "real-vllm", "engine.sh")
	if _, err := os.Stat(script); err != nil {
		return nil, fmt.Errorf("want to run in the module's root: %w", err)
	}
	if _, err := os.Stat(o.xpyd); err != nil {
		return nil, fmt.Errorf("find the program to judge (make build): %w", err)
	}
	cache, err := process.E2ECache()
	if err != nil {
		return nil, err
	}
	f := &fleet{opts: o, script: script, runDir: filepath.Join(cache, "run"), engines: map[string]*engine{}}
	if err := os.MkdirAll(f.runDir, 0o755); err != nil {
		return nil, fmt.Errorf("make a place for logs: %w", err)
	}
	if f.blocks, err = o.kv.place(f.runDir, o.ports); err != nil {
		return nil, err
	}
	if f.guard, err = startWatchdog(); err != nil {
		return nil, err
	}
	return f, nil
}

// engine starts an engine, or returns the running one of that name and spec. It first stops one of
// that name with another spec.
func (f *fleet) engine(ctx context.Context, s spec) (*engine, error) {
	e := newEngine(f, s)
	f.mu.Lock()
	old := f.engines[s.name]
	f.engines[s.name] = e
	f.mu.Unlock()
	if old != nil && old.same(e) && old.running(ctx) {
		f.mu.Lock()
		f.engines[s.name] = old
		f.mu.Unlock()
		return old, nil
	}
	if e.adopt(ctx) {
		return e, nil
	}
	return e, e.start(ctx)
}

// all starts several engines at once.
func (f *fleet) all(ctx context.Context, specs ...spec) ([]*engine, error) {
	engines, errs := make([]*engine, len(specs)), make([]error, len(specs))
	var wg sync.WaitGroup
	for i, s := range specs {
		wg.Go(func() { engines[i], errs[i] = f.engine(ctx, s) })
	}
	wg.Wait()
	return engines, errors.Join(errs...)
}

// endProxies stops the proxies of a check. Each must end by itself, with status 0.
func (f *fleet) endProxies() (problems []error) {
	f.mu.Lock()
	proxies := f.proxies
	f.proxies = nil
	f.mu.Unlock()
	for _, p := range proxies {
		if err := p.End(drainTime); err != nil {
			problems = append(problems, err)
		}
	}
	return problems
}

// close stops the engines, or leaves them to the next run.
func (f *fleet) close() error {
	f.mu.Lock()
	engines := f.engines
	f.engines = nil
	f.mu.Unlock()
	errs := make(chan error, len(engines))
	for _, e := range engines {
		if f.opts.keep {
			f.guard.forget(e.name)
			errs <- nil
			continue
		}
		go func() { errs <- e.stop(context.Background()) }()
	}
	var all []error
	for range engines {
		all = append(all, <-errs)
	}
	return errors.Join(append(all, f.guard.close())...)
}

// call runs engine.sh. Its last line of standard error becomes the error.
func (f *fleet) call(ctx context.Context, env []string, args ...string) error {
	cmd := exec.CommandContext(ctx, f.script, args...)
	cmd.Env = append(os.Environ(), env...)
	if f.opts.version != "" {
		cmd.Env = append(cmd.Env, "VERSION="+f.opts.version)
	}
	// Ctrl-C must reach only this process, which then stops the engines one by one. A script that
	// gets it ends the engine that it is starting.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	out, err := os.CreateTemp("", "engine-sh")
	if err != nil {
		return fmt.Errorf("run engine.sh: %w", err)
	}
	defer func() { _, _ = out.Close(), os.Remove(out.Name()) }()
	cmd.Stdout, cmd.Stderr = out, out // a file, because the engine would hold a pipe open
	if err = cmd.Run(); err == nil {
		return nil
	}
	text, _ := os.ReadFile(out.Name())
	text = bytes.TrimSpace(text)
	line := string(text[bytes.LastIndexByte(text, '\n')+1:])
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == exitCannot {
		return cannotError{line}
	}
	return fmt.Errorf("engine.sh %v: %w: %s", args, err, line)
}
