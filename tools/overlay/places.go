package overlay

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// Places lets processes run side by side. No more of them compute at a time than there are processors, because a
// test that lacks one may fail for that. A process that only waits, for a timer or for what never comes, takes
// nothing from the others, so it gives its place back.
type Places struct {
	computing chan struct{} // has the processes that may compute
	running   chan struct{} // has them all, because each needs memory
	look      time.Duration // from one look at what a process has used to the next
}

// NewPlaces has as many places as the machine has processors, and at least two.
func NewPlaces() *Places {
	n := max(2, runtime.NumCPU())
	return &Places{
		computing: make(chan struct{}, n),
		running:   make(chan struct{}, 8*n),
		look:      200 * time.Millisecond,
	}
}

// Run runs a command once there is a place for it, and returns what it has written and how long it ran.
func (p *Places) Run(ctx context.Context, cmd *exec.Cmd) (output []byte, took time.Duration, err error) {
	for _, place := range []chan struct{}{p.running, p.computing} {
		select {
		case place <- struct{}{}:
		case <-ctx.Done():
			if place == p.computing {
				<-p.running
			}
			return nil, 0, ctx.Err()
		}
	}
	var written bytes.Buffer
	cmd.Stdout, cmd.Stderr = &written, &written
	start := time.Now()
	if err = cmd.Start(); err != nil {
		<-p.computing
	} else {
		ended, free := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(free)
			p.untilItWaits(cmd.Process.Pid, ended)
			<-p.computing
		}()
		err = cmd.Wait()
		close(ended)
		<-free
	}
	<-p.running
	return written.Bytes(), time.Since(start), err
}

// untilItWaits returns when a process and those that it has started have used no processor for three looks, or have
// ended. Where the system does not tell, it returns at the end.
func (p *Places) untilItWaits(pid int, ended <-chan struct{}) {
	looks := time.NewTicker(p.look)
	defer looks.Stop()
	for before, idle := -1, 0; idle < 3; {
		select {
		case <-ended:
			return
		case <-looks.C:
		}
		now := used(pid)
		// A clock tick is 10 ms: a process that wakes up now and then to look for something uses one or less.
		if idle++; before < 0 || now-before > 1 {
			idle = 0
		}
		before = now
	}
}

// used is the processor time of a process and of those that it has started, in clock ticks, and −1 if it is unknown.
func used(pid int) int {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return -1
	}
	// The name, in parentheses, may hold anything. The state follows, as field 3.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 15 {
		return -1
	}
	sum := 0
	for _, f := range fields[11:15] { // utime, stime, and those of children that have ended
		n, err := strconv.Atoi(f)
		if err != nil {
			return -1
		}
		sum += n
	}
	children, _ := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "task", "*", "children"))
	for _, name := range children {
		ids, _ := os.ReadFile(name)
		for id := range strings.FieldsSeq(string(ids)) {
			if child, err := strconv.Atoi(id); err == nil {
				sum += max(0, used(child))
			}
		}
	}
	return sum
}
