package soak

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"xpyd/tools/tally"
)

// proxy is the proxy under soak, in a process of its own. After a hand-over it is another
// process, which the first one has started.
type proxy struct {
	command []string // serves if "--config FILE" is added
	env     []string // in addition to this process's own
	file    string   // its configuration
	log     *proxyLog
	verdict *tally.Verdict

	mu      sync.Mutex
	pid     int // of the process that accepts
	addr    string
	admin   string
	started time.Time // when that process began to serve
	exits   sync.WaitGroup
	ended   map[int]unix.WaitStatus
	leaving map[int]bool // those that were told to end
}

// serving is the line of the proxy's log that says where it listens.
type serving struct {
	PID           int
	Listen, Admin string
}

// startProxy starts the first process. Whoever hands over adopts the successors, see adopt.
func startProxy(ctx context.Context, command, env []string, dir string, settings map[string]any, log *proxyLog, v *tally.Verdict) (*proxy, error) {
	p := &proxy{
		command: command, env: env, file: filepath.Join(dir, "soak.json"), log: log, verdict: v,
		ended: map[int]unix.WaitStatus{}, leaving: map[int]bool{},
	}
	if err := p.configure(settings); err != nil {
		return nil, err
	}
	log.ejections.heed(p.alone)
	pid, err := p.spawn()
	if err != nil {
		return nil, err
	}
	p.await(pid)
	line, err := log.awaitServing(ctx)
	if err != nil {
		return nil, errors.Join(err, p.stop(servingBound))
	}
	p.follow(line)
	return p, nil
}

// spawn starts the program with its standard error on the log's pipe.
func (p *proxy) spawn() (pid int, err error) {
	name, err := exec.LookPath(p.command[0])
	if err != nil {
		return 0, fmt.Errorf("find the proxy's program: %w", err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return 0, fmt.Errorf("start the proxy: %w", err)
	}
	defer func() { _ = null.Close() }()
	defer func() { _ = p.log.pipe.Close() }() // so that the log ends with the last process
	child, err := os.StartProcess(name, append(append([]string{}, p.command...), "--config", p.file), &os.ProcAttr{
		Env:   append(os.Environ(), p.env...),
		Files: []*os.File{null, null, p.log.pipe},
		// It gets a process group of its own. Ctrl-C then reaches only this process, which ends the
		// child. The child ends with this process, however that ends.
		Sys: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL},
	})
	if err != nil {
		return 0, fmt.Errorf("start the proxy: %w", err)
	}
	pid = child.Pid
	_ = child.Release() // await waits for it by its number, as for the adopted ones
	return pid, nil
}

// follow makes the process that wrote the line the one that the harness uses.
func (p *proxy) follow(line serving) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pid, p.addr, p.admin, p.started = line.PID, line.Listen, line.Admin, time.Now()
}

func (p *proxy) address() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.addr
}

// now returns the process that accepts: its number, its admin port and when it took over.
func (p *proxy) now() (pid int, admin string, since time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pid, p.admin, p.started
}

// configure replaces the configuration file as a whole.
func (p *proxy) configure(settings map[string]any) error {
	text, err := json.MarshalIndent(settings, "", "  ")
	if err != nil {
		panic("BUG: settings that are no JSON: " + err.Error())
	}
	if err := os.WriteFile(p.file+".new", text, 0o600); err != nil {
		return fmt.Errorf("write the proxy's configuration: %w", err)
	}
	if err := os.Rename(p.file+".new", p.file); err != nil {
		return fmt.Errorf("write the proxy's configuration: %w", err)
	}
	return nil
}

// await files the exit of a process. It is a breach if the process was not told to end, or if the
// exit code is not 0. await returns when the process ends.
func (p *proxy) await(pid int) {
	p.exits.Go(func() {
		var status unix.WaitStatus
		for {
			// Until its own parent has gone, a successor is no child of this process, and the
			// result is ECHILD.
			got, err := unix.Wait4(pid, &status, unix.WNOHANG, nil)
			if got == pid {
				break
			}
			if errors.Is(err, unix.ECHILD) && syscall.Kill(pid, 0) != nil {
				break
			}
			time.Sleep(50 * time.Millisecond)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.ended[pid] = status
		if !p.leaving[pid] {
			p.verdict.Breach(invOutcomes, "the proxy ended by itself", "process %d, exit code %d, signal %v", pid, status.ExitStatus(), status.Signal())
		} else if status.ExitStatus() != 0 {
			p.verdict.Breach(invOutcomes, "a proxy that was told to go did not exit with 0", "process %d, exit code %d, signal %v", pid, status.ExitStatus(), status.Signal())
		}
	})
}

func (p *proxy) signal(pid int, sig syscall.Signal) error {
	if err := syscall.Kill(pid, sig); err != nil {
		return fmt.Errorf("send %v to the proxy: %w", sig, err)
	}
	return nil
}

// handOver makes the process start its successor and follows that. The old one must exit by itself
// after its requests have ended.
func (p *proxy) handOver(ctx context.Context) error {
	pid, _, _ := p.now()
	p.mu.Lock()
	p.leaving[pid] = true
	p.mu.Unlock()
	if err := p.signal(pid, syscall.SIGUSR2); err != nil {
		return err
	}
	line, err := p.log.awaitServing(ctx)
	if err != nil {
		return err
	}
	p.await(line.PID)
	p.follow(line)
	return nil
}

// replaced counts the processes that were told to end, and those of them that still run.
func (p *proxy) replaced() (told, running int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for pid := range p.leaving {
		if _, ok := p.ended[pid]; !ok {
			running++
		}
	}
	return len(p.leaving), running
}

// alone reports whether all processes except the one that accepts have ended.
func (p *proxy) alone() bool {
	_, running := p.replaced()
	return running == 0
}

// adopt makes this process the parent of the proxy's successors, so that it sees their exit codes, or
// ends that.
func adopt(on uintptr) error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, on, 0, 0, 0); err != nil {
		return fmt.Errorf("adopt the proxy's successors: %w", err)
	}
	return nil
}

// stop ends the process that accepts and waits for all of them. One that takes longer than bound is killed,
// which is a breach.
func (p *proxy) stop(bound time.Duration) error {
	pid, _, _ := p.now()
	p.mu.Lock()
	_, ended := p.ended[pid]
	p.leaving[pid] = true
	p.mu.Unlock()
	var err error
	if pid != 0 && !ended {
		err = p.signal(pid, syscall.SIGTERM)
	}
	late := time.AfterFunc(bound, func() { _ = p.signal(pid, syscall.SIGKILL) })
	defer late.Stop()
	p.exits.Wait()
	return err
}
