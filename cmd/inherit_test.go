package cmd

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// activate starts the program as systemd does for a socket unit. The files are its descriptors from 3
// on, and the variables have the id of the process itself.
func activate(t *testing.T, names string, files []*os.File, args ...string) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/bin/sh", append([]string{"-c", `LISTEN_PID=$$ exec "$0" "$@"`, self}, args...)...)
	cmd.ExtraFiles = files
	cmd.Env = []string{"LISTEN_FDS=" + strconv.Itoa(len(files)), "LISTEN_FDNAMES=" + names}
	return startProcess(t, cmd)
}

// listening returns a socket as systemd opens it, and its address.
func listening(t *testing.T) (*os.File, string) {
	t.Helper()
	var plain net.ListenConfig
	plain.SetMultipathTCP(false) // systemd opens it like this
	ln, err := plain.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	return socketFile(t, ln.(*net.TCPListener)), ln.Addr().String()
}

func socketFile(t *testing.T, s interface{ File() (*os.File, error) }) *os.File {
	t.Helper()
	f, err := s.File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func TestSocketActivation(t *testing.T) {
	t.Parallel()
	_, d := pairOfEngines(t, -1)
	data, dataAddr := listening(t)
	admin, adminAddr := listening(t)
	for _, tc := range []struct {
		name, names string
		files       []*os.File
	}{
		{"one socket of the unit's name", "xpyd.socket", []*os.File{data}},
		{"both", "admin:data", []*os.File{admin, data}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := activate(t, tc.names, tc.files, "serve", "--decode", d.URL(), "--admin", "", "--listen", "127.0.0.1:1")
			p.serving(1)
			p.awaitReady()
			if p.addr != dataAddr {
				t.Errorf("listens on %s, the socket is %s", p.addr, dataAddr)
			}
			if len(tc.files) == 2 && p.admin != adminAddr {
				t.Errorf("admin listens on %s, the socket is %s", p.admin, adminAddr)
			}
			if len(tc.files) == 1 && p.admin != "" {
				t.Errorf("admin listens on %s", p.admin)
			}
			second := p.handOver(1)
			c := &client{addr: dataAddr}
			if _, err := c.ask("over the socket of systemd", 3, true); err != nil {
				t.Error(err)
			}
			p.signal(second, syscall.SIGTERM)
			p.gone()
		})
	}
}

// While no process runs, connections wait in the socket that systemd holds.
func TestSocketActivationKeepsConnectionsOverARestart(t *testing.T) {
	t.Parallel()
	_, d := pairOfEngines(t, -1)
	socket, addr := listening(t)
	args := []string{"serve", "--decode", d.URL(), "--admin", ""}
	p := activate(t, "data", []*os.File{socket}, args...)
	p.serving(1)
	p.awaitReady()
	p.signal(p.serving(1), syscall.SIGTERM)
	p.gone()
	c := &client{addr: addr}
	var err error
	if c.conn, err = dial(addr); err != nil {
		t.Fatal(err)
	}
	answer := make(chan error, 1)
	go func() {
		_, err := c.ask("came while nobody was there", 3, false)
		answer <- err
	}()
	next := activate(t, "data", []*os.File{socket}, args...)
	if err := <-answer; err != nil {
		t.Error(err)
	}
	next.signal(next.serving(1), syscall.SIGTERM)
	next.gone()
}

func TestInheritedDescriptorsThatMakeNoSense(t *testing.T) {
	t.Parallel()
	socket, addr := listening(t)
	other, _ := listening(t)
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	connected := socketFile(t, conn.(*net.TCPConn))
	unix, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close() })
	plain, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = plain.Close() })
	for _, tc := range []struct {
		name, names string
		files       []*os.File
		code        int
		want        string
	}{
		{"a connection", "data", []*os.File{connected}, exitUsage, "descriptor 3 (data) is no listening socket (Accept=no, ListenStream=)"},
		{"no socket", "data", []*os.File{plain}, exitUsage, "descriptor 3 (data) is no listening socket"},
		{"unknown name", "data:metrics", []*os.File{socket, other}, exitUsage, `socket "metrics": want the names data and admin (FileDescriptorName=)`},
		{"one name twice", "data:data", []*os.File{socket, other}, exitUsage, `two sockets are named "data"`},
		{"names missing", "", []*os.File{socket, other}, exitUsage, `socket "": want the names data and admin`},
		{"a unix socket", "data", []*os.File{socketFile(t, unix.(*net.UnixListener))}, exitFailure, "want TCP, got unix"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := activate(t, tc.names, tc.files, "serve", "--decode", "http://127.0.0.1:1")
			if code := p.exit(); code != tc.code {
				t.Errorf("exit code %d, want %d", code, tc.code)
			}
			p.gone()
			if got := strings.Join(p.others, "\n"); !strings.Contains(got, tc.want) {
				t.Errorf("it said %q, want %q", got, tc.want)
			}
		})
	}
}

// During a hand-over and a stop, systemd hears once that the main process changes. Only the main process
// says that it stops.
func TestNotifications(t *testing.T) {
	t.Parallel()
	_, d := pairOfEngines(t, -1)
	s := newNotifySocket(t)
	heard := func() string {
		t.Helper()
		_, text := s.heard()
		return text
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "serve", "--decode", d.URL(), "--listen", "127.0.0.1:0", "--admin", "")
	cmd.Env = []string{"NOTIFY_SOCKET=" + s.path}
	p := startProcess(t, cmd)
	const ready = "READY=1\nSTATUS=0 prefill, 1 decode"
	if got := heard(); got != ready {
		t.Errorf("first %q", got)
	}
	p.serving(1)
	second := p.handOver(1)
	if got, want := heard(), "MAINPID="+strconv.Itoa(second)+"\n"+ready; got != want {
		t.Errorf("then %q, want %q", got, want)
	}
	p.exit()
	p.signal(second, syscall.SIGTERM)
	if got := heard(); got != "STOPPING=1" {
		t.Errorf("last %q", got)
	}
	p.gone()
	s.end()
}
