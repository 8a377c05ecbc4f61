package versus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// clockTick is the unit of CPU times in /proc, 100 a second on every Linux.
const clockTick = 10 * time.Millisecond

// process is a proxy under test, and what it has started.
type process struct {
	cmd    *exec.Cmd
	output string // the file that its standard output and error go to
	ended  chan struct{}
	err    error // how it ended; read after ended
}

// startProcess runs a program in a process group of its own, with its output in a file.
func startProcess(ctx context.Context, output string, env []string, name string, args ...string) (*process, error) {
	out, err := os.OpenFile(output, os.O_CREATE|os.O_TRUNC|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	defer func() { _ = out.Close() }() // the child has its own
	p := &process{cmd: exec.CommandContext(ctx, name, args...), output: output, ended: make(chan struct{})}
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
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

// stop ends the process group; what does not end within 3 s is killed.
func (p *process) stop() {
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
func (p *process) tail() string {
	b, err := os.ReadFile(p.output)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(b[max(0, len(b)-600):]))
}

// awaitLine waits for a line of its output that holds mark.
func (p *process) awaitLine(ctx context.Context, mark string) ([]byte, error) {
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

// usage is what a process and all its descendants use.
type usage struct {
	cpu float64 // seconds of user and system time so far, all threads
	rss float64 // bytes
}

func (p *process) usage() (usage, error) {
	var sum usage
	pids, err := descendants(p.cmd.Process.Pid)
	if err != nil {
		return sum, err
	}
	for _, pid := range pids {
		cpu, err := cpuOf(pid)
		if err != nil {
			return sum, err
		}
		rss, err := rssOf(pid)
		if err != nil {
			return sum, err
		}
		sum.cpu += cpu
		sum.rss += rss
	}
	return sum, nil
}

// descendants lists a process and those below it.
func descendants(root int) ([]int, error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	children := map[int][]int{}
	for _, path := range stats {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			continue
		}
		fields, err := statFields(pid)
		if err != nil {
			continue // it has ended since
		}
		parent, err := strconv.Atoi(fields[1])
		if err != nil {
			return nil, fmt.Errorf("read the parent of process %d: %w", pid, err)
		}
		children[parent] = append(children[parent], pid)
	}
	all := []int{root}
	for i := 0; i < len(all); i++ {
		all = append(all, children[all[i]]...)
	}
	return all, nil
}

// statFields are the fields of /proc/PID/stat from the third on: the second, the name in
// parentheses, may hold spaces.
func statFields(pid int) ([]string, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, fmt.Errorf("read process %d: %w", pid, err)
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 13 {
		return nil, fmt.Errorf("read process %d: %d fields", pid, len(fields))
	}
	return fields, nil
}

// cpuOf is user and system time of all threads, those that have ended too, in seconds.
func cpuOf(pid int) (float64, error) {
	fields, err := statFields(pid)
	if err != nil {
		return 0, err
	}
	user, err1 := strconv.Atoi(fields[11])
	system, err2 := strconv.Atoi(fields[12])
	return float64(user+system) * clockTick.Seconds(), errors.Join(err1, err2)
}

func rssOf(pid int) (float64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, fmt.Errorf("read the memory of process %d: %w", pid, err)
	}
	fields := strings.Fields(string(b))
	if len(fields) < 2 {
		return 0, fmt.Errorf("read the memory of process %d: %q", pid, b)
	}
	pages, err := strconv.Atoi(fields[1])
	return float64(pages * os.Getpagesize()), err
}
