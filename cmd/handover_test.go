package cmd

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"xpyd/sim"
)

func dial(addr string) (*connection, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	return &connection{conn, bufio.NewReader(conn)}, nil
}

// traffic sends completions without a break until stop. It uses fresh connections, and kept ones with
// random pauses between two requests. It keeps the first errors.
type traffic struct {
	addr string
	wg   sync.WaitGroup
	stop chan struct{}
	done atomic.Int64

	mu     sync.Mutex
	errors []error
}

func startTraffic(addr string, clients int) *traffic {
	l := &traffic{addr: addr, stop: make(chan struct{})}
	for i := range clients {
		l.wg.Go(func() { l.run(i) })
	}
	return l
}

func (l *traffic) run(i int) {
	c := &client{addr: l.addr, kept: i%2 == 0}
	defer c.close()
	for n := 0; ; n++ {
		if c.kept {
			time.Sleep(rand.N(8 * time.Millisecond)) // the server must not close between two requests
		}
		select {
		case <-l.stop:
			return
		default:
		}
		_, err := c.ask(fmt.Sprintf("client %d request %d", i, n), 4, n%2 == 0)
		l.done.Add(1)
		if err != nil {
			l.failed(fmt.Errorf("client %d (kept %v) request %d: %w", i, c.kept, n, err))
		}
	}
}

func (l *traffic) failed(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.errors) < 10 {
		l.errors = append(l.errors, err)
	}
}

// more waits until n more requests have been answered.
func (l *traffic) more(t *testing.T, n int64) {
	t.Helper()
	want := l.done.Load() + n
	eventually(t, fmt.Sprintf("%d more requests done", n), func() bool { return l.done.Load() >= want })
}

// end stops the clients and checks that no request has failed.
func (l *traffic) end(t *testing.T) {
	t.Helper()
	close(l.stop)
	l.wg.Wait()
	for _, err := range l.errors {
		t.Error(err)
	}
	t.Logf("%d requests", l.done.Load())
}

// longStreams begins n streams and returns when each has its first bytes. Each channel later delivers
// the error of its stream, or nil for a whole answer.
func longStreams(t *testing.T, addr string, n, tokens int) []<-chan error {
	t.Helper()
	var all []<-chan error
	for i := range n {
		conn, err := dial(addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		prompt := fmt.Sprintf("long stream %d", i)
		resp, err := conn.send(prompt, tokens, true, false)
		if err != nil {
			t.Fatal(err)
		}
		result := make(chan error, 1)
		go func() { result <- wholeAnswer(resp, prompt, tokens, true) }()
		all = append(all, result)
	}
	return all
}

func pairOfEngines(t *testing.T, latency time.Duration) (p, d *sim.Engine) {
	t.Helper()
	p = startEngine(t, sim.Options{Name: "p", Role: sim.RolePrefill})
	d = startEngine(t, sim.Options{Name: "d", Role: sim.RoleDecode, TokenLatency: latency, MaxSeqs: 256})
	return p, d
}

func TestHandoverUnderLoad(t *testing.T) {
	t.Parallel()
	engP, engD := pairOfEngines(t, 2*time.Millisecond)
	p := serveProcess(t, urls(engP), urls(engD), "--timeouts-idle", "8s") // no client rests for as long, on a busy machine too
	l := startTraffic(p.addr, 16)
	l.more(t, 100)
	var streams []<-chan error
	for n := range 2 {
		streams = append(streams, longStreams(t, p.addr, 4, 400)...)
		p.handOver(n + 1)
		l.more(t, 200)
	}
	if code := p.exit(); code != 0 {
		t.Errorf("the first process ended with %d", code)
	}
	for i, s := range streams {
		if err := <-s; err != nil {
			t.Errorf("stream %d: %v", i, err)
		}
	}
	l.more(t, 100)
	l.end(t)
	p.signal(p.serving(3), syscall.SIGTERM)
	p.gone()
	stopped := map[int]bool{}
	for n := range 3 {
		stopped[p.await(n+1, "stopped").pid("pid")] = true
	}
	for n := range 3 {
		if pid := p.serving(n + 1); !stopped[pid] {
			t.Errorf("process %d did not say that it stopped", pid)
		}
	}
	if got := p.await(1, "draining; a second signal cuts what still runs, a third ends at once").pid("pid"); got != p.serving(3) {
		t.Errorf("process %d says that it drains", got)
	}
	eventually(t, "free of pinned blocks", func() bool { return engP.Ledger().Pinned == 0 })
	if got := engP.Ledger(); got.Pinned != 0 || got.FreedBy["lease"] != 0 || got.StaleReads != 0 {
		t.Errorf("prefill: %d blocks pinned, %v, %d stale reads", got.Pinned, got.FreedBy, got.StaleReads)
	}
}

// A connection that is idle during the hand-over gets an answer to its next request, which tells it to
// close. One that sends nothing more ends by timeouts.idle.
func TestHandoverServesIdleConnections(t *testing.T) {
	t.Parallel()
	engP, engD := pairOfEngines(t, -1)
	p := serveProcess(t, urls(engP), urls(engD), "--timeouts-idle", "8s") // the hand-over is over by then
	resting, silent := &client{addr: p.addr, kept: true}, &client{addr: p.addr, kept: true}
	for _, c := range []*client{resting, silent} {
		t.Cleanup(c.close)
		if closing, err := c.ask("before", 3, false); err != nil || closing {
			t.Fatalf("closing %v, %v", closing, err)
		}
	}
	p.handOver(1)
	if status, _ := p.get(p.addr, "/readyz"); status != 200 {
		t.Errorf("readiness flaps: %d", status)
	}
	if closing, err := resting.ask("after", 3, true); err != nil || !closing {
		t.Errorf("closing %v, %v", closing, err)
	}
	if code := p.exit(); code != 0 {
		t.Errorf("the first process ended with %d", code)
	}
	if _, err := silent.conn.ReadByte(); err == nil {
		t.Error("the silent connection got an answer to nothing")
	}
	p.signal(p.serving(2), syscall.SIGTERM)
	p.gone()
}

// A process that has handed over and still has streams ends them on TERM as any other does.
func TestTermAfterHandover(t *testing.T) {
	t.Parallel()
	engP, engD := pairOfEngines(t, 5*time.Millisecond)
	p := serveProcess(t, urls(engP), urls(engD))
	first := p.serving(1)
	idle := &client{addr: p.addr, kept: true}
	t.Cleanup(idle.close)
	if _, err := idle.ask("keeps its connection", 3, false); err != nil {
		t.Fatal(err)
	}
	streams := longStreams(t, p.addr, 2, 100)
	second := p.handOver(1)
	p.signal(first, syscall.SIGTERM)
	for _, s := range streams {
		if err := <-s; err != nil {
			t.Error(err)
		}
	}
	if code := p.exit(); code != 0 {
		t.Errorf("the first process ended with %d", code)
	}
	p.signal(second, syscall.SIGTERM)
	p.gone()
}

// A successor that cannot serve leaves everything as it was.
func TestHandoverThatFails(t *testing.T) {
	t.Parallel()
	engP, engD := pairOfEngines(t, -1)
	good := fmt.Sprintf("prefill: [%s]\ndecode: [%s]\n", engP.URL(), engD.URL())
	for _, tc := range []struct{ name, config, want string }{
		{"no such key", good + "listn: nowhere\n", "exit status 2"},
		{"port in use", good + "admin: " + strings.TrimPrefix(engP.URL(), "http://") + "\n", "exit status 1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			file := writeFile(t, "xpyd.yaml", good+"listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\n", 0o600)
			p := startSelf(t, "serve", "--config", file)
			pid := p.serving(1)
			p.awaitReady()
			if err := os.WriteFile(file, []byte(tc.config), 0o600); err != nil {
				t.Fatal(err)
			}
			p.signal(pid, syscall.SIGUSR2)
			l := p.await(1, "the hand-over failed; this process serves on")
			if why, _ := l["error"].(string); !strings.Contains(why, tc.want) {
				t.Errorf("error %q, want %q", why, tc.want)
			}
			c := &client{addr: p.addr}
			if _, err := c.ask("still there", 3, true); err != nil {
				t.Error(err)
			}
			if got := p.metric("xpyd_config_last_reload_successful"); got != 0 {
				t.Errorf("last reload successful: %v", got)
			}
			if err := os.WriteFile(file, []byte(good+"listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			second := p.handOver(1)
			if code := p.exit(); code != 0 {
				t.Errorf("the first process ended with %d", code)
			}
			if _, err := c.ask("served by the next", 3, false); err != nil {
				t.Error(err)
			}
			p.signal(second, syscall.SIGTERM)
			p.gone()
		})
	}
}

// startSelf starts the program with these arguments.
func startSelf(t *testing.T, args ...string) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return startProcess(t, exec.Command(self, args...))
}

// The successor runs the file that lies at the executable's path when it starts.
func TestHandoverRunsTheReplacedExecutable(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "xpyd")
	install := func(write func(to string) error) {
		t.Helper()
		if err := write(path + ".new"); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	install(func(to string) error { return os.Symlink(self, to) })
	_, d := pairOfEngines(t, -1)
	p := startProcess(t, exec.Command(path, "serve", "--decode", d.URL(), "--listen", "127.0.0.1:0", "--admin", ""))
	pid := p.serving(1)
	install(func(to string) error { return os.WriteFile(to, []byte("#!/bin/sh\nexit 7\n"), 0o700) })
	p.signal(pid, syscall.SIGUSR2)
	l := p.await(1, "the hand-over failed; this process serves on")
	if why, _ := l["error"].(string); !strings.Contains(why, "exit status 7") {
		t.Errorf("error %q", why)
	}
	install(func(to string) error { return os.Symlink(self, to) })
	second := p.handOver(1)
	p.signal(second, syscall.SIGTERM)
	p.gone()
}

// While a successor starts, another USR2 does nothing, and TERM ends both.
func TestSecondHandoverAndTermWhileOneIsUnderWay(t *testing.T) {
	t.Parallel()
	engP, engD := pairOfEngines(t, -1)
	p := serveProcess(t, urls(engP), urls(engD))
	pid := p.serving(1)
	engP.Freeze() // the successor does not find it up, and waits
	engD.Freeze()
	p.signal(pid, syscall.SIGUSR2)
	l := p.await(1, "USR2: started a successor")
	p.signal(pid, syscall.SIGUSR2)
	p.await(1, "a successor is being started already; this USR2 does nothing")
	p.signal(pid, syscall.SIGTERM)
	p.await(1, "the hand-over was given up: this process stops")
	if n := p.count("the hand-over failed; this process serves on"); n != 0 {
		t.Error("a process that stops says that it serves on")
	}
	if code := p.exit(); code != 0 {
		t.Errorf("ended with %d", code)
	}
	p.gone()
	if err := syscall.Kill(l.pid("successor"), 0); err != syscall.ESRCH {
		t.Errorf("the successor is there: %v", err)
	}
}

// An address that the configuration has changed is opened, and the old one closes.
func TestHandoverToAnotherAddress(t *testing.T) {
	t.Parallel()
	_, d := pairOfEngines(t, -1)
	text := func(listen string) string { return "decode: [" + d.URL() + "]\nlisten: " + listen + "\nadmin: \"\"\n" }
	file := writeFile(t, "xpyd.yaml", text("127.0.0.1:0"), 0o600)
	p := startSelf(t, "serve", "--config", file)
	pid := p.serving(1)
	if err := os.WriteFile(file, []byte(text("127.0.0.2:0")), 0o600); err != nil {
		t.Fatal(err)
	}
	p.signal(pid, syscall.SIGUSR2)
	second := p.serving(2)
	to, _ := p.await(2, "serving")["listen"].(string)
	if !strings.HasPrefix(to, "127.0.0.2:") {
		t.Fatalf("the successor listens on %s", to)
	}
	if code := p.exit(); code != 0 {
		t.Errorf("the first process ended with %d", code)
	}
	c := &client{addr: to}
	if _, err := c.ask("at the new address", 3, false); err != nil {
		t.Error(err)
	}
	if conn, err := net.Dial("tcp", p.addr); err == nil {
		_ = conn.Close()
		t.Error("the old address is open")
	}
	p.signal(second, syscall.SIGTERM)
	p.gone()
}
