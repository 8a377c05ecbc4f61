package versus

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"xpyd/tools/process"
)

// counted are the calls that proxies make often enough to matter, as perf names them.
var counted = []string{
	"read", "write", "readv", "writev", "recvfrom", "sendto", "recvmsg", "sendmsg", "epoll_wait", "epoll_pwait", "epoll_ctl",
	"futex", "nanosleep", "sched_yield", "poll", "ppoll", "accept4", "connect", "socket", "close", "setsockopt", "getsockopt", "ioctl", "madvise",
}

// Calls are the calls of one contender, for each request or event of the shape.
type Calls struct {
	Contender string             `json:"contender"`
	Unit      string             `json:"unit"` // what a number is for
	Per       map[string]float64 `json:"per"`  // by name; "all" is every call, "switches" context switches
}

func (c Calls) String() string {
	return fmt.Sprintf("%s: %.2f system calls %s (%s), %.2f context switches", c.Contender, c.Per["all"], c.Unit, c.list(), c.Per["switches"])
}

// list returns the calls, most frequent first.
func (c Calls) list() string {
	var parts []string
	for name, n := range c.Per {
		if n >= 0.005 && name != "all" && name != "switches" {
			parts = append(parts, fmt.Sprintf("%s %.2f", name, n))
		}
	}
	slices.SortFunc(parts, func(a, b string) int {
		x, y := a[:strings.IndexByte(a, ' ')], b[:strings.IndexByte(b, ' ')]
		if c.Per[x] != c.Per[y] {
			return int(math.Copysign(1, c.Per[y]-c.Per[x]))
		}
		return strings.Compare(x, y)
	})
	return strings.Join(parts, ", ")
}

// calls counts the calls of each contender, after its measurements. It notes what cannot be
// counted.
func (r *run) calls(ctx context.Context, load string, s shape, contenders []contender, result *Shape) {
	for _, c := range contenders {
		var calls Calls
		err := r.stage(ctx, load, s, c, func(p *running, dir string) (asked int, err error) {
			if p.Process == nil {
				return 0, nil
			}
			calls, asked, err = r.callsOf(ctx, load, s, p, dir)
			return asked, err
		})
		switch {
		case err != nil:
			r.note("%s, %s, %s: %v", s.name, load, c.name, err)
		case calls.Per != nil:
			calls.Contender = c.name
			result.Calls = append(result.Calls, calls)
		}
	}
}

func (r *run) callsOf(ctx context.Context, load string, s shape, p *running, dir string) (calls Calls, asked int, err error) {
	if err := settle(ctx, s, p); err != nil {
		return calls, 0, err
	}
	pids, err := process.Descendants(p.PID())
	if err != nil {
		return calls, 0, err
	}
	counter, err := startCalls(ctx, pids, dir)
	if err != nil {
		return calls, 0, err
	}
	seen, err := runLoad(ctx, load, p.addr, r.load(s), func(last bool) error {
		if last {
			return counter.tell("disable")
		}
		return counter.tell("enable")
	})
	counts, err2 := counter.stop()
	if err := errors.Join(err, err2); err != nil {
		return calls, 0, err
	}
	calls.Unit, asked = "a request", seen.Requests
	n := seen.Requests
	if slices.Contains(s.metrics, cpuEvent) {
		calls.Unit, n = "an event", seen.Events
	}
	calls.Per = map[string]float64{}
	for name, count := range counts {
		calls.Per[name] = count / float64(max(1, n))
	}
	return calls, asked, nil
}

// callCounter is `perf stat` on the threads of a process. It counts in the kernel and stops no
// thread, unlike strace.
type callCounter struct {
	cmd      *exec.Cmd
	out      string
	ctl, ack *os.File
}

// startCalls attaches to all processes. Nothing is counted until enable.
func startCalls(ctx context.Context, pids []int, dir string) (*callCounter, error) {
	c := &callCounter{out: filepath.Join(dir, "perf.txt")}
	ctl, ack := filepath.Join(dir, "perf.ctl"), filepath.Join(dir, "perf.ack")
	if err := errors.Join(syscall.Mkfifo(ctl, 0o600), syscall.Mkfifo(ack, 0o600)); err != nil {
		return nil, fmt.Errorf("count system calls: %w", err)
	}
	events := []string{"raw_syscalls:sys_enter", "context-switches"}
	for _, name := range counted {
		events = append(events, "syscalls:sys_enter_"+name)
	}
	var list []string
	for _, pid := range pids {
		list = append(list, strconv.Itoa(pid))
	}
	c.cmd = exec.CommandContext(ctx, "perf", "stat", "-x", ";", "-o", c.out, "-D", "-1", "--control", "fifo:"+ctl+","+ack,
		"-e", strings.Join(events, ","), "-p", strings.Join(list, ","))
	c.cmd.Cancel = func() error { return c.cmd.Process.Signal(syscall.SIGINT) }
	c.cmd.WaitDelay = 5 * time.Second
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	var said bytes.Buffer
	c.cmd.Stderr = &said
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("count system calls: %w", err)
	}
	var err1, err2 error
	c.ctl, err1 = os.OpenFile(ctl, os.O_RDWR, 0) // so that this does not wait for perf if it ends
	c.ack, err2 = os.OpenFile(ack, os.O_RDWR, 0)
	return c, errors.Join(err1, err2)
}

// tell sends a command and waits until perf has carried it out.
func (c *callCounter) tell(command string) error {
	if _, err := c.ctl.WriteString(command + "\n"); err != nil {
		return fmt.Errorf("count system calls: %w", err)
	}
	if err := c.ack.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return fmt.Errorf("count system calls: %w", err)
	}
	if line, err := bufio.NewReader(c.ack).ReadString('\n'); err != nil || !strings.HasPrefix(line, "ack") {
		return fmt.Errorf("count system calls: perf answers %q to %s: %w", line, command, err)
	}
	return nil
}

// stop ends perf and reads what it has counted.
func (c *callCounter) stop() (map[string]float64, error) {
	_ = c.cmd.Process.Signal(syscall.SIGINT)
	_ = c.cmd.Wait() // the signal ends it
	_ = c.ctl.Close()
	_ = c.ack.Close()
	text, err := os.ReadFile(c.out)
	if err != nil {
		return nil, fmt.Errorf("count system calls: %w", err)
	}
	return parseCalls(string(text))
}

// parseCalls reads perf's lines of value;unit;event;…
func parseCalls(text string) (map[string]float64, error) {
	counts := map[string]float64{}
	for line := range strings.Lines(text) {
		fields := strings.Split(strings.TrimSpace(line), ";")
		if len(fields) < 3 || strings.HasPrefix(line, "#") {
			continue
		}
		n, err := strconv.ParseFloat(fields[0], 64)
		if err != nil {
			continue // <not counted> means that the process did nothing
		}
		name := strings.TrimPrefix(fields[2], "syscalls:sys_enter_")
		switch fields[2] {
		case "raw_syscalls:sys_enter":
			name = "all"
		case "context-switches":
			name = "switches"
		}
		counts[name] += n
	}
	if counts["all"] == 0 {
		return nil, fmt.Errorf("system calls are not counted: %s", whyNoCounts(text))
	}
	return counts, nil
}

// whyNoCounts says in one line why perf's output holds no counts.
func whyNoCounts(text string) string {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case line == "", strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "<not counted>"):
			return "perf saw none of the process's threads run while it watched"
		case strings.HasPrefix(line, "<not supported>"):
			return "this kernel has none of the events"
		default:
			return fmt.Sprintf("perf says %.120q", line)
		}
	}
	return "perf wrote nothing"
}
