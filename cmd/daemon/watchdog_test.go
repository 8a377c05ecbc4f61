package daemon

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
)

// systemd is a notify socket. It delivers each message.
func systemd(t *testing.T) <-chan string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	heard := make(chan string, 100)
	go func() {
		b := make([]byte, 1024)
		for {
			n, err := conn.Read(b)
			if err != nil {
				return
			}
			heard <- string(b[:n])
		}
	}()
	return heard
}

// systemd gets signs of life while the loops turn, and none while one does not.
func TestWatchdogOfLoopsThatHang(t *testing.T) {
	heard := systemd(t)
	turned, hung := 0, make(chan struct{}, 100)
	turns := func(ctx context.Context) error {
		if turned++; turned <= 3 {
			return nil
		}
		<-ctx.Done()
		hung <- struct{}{}
		return errors.New("the loop does not turn")
	}
	var log bytes.Buffer
	stop := startWatchdog(40*time.Millisecond, turns, zerolog.New(&log))
	for range 3 {
		<-hung
	}
	stop()
	for range 3 {
		if got := <-heard; got != "WATCHDOG=1" {
			t.Errorf("heard %q", got)
		}
	}
	notify("the end")
	if got := <-heard; got != "the end" {
		t.Errorf("loops that hang gave the sign of life %q", got)
	}
	if got := log.String(); strings.Count(got, "no sign of life for systemd's watchdog") < 2 || !strings.Contains(got, "the loop does not turn") {
		t.Errorf("the log says %q", got)
	}
}

func TestWatchdogTime(t *testing.T) {
	for _, tc := range []struct {
		name, us, pid string
		want          time.Duration
	}{
		{"without systemd", "", "", 0},
		{"of this process", "30000000", "self", 30 * time.Second},
		{"of the process before this one", "30000000", "1", 0},
		{"handed over", "30000000", "", 30 * time.Second},
		{"no number", "soon", "self", 0},
		{"switched off", "0", "self", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Setenv("WATCHDOG_USEC", tc.us)
			t.Setenv("WATCHDOG_PID", tc.pid)
			switch tc.pid {
			case "self":
				t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
			case "":
				_ = os.Unsetenv("WATCHDOG_PID") // Setenv brings back what was there
			}
			if got := watchdogTime(); got != tc.want {
				t.Errorf("%v, want %v", got, tc.want)
			}
		})
	}
}

// systemd that reads no more holds nothing up.
func TestNotifySystemdThatHasStopped(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	systemd, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = systemd.Close() }()
	t.Setenv("NOTIFY_SOCKET", path)
	fill, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = fill.Close() }()
	for err == nil { // until its queue is full
		_ = fill.SetWriteDeadline(time.Now().Add(time.Second))
		_, err = fill.Write([]byte("WATCHDOG=1"))
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	told := make(chan struct{})
	go func() {
		defer close(told)
		notifyWithin(time.Millisecond, "STOPPING=1")
	}()
	select {
	case <-told:
	case <-time.After(30 * time.Second):
		t.Error("the process waits for systemd")
	}
}
