package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"
)

const (
	// successorTime is how long a successor may take from its start to its report.
	successorTime = 30 * time.Second
	// ReadyTime is how long a successor waits until its backends are found up. Without them it still
	// takes over, because its predecessor may be no better off.
	ReadyTime = 10 * time.Second
	// endTime is how long a successor that has given up may take to end.
	endTime = 10 * time.Second
	// reportSize bounds a report, in bytes.
	reportSize = 4 << 10
)

// successor is a process that is about to take the ports over. It runs the executable that is now
// where this process's was, with the same arguments and variables.
type successor struct {
	cmd    *exec.Cmd
	report *os.File // what it writes when it is ready: its state, in systemd's form
}

// takeover is the result of a successor's start.
type takeover struct {
	pid   int
	state string // READY=1 and STATUS=
	err   error  // why it did not start, and it is gone; errStopping if this process ends
}

var errStopping = errors.New("this process stops")

// Executable returns the path of the running program as it was called. It must be called at the start,
// because an upgrade may replace the file later. A symbolic link is not resolved, so that it may point
// at another version later.
func Executable() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find the executable: %w", err)
	}
	called, err := exec.LookPath(os.Args[0])
	if err == nil {
		called, err = filepath.Abs(called)
	}
	if err != nil {
		return self, nil
	}
	a, errA := os.Stat(called)
	b, errB := os.Stat(self)
	if errA != nil || errB != nil || !os.SameFile(a, b) {
		return self, nil
	}
	return called, nil
}

// startSuccessor starts exe with the ports that are open.
func startSuccessor(exe string, ports []port) (*successor, error) {
	cmd := exec.Command(exe, os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	report, theirs, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("open a pipe: %w", err)
	}
	cmd.ExtraFiles = []*os.File{theirs}
	defer func() {
		for _, f := range cmd.ExtraFiles {
			_ = f.Close()
		}
	}()
	var sockets []string
	for _, p := range ports {
		f, err := duplicate(p.Listener)
		if err != nil {
			_ = report.Close()
			return nil, fmt.Errorf("hand the %s socket over: %w", p.name, err)
		}
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
		sockets = append(sockets, p.name+"="+p.configured)
	}
	cmd.Env = append(os.Environ(), handoverEnv+"="+strings.Join(sockets, ","))
	if err := cmd.Start(); err != nil {
		_ = report.Close()
		return nil, err
	}
	return &successor{cmd: cmd, report: report}, nil
}

// duplicate returns a second descriptor of a listening socket. TCPListener.File cannot be used.
// os/exec would make its descriptor blocking, and with it the one that this process still accepts on.
func duplicate(ln net.Listener) (*os.File, error) {
	raw, err := ln.(*net.TCPListener).SyscallConn()
	if err != nil {
		return nil, err
	}
	dup := -1
	ctlErr := raw.Control(func(fd uintptr) {
		dup, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0)
	})
	if err = errors.Join(ctlErr, err); err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(dup), "listener"), nil
}

// await waits for the report. It kills a successor that ends without one, that takes longer than
// limit, or that has not reported when ctx ends. Such a successor has accepted nothing.
func (s *successor) await(ctx context.Context, limit time.Duration) takeover {
	defer func() { _ = s.report.Close() }()
	_ = s.report.SetReadDeadline(time.Now().Add(limit))
	defer context.AfterFunc(ctx, func() { _ = s.report.SetReadDeadline(time.Now()) })()
	state, err := io.ReadAll(io.LimitReader(s.report, reportSize))
	// The report is one write, so all of it has come, even if the end of the pipe has not.
	if strings.HasPrefix(string(state), "READY=1\n") {
		go func() { _ = s.cmd.Wait() }() // it usually outlives this process
		return takeover{pid: s.cmd.Process.Pid, state: string(state)}
	}
	patience := endTime // it has closed the pipe and is about to end
	if err != nil {
		patience = 0
	}
	kill := time.AfterFunc(patience, func() { _ = s.cmd.Process.Kill() })
	defer kill.Stop()
	_ = s.cmd.Wait()
	switch {
	case ctx.Err() != nil:
		err = errStopping
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = fmt.Errorf("no word from it after %s", limit)
	default:
		err = fmt.Errorf("it ended before it was ready: %s", s.cmd.ProcessState)
	}
	return takeover{pid: s.cmd.Process.Pid, err: err}
}

// announce tells the predecessor or systemd that this process is ready to accept. With a predecessor
// it first waits until completions can be served, for at most limit, so that readiness does not flap
// on the shared port. If the predecessor has ended by itself, no other process serves, so this one
// takes over at once. An error means that this process is not needed.
func (h *Inheritance) announce(ctx context.Context, ready func() bool, limit time.Duration, state string, log zerolog.Logger) error {
	if h.report == nil {
		notifyWithin(newsTime, state)
		return nil
	}
	found := awaitReady(ctx, func() bool { return ready() || h.orphaned() }, limit)
	if ctx.Err() != nil {
		return errors.New("told to stop before it had taken over")
	}
	// The predecessor reads until it ends. If it gives this process up, it kills it first.
	_, err := h.report.WriteString(state)
	alone := errors.Is(err, unix.EPIPE)
	if err != nil && !alone {
		return fmt.Errorf("tell the process before this one: %w", err)
	}
	h.Close() // ends the report
	switch {
	case alone:
		notifyWithin(newsTime, "MAINPID="+strconv.Itoa(os.Getpid())+"\n"+state)
		log.Warn().Int("pid", os.Getpid()).Msg("the process before this one ended before the hand-over; this one serves")
	case !found:
		log.Warn().Int("pid", os.Getpid()).Dur("waited_ms", limit).Msg("took over although it is not ready")
	}
	return nil
}

// orphaned reports whether the predecessor has stopped reading the report.
func (h *Inheritance) orphaned() bool {
	pipe := []unix.PollFd{{Fd: int32(h.report.Fd())}}
	n, err := unix.Poll(pipe, 0)
	return err == nil && n > 0 && pipe[0].Revents&unix.POLLERR != 0
}

// awaitReady reports whether ready came true within limit.
func awaitReady(ctx context.Context, ready func() bool, limit time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ready() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
	}
	return true
}
