package cmd

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"xpyd/sim"
)

// actAsXpyd makes the test binary the program, for tests of processes and signals.
const actAsXpyd = "TEST_BINARY_IS_XPYD"

func TestMain(m *testing.M) {
	if os.Getenv(actAsXpyd) != "" {
		os.Exit(Run(os.Args[1:]))
	}
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", strconv.Itoa(testsPerCore*runtime.GOMAXPROCS(0))) // fails for what is no number
	}
	os.Exit(m.Run())
}

// patience is far longer than anything here takes on a busy machine.
const patience = 20 * time.Second

// process is `xpyd serve` in a process of its own, with the successors that it starts. They all write
// to one log.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	ended  chan struct{} // closed when the first process has ended
	closed chan struct{} // closed when all processes have ended

	mu     sync.Mutex
	grown  *sync.Cond
	lines  []logLine
	others []string // lines that are not JSON
	eof    bool
	addr   string // of the data port
	admin  string
}

type logLine map[string]any

func (l logLine) message() string { s, _ := l["message"].(string); return s }

func (l logLine) pid(key string) int {
	n, _ := l[key].(float64)
	return int(n)
}

// serveProcess starts the program over the engines and waits until it is ready.
func serveProcess(t *testing.T, prefill, decode []string, args ...string) *process {
	t.Helper()
	all := []string{"serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}
	if len(decode) > 0 {
		all = append(all, "--prefill", strings.Join(prefill, ","), "--decode", strings.Join(decode, ","))
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := startProcess(t, exec.Command(self, append(all, args...)...))
	p.serving(1)
	p.awaitReady()
	return p
}

// startProcess starts cmd as the program. At the end of the test no process of it may be alive. It must
// have written only log lines, and the error that ended it.
func startProcess(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(cmd.Env, os.Environ()...)
	cmd.Env = append(cmd.Env, actAsXpyd+"=1")
	cmd.Stderr = w
	p := &process{t: t, cmd: cmd, ended: make(chan struct{}), closed: make(chan struct{})}
	p.grown = sync.NewCond(&p.mu)
	err = cmd.Start()
	_ = w.Close()
	if err != nil {
		t.Fatal(err)
	}
	go p.read(r)
	go func() { _ = cmd.Wait(); close(p.ended) }()
	t.Cleanup(p.cleanup)
	return p
}

func (p *process) read(r io.ReadCloser) {
	defer func() { _ = r.Close() }()
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		var l logLine
		err := json.Unmarshal(lines.Bytes(), &l)
		p.mu.Lock()
		if err != nil {
			p.others = append(p.others, lines.Text())
		} else if l.message() != "completion" {
			p.lines = append(p.lines, l)
		}
		p.mu.Unlock()
		p.grown.Broadcast()
	}
	p.mu.Lock()
	p.eof = true
	p.mu.Unlock()
	p.grown.Broadcast()
	close(p.closed)
}

func (p *process) cleanup() {
	select {
	case <-p.closed:
	default:
		p.mu.Lock()
		pids := []int{p.cmd.Process.Pid}
		for _, l := range p.lines {
			if l.message() == "serving" {
				pids = append(pids, l.pid("pid"))
			}
		}
		p.mu.Unlock()
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		<-p.closed
	}
	<-p.ended
	for _, line := range p.others {
		if !strings.HasPrefix(line, "xpyd: ") {
			p.t.Errorf("a process said %q", line)
		}
	}
	if p.t.Failed() {
		for _, l := range p.lines[max(0, len(p.lines)-40):] {
			p.t.Log(l)
		}
		p.t.Log(p.others)
	}
}

// await waits for the n-th line of the log with this message.
func (p *process) await(n int, message string) logLine {
	p.t.Helper()
	defer time.AfterFunc(patience, p.grown.Broadcast).Stop()
	deadline := time.Now().Add(patience)
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		left := n
		for _, l := range p.lines {
			if l.message() == message {
				if left--; left == 0 {
					return l
				}
			}
		}
		if p.eof || time.Now().After(deadline) {
			p.t.Fatalf("the log lacks line %d that says %q", n, message)
		}
		p.grown.Wait()
	}
}

// count returns how often the log says message.
func (p *process) count(message string) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.lines {
		if l.message() == message {
			n++
		}
	}
	return n
}

// serving waits for the n-th process and returns its id. The ports are those of the first.
func (p *process) serving(n int) int {
	p.t.Helper()
	l := p.await(n, "serving")
	if p.addr == "" {
		p.addr, _ = l["listen"].(string)
		p.admin, _ = l["admin"].(string)
	}
	return l.pid("pid")
}

func (p *process) signal(pid int, s syscall.Signal) {
	p.t.Helper()
	if err := syscall.Kill(pid, s); err != nil {
		p.t.Fatalf("%v to process %d: %v", s, pid, err)
	}
}

// handOver makes process n hand over to process n+1, and returns the id of the latter.
func (p *process) handOver(n int) int {
	p.t.Helper()
	p.signal(p.serving(n), syscall.SIGUSR2)
	if got, want := p.await(n, "handed over; draining").pid("pid"), p.serving(n); got != want {
		p.t.Errorf("process %d says that it handed over, want %d", got, want)
	}
	return p.serving(n + 1)
}

// exit waits for the end of the first process and returns its exit code.
func (p *process) exit() int {
	p.t.Helper()
	p.awaitClosed(p.ended, "the end of the first process")
	return p.cmd.ProcessState.ExitCode()
}

// gone waits for the end of all processes.
func (p *process) gone() {
	p.t.Helper()
	p.awaitClosed(p.closed, "the end of all processes")
}

func (p *process) awaitClosed(c <-chan struct{}, what string) {
	p.t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		p.t.Fatalf("no sight of %s", what)
	}
}

// fresh is a client that opens a connection for each request.
var fresh = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

func (p *process) get(addr, path string) (int, string) {
	p.t.Helper()
	resp, err := fresh.Get("http://" + addr + path)
	if err != nil {
		p.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func (p *process) awaitReady() {
	p.t.Helper()
	eventually(p.t, "ready", func() bool {
		status, _ := p.get(p.addr, "/readyz")
		return status == 200
	})
}

// metric returns the sum of the series that begin with name.
func (p *process) metric(name string) float64 {
	p.t.Helper()
	_, text := p.get(p.admin, "/metrics")
	sum := 0.0
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, name) {
			var v float64
			if _, err := fmt.Sscan(line[strings.LastIndexByte(line, ' ')+1:], &v); err != nil {
				p.t.Fatalf("%q: %v", line, err)
			}
			sum += v
		}
	}
	return sum
}

// eventually polls until another process has made ok true.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not %s after %s", what, patience)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func startEngine(t *testing.T, o sim.Options) *sim.Engine {
	t.Helper()
	e, err := sim.Start(o.Fast())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

func urls(engines ...*sim.Engine) []string {
	var all []string
	for _, e := range engines {
		all = append(all, e.URL())
	}
	return all
}
