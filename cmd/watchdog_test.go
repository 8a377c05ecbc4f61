package cmd

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// notifySocket hears what processes say to systemd, and which process says it. It reads all the time, as
// systemd does, because a process waits once ten messages (net.unix.max_dgram_qlen) are unread.
type notifySocket struct {
	t    *testing.T
	said chan said // closed with the socket
	path string
}

type said struct {
	pid  int
	text string
	err  error
}

func newNotifySocket(t *testing.T) *notifySocket {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	_ = raw.Control(func(fd uintptr) {
		err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_PASSCRED, 1)
	})
	if err != nil {
		t.Fatal(err)
	}
	s := &notifySocket{t: t, said: make(chan said, 10_000), path: path}
	go s.listen(conn)
	return s
}

// listen reads until the socket is closed.
func (s *notifySocket) listen(conn *net.UnixConn) {
	defer close(s.said)
	for b, oob := make([]byte, 1024), make([]byte, 128); ; {
		n, m, _, _, err := conn.ReadMsgUnix(b, oob)
		if err != nil {
			return
		}
		it := said{text: string(b[:n])}
		messages, err := syscall.ParseSocketControlMessage(oob[:m])
		if err == nil && len(messages) != 1 {
			err = fmt.Errorf("%d control messages", len(messages))
		}
		if it.err = err; err == nil {
			var from *syscall.Ucred
			if from, it.err = syscall.ParseUnixCredentials(&messages[0]); it.err == nil {
				it.pid = int(from.Pid)
			}
		}
		s.said <- it
	}
}

// heard is the next message.
func (s *notifySocket) heard() (pid int, text string) {
	s.t.Helper()
	select {
	case it := <-s.said:
		if it.err != nil {
			s.t.Fatalf("%q: %v", it.text, it.err)
		}
		return it.pid, it.text
	case <-time.After(patience):
		s.t.Fatalf("nothing said in %s", patience)
		return 0, ""
	}
}

// end fails if more was said than was heard.
func (s *notifySocket) end() {
	s.t.Helper()
	// The socket keeps the order of what is said.
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: s.path, Net: "unixgram"})
	if err != nil {
		s.t.Fatal(err)
	}
	_, err = conn.Write([]byte("the end"))
	_ = conn.Close()
	if err != nil {
		s.t.Fatal(err)
	}
	if _, text := s.heard(); text != "the end" {
		s.t.Errorf("%q was said after all that was expected", text)
	}
}

// systemd gets signs of life from its main process. After a hand-over that is the successor, and its
// predecessor gives none, although it still has a stream.
func TestWatchdogOverAHandover(t *testing.T) {
	t.Parallel()
	engP, engD := pairOfEngines(t, 50*time.Millisecond)
	s := newNotifySocket(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/bin/sh", "-c", `WATCHDOG_PID=$$ exec "$0" "$@"`, self, "serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0",
		"--prefill", engP.URL(), "--decode", engD.URL())
	cmd.Env = []string{"NOTIFY_SOCKET=" + s.path, "WATCHDOG_USEC=400000"}
	p := startProcess(t, cmd)
	first := p.serving(1)
	p.awaitReady()
	for n := 0; n < 3; {
		pid, text := s.heard()
		if pid != first {
			t.Errorf("process %d said %q", pid, text)
		}
		if text == "WATCHDOG=1" {
			n++
		}
	}
	streams := longStreams(t, p.addr, 1, 2000)
	second := p.handOver(1)
	for text := ""; !strings.HasPrefix(text, "MAINPID="+strconv.Itoa(second)); {
		_, text = s.heard()
	}
	for range 3 {
		if pid, text := s.heard(); pid != second || text != "WATCHDOG=1" {
			t.Errorf("process %d said %q after the hand-over from %d to %d", pid, text, first, second)
		}
	}
	if err := syscall.Kill(first, 0); err != nil {
		t.Errorf("the first process has ended: %v", err)
	}
	p.signal(first, syscall.SIGKILL)
	<-streams[0]
	p.signal(second, syscall.SIGTERM)
	p.gone()
}

// unitValue returns the first value of a key in a unit.
func unitValue(t *testing.T, unit, key string) string {
	t.Helper()
	m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(key) + `=(.*)$`).FindStringSubmatch(readText(t, unit))
	if m == nil {
		t.Fatalf("%s has no %s", unit, key)
	}
	return m[1]
}

// systemd must not take a crash for a wrong configuration, which it does not restart. A crash is a
// panic, or the SIGABRT of the watchdog. Go's own exit status for both is 2.
func TestUnitRestartsAfterACrash(t *testing.T) {
	t.Parallel()
	_, d := pairOfEngines(t, -1)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const unit = "configs/xpyd.service"
	if got := unitValue(t, unit, "RestartPreventExitStatus"); got != strconv.Itoa(exitUsage) {
		t.Errorf("RestartPreventExitStatus=%s", got)
	}
	s := newNotifySocket(t)
	cmd := exec.Command("/bin/sh", "-c", `ulimit -c 0; exec "$0" serve --listen 127.0.0.1:0 --admin "" --decode "$1"`, self, d.URL())
	cmd.Env = []string{actAsXpyd + "=1", "NOTIFY_SOCKET=" + s.path, unitValue(t, unit, "Environment")}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, text := s.heard(); !strings.HasPrefix(text, "READY=1") {
		t.Errorf("first %q", text)
	}
	_ = cmd.Process.Signal(syscall.SIGABRT)
	_ = cmd.Wait()
	if status := cmd.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() {
		t.Errorf("a crash ends with %v, want a signal", cmd.ProcessState)
	}
}
