package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// child is a process that this one has started, and ends.
type child struct {
	cmd   *exec.Cmd
	input io.Closer // closing it is the end of the child's standard input
	lines *bufio.Reader
	read  chan struct{} // closed when its output has ended
	term  func() error  // sends SIGTERM, once: a second one would cut the proxy's drain short
}

// clockTick is the unit of CPU times in /proc, 100 a second on every Linux.
const clockTick = 10 * time.Millisecond

// startChild runs the program with its standard error to be read from lines.
func startChild(ctx context.Context, name string, args ...string) (*child, error) {
	c := &child{cmd: exec.CommandContext(ctx, name, args...), read: make(chan struct{})}
	c.term = sync.OnceValue(func() error { return c.cmd.Process.Signal(syscall.SIGTERM) })
	c.cmd.Cancel = c.term
	// A group of its own: Ctrl-C reaches this process alone, which then ends the child.
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.cmd.WaitDelay = 5 * time.Second
	input, err := c.cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", args, err)
	}
	c.input = input
	output, err := c.cmd.StderrPipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", args, err)
	}
	c.lines = bufio.NewReader(output)
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", args, err)
	}
	return c, nil
}

// await decodes the first JSON line that contains mark into v, and drops what comes
// after it.
func (c *child) await(mark string, v any) error {
	var seen []byte
	for {
		line, err := c.lines.ReadBytes('\n')
		if bytes.Contains(line, []byte(mark)) {
			go c.discard()
			if err := json.Unmarshal(line, v); err != nil {
				return fmt.Errorf("read %q: %w", line, err)
			}
			return nil
		}
		seen = append(seen, line...)
		if err != nil || len(seen) > 64<<10 {
			go c.discard()
			return fmt.Errorf("await %s: the process wrote %.400q", mark, seen)
		}
	}
}

func (c *child) discard() {
	_, _ = io.Copy(io.Discard, c.lines) // ends with the process
	close(c.read)
}

// stop ends the process and waits for it; await must have been called.
func (c *child) stop() error {
	_ = c.input.Close()
	_ = c.term() // fails where the end of its input has ended it already
	<-c.read
	if err := c.cmd.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("end %s: %w", c.cmd.Args[1:], err)
	}
	return nil
}

// cpu is the seconds of user and system time so far.
func (c *child) cpu() (float64, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.cmd.Process.Pid))
	if err != nil {
		return 0, fmt.Errorf("read CPU time: %w", err)
	}
	// The name, in parentheses, may hold spaces; utime and stime are the 12th and 13th
	// field behind it.
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, fmt.Errorf("read CPU time: %d fields", len(fields))
	}
	user, err1 := strconv.Atoi(fields[11])
	system, err2 := strconv.Atoi(fields[12])
	return float64(user+system) * clockTick.Seconds(), errors.Join(err1, err2)
}

// rss is the resident memory in bytes.
func (c *child) rss() (float64, error) {
	return residentMemory(c.cmd.Process.Pid)
}

// Pools are the URLs of engines, as the process that runs them prints them.
type Pools struct {
	Prefill []string `json:"prefill_engines"`
	Decode  []string `json:"decode_engines"`
}

func startEngines(ctx context.Context, executable string) (*child, Pools, error) {
	var pools Pools
	c, err := startChild(ctx, executable, "engines")
	if err != nil {
		return nil, pools, err
	}
	if err := c.await(`"prefill_engines"`, &pools); err != nil {
		return nil, pools, errors.Join(err, c.stop())
	}
	return c, pools, nil
}

func startServe(ctx context.Context, executable string, pools Pools) (c *child, addr, admin string, err error) {
	c, err = startChild(ctx, executable, "serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0",
		"--prefill", strings.Join(pools.Prefill, ","), "--decode", strings.Join(pools.Decode, ","))
	if err != nil {
		return nil, "", "", err
	}
	var serving struct{ Listen, Admin string }
	if err := c.await(`"message":"serving"`, &serving); err != nil {
		return nil, "", "", errors.Join(err, c.stop())
	}
	return c, serving.Listen, serving.Admin, nil
}
