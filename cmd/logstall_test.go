package cmd

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// unread is `xpyd serve` with a log that has no reader after it serves.
type unread struct {
	*process
	log   *os.File // the reader's end
	lines *bufio.Reader
}

// dataPort and adminPort find the addresses in a line of either format.
var (
	dataPort  = regexp.MustCompile(`\blisten[":=]+([0-9.:]+)`)
	adminPort = regexp.MustCompile(`\badmin[":=]+([0-9.:]+)`)
)

// serveUnread starts the program over two engines, with the smallest possible pipe as its standard
// error.
func serveUnread(t *testing.T, args ...string) *unread {
	t.Helper()
	engP, engD := pairOfEngines(t, -1)
	args = append([]string{"serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0",
		"--prefill", engP.URL(), "--decode", engD.URL()}, args...)
	u := startUnread(t, args...)
	for u.addr == "" {
		line, err := u.lines.ReadBytes('\n')
		if err != nil {
			t.Fatalf("the process does not serve: %v", err)
		}
		if data, admin := dataPort.FindSubmatch(line), adminPort.FindSubmatch(line); data != nil && admin != nil {
			u.addr, u.admin = string(data[1]), string(admin[1])
		}
	}
	u.awaitReady()
	return u
}

// startUnread starts the program and does not read its log.
func startUnread(t *testing.T, args ...string) *unread {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(w.Fd(), unix.F_SETPIPE_SZ, 4096); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), actAsXpyd+"=1")
	cmd.Stderr = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	u := &unread{process: &process{t: t, cmd: cmd, ended: make(chan struct{})}, log: r, lines: bufio.NewReaderSize(r, 16)}
	go func() { _ = cmd.Wait(); close(u.ended) }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-u.ended
		_ = r.Close()
	})
	return u
}

// ask sends n completions, and all must be answered.
func (u *unread) ask(n int) {
	u.t.Helper()
	c := &client{addr: u.addr, kept: true}
	defer c.close()
	for i := range n {
		if _, err := c.ask(fmt.Sprintf("nobody reads the log of %d", i), 2, i%2 == 0); err != nil {
			u.t.Fatalf("request %d: %v", i, err)
		}
	}
}

// stop ends the process by TERM, and returns how it ended.
func (u *unread) stop() string {
	u.t.Helper()
	u.signal(u.cmd.Process.Pid, syscall.SIGTERM)
	u.exit()
	return u.cmd.ProcessState.String()
}

// completions reads the log until there were most lines about completions, or to its end if most is -1, and counts them.
func (u *unread) completions(most int) (n int) {
	u.t.Helper()
	for n != most {
		line, err := u.lines.ReadBytes('\n')
		if err != nil && len(line) == 0 {
			break
		}
		var l logLine
		if err := json.Unmarshal(line, &l); err != nil {
			u.t.Errorf("%q is no whole line", line)
		}
		if l.message() == "completion" {
			n++
		}
	}
	return n
}

// logKinds are the ways to log: several lines together, each line at once, and lines for people.
var logKinds = map[string][]string{
	"together": nil,
	"at once":  {"--log-flush", "0"},
	"console":  {"--log-format", "console"},
}

// A reader of the log that has stopped holds up neither a completion nor a signal.
func TestStalledLogReaderStopsNothing(t *testing.T) {
	t.Parallel()
	for name, args := range logKinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := serveUnread(t, append(args, "--log-level", "info")...)
			u.ask(100) // some 40 KiB of lines
			if how := u.stop(); how != "exit status 0" {
				t.Errorf("ended by TERM: %s", how)
			}
		})
	}
}

// The lines that a stalled reader kept waiting arrive after it reads again.
func TestStalledLogReaderGetsEveryLineLater(t *testing.T) {
	t.Parallel()
	u := serveUnread(t)
	u.ask(100)
	if n := u.completions(100); n != 100 {
		t.Errorf("%d lines of completions, want 100", n)
	}
	u.signal(u.cmd.Process.Pid, syscall.SIGTERM)
	if n := u.completions(-1); n != 0 {
		t.Errorf("%d more lines of completions", n)
	}
	if code := u.exit(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// A reader of the log that goes away does not end the process. A logging side-car may crash like that.
func TestLogReaderThatGoesAway(t *testing.T) {
	for name, args := range logKinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := serveUnread(t, args...)
			_ = u.log.Close()
			u.ask(20)
			eventually(t, "counted as dropped", func() bool { return u.metric("xpyd_log_lines_dropped_total") >= 10 })
			u.ask(1)
			if how := u.stop(); how != "exit status 0" {
				t.Errorf("ended by TERM: %s", how)
			}
		})
	}
}

// A process that cannot start ends, whether or not it can say why.
func TestFatalErrorWithAStalledReader(t *testing.T) {
	t.Parallel()
	u := startUnread(t, "serve", "--decode", "http://"+strings.Repeat("x", 1<<16)+"/?query")
	if code := u.exit(); code != exitUsage {
		t.Errorf("exit code %d", code)
	}
}

func TestFatalErrorReachesTheReader(t *testing.T) {
	t.Parallel()
	p := startSelf(t, "serve", "--decode", "nowhere")
	p.gone()
	if got := strings.Join(p.others, "\n"); !strings.HasPrefix(got, "xpyd: config: decode: ") {
		t.Errorf("it said %q", got)
	}
	if code := p.exit(); code != exitUsage {
		t.Errorf("exit code %d", code)
	}
}
