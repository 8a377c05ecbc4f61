package daemon

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"xpyd/cmd/config"
	"xpyd/router"
	"xpyd/sim"
)

func startEngine(t *testing.T, o sim.Options) *sim.Engine {
	t.Helper()
	e, err := sim.Start(o.Fast())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

func complete(t *testing.T, addr, body string) (status int, answer string) {
	t.Helper()
	resp, err := http.Post("http://"+addr+"/v1/completions", "application/json", strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return resp.StatusCode, string(b)
}

func TestReload(t *testing.T) {
	held, release := make(chan struct{}, 1), make(chan struct{})
	hook := func(e sim.Event) {
		if e.Phase == sim.PhaseDecodeReceived && strings.HasPrefix(e.RequestID, "held-") {
			held <- struct{}{}
			<-release
		}
	}
	p1 := startEngine(t, sim.Options{Name: "p1", Role: sim.RolePrefill})
	d1 := startEngine(t, sim.Options{Name: "d1", Role: sim.RoleDecode, Hook: hook})
	d2 := startEngine(t, sim.Options{Name: "d2", Role: sim.RoleDecode})
	cfg := config.Default()
	cfg.Listen, cfg.Admin = "127.0.0.1:0", ""
	cfg.Warmup = false // one that runs during the reload may still ask d1
	cfg.Router.Prefill, cfg.Router.Decode = router.MustEntries(p1.URL()), router.MustEntries(d1.URL())
	p, err := Start(cfg, "test", zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		if err := p.Shutdown(); err != nil {
			t.Error(err)
		}
	})
	const body = `{"model":"sim","prompt":"abcdefgh","max_tokens":3}`
	running := make(chan int, 1)
	go func() {
		req, _ := http.NewRequest(http.MethodPost, "http://"+p.Addr+"/v1/completions", strings.NewReader(body))
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("X-Request-Id", "held")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			running <- 0
			return
		}
		_ = resp.Body.Close()
		running <- resp.StatusCode
	}()
	<-held

	for _, tc := range []struct {
		name, want string
		change     func(next *config.Config)
	}{
		{"other keys", "warmup, timeouts.dial changed: a reload changes the pools,", func(next *config.Config) {
			next.Timeouts.Dial *= 2
			next.Warmup = !next.Warmup
			next.Router.Decode = router.MustEntries(d2.URL())
		}},
		{"a first key", "api_keys: the first key cannot come", func(next *config.Config) {
			next.APIKeys = []string{"sk-other"}
			next.Router.Decode = router.MustEntries(d2.URL())
		}},
		{"no decode", "decode", func(next *config.Config) { next.Router.Decode = nil }},
	} {
		next := cfg
		tc.change(&next)
		err := p.reload(cfg, next)
		if err == nil || !strings.HasPrefix(err.Error(), tc.want) || strings.Contains(err.Error(), "sk-") {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
	}
	if n := len(d2.Requests()); n != 0 {
		t.Fatalf("d2 was asked %d times before it joined", n)
	}

	next := cfg
	next.Router.Decode = router.MustEntries(d2.URL())
	if err := p.reload(cfg, next); err != nil {
		t.Fatal(err)
	}
	before := len(d1.Requests())
	for range 4 {
		if status, answer := complete(t, p.Addr, body); status != 200 {
			t.Fatalf("%d %s", status, answer)
		}
	}
	if n := len(d1.Requests()); n != before {
		t.Errorf("the engine that left got %d new requests", n-before)
	}
	close(release)
	if status := <-running; status != 200 {
		t.Errorf("the request that ran during the reload ended with %d", status)
	}
	if err := p.reload(next, cfg); err != nil {
		t.Fatal(err)
	}
	if status, answer := complete(t, p.Addr, body); status != 200 {
		t.Errorf("back on the first pool: %d %s", status, answer)
	}
}

// A start that fails leaves the state file as it was: another configuration would drop what operators
// have changed, and the process that runs may be of the one before.
func TestStartThatFailsKeepsTheStateFile(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	state := filepath.Join(t.TempDir(), "state.json")
	before := []byte(`{"version":1,"edits":[{"url":"http://127.0.0.1:2","state":"drain"}]}`)
	if err := os.WriteFile(state, before, 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := config.Default()
	cfg.Listen, cfg.Admin, cfg.Router.Decode = "127.0.0.1:0", taken.Addr().String(), router.MustEntries("http://127.0.0.1:1")
	cfg.Members.StateFile = state
	if _, err := Start(cfg, "test", zerolog.Nop()); err == nil {
		t.Fatal("it has started on a port in use")
	}
	if after, err := os.ReadFile(state); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the state file has %s, %v", after, err)
	}
	cfg.Admin = ""
	p, err := Start(cfg, "test", zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	if after, err := os.ReadFile(state); err != nil || bytes.Contains(after, []byte("http://127.0.0.1:2")) {
		t.Errorf("after a start the state file has %s, %v", after, err)
	}
	if err := p.Shutdown(); err != nil {
		t.Error(err)
	}
}

func TestServeOnPortsInUse(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	addr := taken.Addr().String()
	const text = "listen: %s is in use; end its owner or choose another address (flag --%s, XPYD_%s)"
	for name, tc := range map[string]struct{ listen, admin, want string }{
		"data":  {addr, "127.0.0.1:0", fmt.Sprintf(text, addr, "listen", "LISTEN")},
		"admin": {"127.0.0.1:0", addr, "admin: " + fmt.Sprintf(text, addr, "admin", "ADMIN")},
	} {
		cfg := config.Default()
		cfg.Listen, cfg.Admin, cfg.Router.Decode = tc.listen, tc.admin, router.MustEntries("http://127.0.0.1:1")
		if _, err := Start(cfg, "test", zerolog.Nop()); err == nil || err.Error() != tc.want {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}
