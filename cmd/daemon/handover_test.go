package daemon

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"xpyd/admin"
	"xpyd/cmd/config"
	"xpyd/router"
)

// A process that takes over tells its predecessor in any case. It tells the log only if it found nothing
// up.
func TestHandoverTellsWhatWasNotUp(t *testing.T) {
	for _, tc := range []struct {
		name string
		up   bool
		want string
	}{
		{"up", true, ""},
		{"not up", false, `"level":"warn","pid":` + strconv.Itoa(os.Getpid()) + `,"waited_ms":20,"message":"took over although it is not ready"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = r.Close() }()
			var logs bytes.Buffer
			h := &Inheritance{report: w}
			if err := h.announce(t.Context(), func() bool { return tc.up }, 20*time.Millisecond, "READY=1\n", zerolog.New(&logs)); err != nil {
				t.Fatal(err)
			}
			if told, err := io.ReadAll(r); err != nil || string(told) != "READY=1\n" {
				t.Errorf("the predecessor was told %q, %v", told, err)
			}
			if got := logs.String(); !strings.Contains(got, tc.want) || (got == "") != tc.up {
				t.Errorf("log %q, want %q", got, tc.want)
			}
		})
	}
}

func TestSuccessorThatSaysNothingIsEnded(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "mute")
	if err := os.WriteFile(path, []byte("#!/bin/sh\nexec sleep 1000\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	s, err := startSuccessor(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := s.await(t.Context(), 50*time.Millisecond)
	if got.err == nil || got.err.Error() != "no word from it after 50ms" {
		t.Errorf("%v", got.err)
	}
	if err := syscall.Kill(got.pid, 0); err != syscall.ESRCH {
		t.Errorf("it is there: %v", err)
	}
}

// slowEnd is a listener whose end is noticed only after noticed is closed.
type slowEnd struct {
	net.Listener
	noticed chan struct{}
}

func (l slowEnd) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		<-l.noticed
	}
	return conn, err
}

// A process that hands over closes its admin port. It ends without an error even if it ends before the
// server of that port has noticed.
func TestHandoverEndsBeforeTheAdminServer(t *testing.T) {
	cfg := config.Default()
	cfg.Listen, cfg.Admin, cfg.Router.Decode = "127.0.0.1:0", "127.0.0.1:0", router.MustEntries("http://127.0.0.1:1")
	p, err := openProxy(cfg, "test", &Inheritance{}, admin.Control{}, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	noticed := make(chan struct{})
	p.ports[1].Listener = slowEnd{p.ports[1].Listener, noticed}
	p.accept()
	fresh := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for _, addr := range []string{p.Addr, p.AdminAddr} { // both serve
		resp, err := fresh.Get("http://" + addr + "/livez")
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
	}
	if err := p.retire(t.Context()); err != nil {
		t.Error(err)
	}
	time.AfterFunc(100*time.Millisecond, func() { close(noticed) })
	if err := p.Shutdown(); err != nil {
		t.Error(err)
	}
}
