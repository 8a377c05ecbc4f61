package daemon

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/pflag"

	"xpyd/cmd/config"
	"xpyd/sim"
)

// lockedBuffer is a log that may be read while it is written.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) count(text string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Count(b.buf.String(), text)
}

// keyed is a process whose clients need keys out of a file.
type keyed struct {
	t    *testing.T
	file string
	addr string
	log  lockedBuffer
	look chan time.Time
	hup  chan os.Signal
}

func startKeyed(t *testing.T) *keyed {
	t.Helper()
	d, err := sim.Start(sim.Options{Role: sim.RoleBoth}.Fast())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	k := &keyed{t: t, file: filepath.Join(t.TempDir(), "keys.yaml"), look: make(chan time.Time), hup: make(chan os.Signal)}
	k.write("first")
	load := func(ctx context.Context) (config.Config, error) {
		fs := pflag.NewFlagSet("xpyd", pflag.ContinueOnError)
		config.AddFlags(fs)
		if err := fs.Parse([]string{"--listen=127.0.0.1:0", "--admin=127.0.0.1:0", "--decode", d.URL(), "--keys-file", k.file}); err != nil {
			return config.Config{}, err
		}
		return config.Load(ctx, config.NewFiles(true), fs, nil)
	}
	cfg, err := load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	log := zerolog.New(&k.log)
	p, err := Start(cfg, "test", log)
	if err != nil {
		t.Fatal(err)
	}
	k.addr = p.Addr
	rekey := func(ctx context.Context, c config.Config) (config.Config, error) {
		return c.RereadKeys(ctx, config.NewFiles(true), nil)
	}
	l := lifetime{Proxy: p, cfg: cfg, endSigns: func() {}, load: load, rekey: rekey, look: k.look, exe: "/nonexistent/xpyd", log: log, hup: k.hup}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, err := l.await(ctx)
		ended <- err
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		http.DefaultClient.CloseIdleConnections()
		if err := p.Shutdown(); err != nil {
			t.Error(err)
		}
	})
	return k
}

// write puts keys of these names into the file. A name of no key makes the file useless.
func (k *keyed) write(names ...string) {
	k.t.Helper()
	text := "keys:\n"
	for _, name := range names {
		text += fmt.Sprintf("  - {name: %s, sha256: \"%x\"}\n", name, sha256.Sum256([]byte("sk-"+name)))
	}
	if err := os.WriteFile(k.file, []byte(text), 0o600); err != nil {
		k.t.Fatal(err)
	}
}

func (k *keyed) status(name string) int {
	k.t.Helper()
	req, err := http.NewRequest(http.MethodPost, "http://"+k.addr+"/v1/completions", strings.NewReader(`{"model":"sim","prompt":"abcdefgh","max_tokens":3}`))
	if err != nil {
		k.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer sk-"+name)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		k.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// await has the process do something until what follows from it is there.
func (k *keyed) await(what string, act func(), ok func() bool) {
	k.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); {
		if time.Now().After(deadline) {
			k.t.Fatalf("not %s after 20 s", what)
		}
		act()
		time.Sleep(5 * time.Millisecond)
	}
}

// New keys hold once the file has changed, and after a HUP. A file that cannot be used changes nothing,
// and the log says so once.
func TestKeysAreFollowed(t *testing.T) {
	k := startKeyed(t)
	look := func() { k.look <- time.Time{} }
	k.await("served", func() {}, func() bool { return k.status("first") == 200 })
	if got := k.status("second"); got != 401 {
		t.Fatalf("a key that is not there: %d", got)
	}
	k.write("first", "second")
	k.await("the second key known", look, func() bool { return k.status("second") == 200 })

	k.write()
	k.await("the useless file told", look, func() bool { return k.log.count("keys not reloaded") > 0 })
	for range 3 {
		look()
	}
	if got := k.status("first"); got != 200 || k.log.count("keys not reloaded") != 1 {
		t.Errorf("with a useless file: %d, told %d times", got, k.log.count("keys not reloaded"))
	}

	k.write("second", "third")
	k.await("the third key known", func() {}, func() bool {
		k.hup <- syscall.SIGHUP
		return k.status("third") == 200
	})
	if got := k.status("first"); got != 401 {
		t.Errorf("a key that is gone: %d", got)
	}
	if k.log.count("sk-") != 0 {
		t.Error("a key in the log")
	}
}
