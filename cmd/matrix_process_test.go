package cmd

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"xpyd/sim"
)

// child is a proxy in a process of its own.
type child struct {
	t           *testing.T
	addr, admin string
	mu          sync.Mutex
	logs        bytes.Buffer
}

// startChild runs "xpyd serve" over the engines, with env added to its environment. shell, if not empty,
// runs in the child first (ulimit). The process is ended with the test, and must end without an error.
func startChild(t *testing.T, engines []*sim.Engine, shell string, env []string, args ...string) *child {
	t.Helper()
	all := []string{"serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--timeouts-drain", "5s"}
	for _, e := range engines {
		all = append(all, map[bool]string{true: "--prefill", false: "--decode"}[strings.HasPrefix(e.Name(), "p")], e.URL())
	}
	cmd := exec.Command("/bin/sh", "-c", shell+`exec "$0" "$@"`, os.Args[0])
	cmd.Args = append(append(cmd.Args, all...), args...)
	cmd.Env = append(append(os.Environ(), env...), actAsXpyd+"=1")
	out, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &child{t: t}
	serving, read := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(read)
		c.follow(out, serving)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-read
		if err := cmd.Wait(); err != nil {
			t.Errorf("the child ended with %v\n%s", err, c.log())
		}
	})
	select {
	case <-serving:
	case <-read:
		t.Fatalf("the child does not serve\n%s", c.log())
	}
	c.await("up", func() bool { return c.metric("xpyd_backend_up") == float64(len(engines)) })
	return c
}

// follow keeps the child's log and reads its addresses from it.
func (c *child) follow(out io.Reader, serving chan struct{}) {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		c.mu.Lock()
		c.logs.Write(append(lines.Bytes(), '\n'))
		c.mu.Unlock()
		var l struct{ Message, Listen, Admin string }
		if json.Unmarshal(lines.Bytes(), &l) == nil && l.Message == "serving" {
			c.addr, c.admin = l.Listen, l.Admin
			close(serving)
		}
	}
}

func (c *child) log() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.logs.String()
}

func (c *child) await(what string, ok func() bool) {
	c.t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			c.t.Fatalf("not %s after %s\n%s", what, patience, c.log())
		}
	}
}

// metric sums the series that begin with name. It returns −1 if the child gives no answer.
func (c *child) metric(name string) float64 {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 2 * time.Second}
	resp, err := client.Get("http://" + c.admin + "/metrics")
	if err != nil {
		return -1
	}
	defer func() { _ = resp.Body.Close() }()
	sum := 0.0
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if line := lines.Text(); strings.HasPrefix(line, name) {
			var v float64
			_, _ = fmt.Sscan(line[strings.LastIndexByte(line, ' ')+1:], &v)
			sum += v
		}
	}
	return sum
}

// expectIdle waits until the child holds nothing, and the engines hold nothing for it.
func (c *child) expectIdle(engines []*sim.Engine) {
	c.t.Helper()
	for _, gauge := range []string{"xpyd_in_flight{", "xpyd_request_bytes_buffered", "xpyd_kv_blocks_pinned", "xpyd_kv_blocks_stranded"} {
		c.await(gauge+" 0", func() bool { return c.metric(gauge) == 0 })
	}
	for _, e := range engines {
		c.await(e.Name()+" free of pinned blocks", func() bool { return e.Ledger().Pinned == 0 })
	}
}

const childPrompt = "the quick brown fox jumps over the lazy dog"

// complete sends one completion on a connection of its own and reports whether the answer was right.
func (c *child) complete(pad int) (status int, code string, whole bool) {
	prompt := childPrompt + strings.Repeat(" and", pad/4)
	body := fmt.Sprintf(`{"model":"sim","prompt":%q,"max_tokens":8}`, prompt)
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 3 * patience}
	resp, err := client.Post("http://"+c.addr+"/v1/completions", "application/json", strings.NewReader(body))
	if err != nil {
		return 0, err.Error(), false
	}
	defer func() { _ = resp.Body.Close() }()
	var a struct {
		Choices []struct{ Text string }
		Error   struct{ Code string }
	}
	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil {
		return resp.StatusCode, err.Error(), false
	}
	return resp.StatusCode, a.Error.Code, resp.StatusCode == 200 && len(a.Choices) == 1 && a.Choices[0].Text == sim.Text(prompt, 8)
}

// atOnce runs n completions at a time and counts their ends by status and code. "200" counts only right
// answers.
func (c *child) atOnce(n, pad int) map[string]int {
	var mu sync.Mutex
	var wg sync.WaitGroup
	ends := map[string]int{}
	for range n {
		wg.Go(func() {
			status, code, whole := c.complete(pad)
			end := "200"
			if !whole {
				end = fmt.Sprintf("%d %s", status, code)
			}
			mu.Lock()
			defer mu.Unlock()
			ends[end]++
		})
	}
	wg.Wait()
	return ends
}

func pair(t *testing.T, edit func(o *sim.Options)) []*sim.Engine {
	var all []*sim.Engine
	for _, o := range []sim.Options{{Name: "p1", Role: sim.RolePrefill}, {Name: "d1", Role: sim.RoleDecode}} {
		if edit != nil {
			edit(&o)
		}
		all = append(all, startEngine(t, o))
	}
	return all
}

// open makes n connections to the child, which are closed at the end of the test at the latest.
func (c *child) open(n int) (conns []net.Conn) {
	c.t.Helper()
	for range n {
		conn, err := net.DialTimeout("tcp", c.addr, patience)
		if err != nil {
			c.t.Fatalf("connection %d: %v", len(conns), err)
		}
		c.t.Cleanup(func() { _ = conn.Close() })
		conns = append(conns, conn)
	}
	return conns
}

// T26: more clients than descriptors. The last tenth of the descriptors is for backends. Clients with a
// place are served, and the others get an error at once. No backend is blamed, and no block is stranded.
func TestOutOfDescriptors(t *testing.T) {
	t.Parallel()
	engines := pair(t, nil)
	c := startChild(t, engines, "ulimit -n 64; ", nil, "--timeouts-upstream-idle", "1ms", "--timeouts-dial", "10s") // each leg dials, on a busy machine too
	if ends := c.atOnce(4, 0); ends["200"] != 4 {
		t.Fatalf("before: %v", ends)
	}
	var conns []net.Conn
	for range 100 {
		conn := c.open(1)[0]
		_, _ = io.WriteString(conn, "POST ") // an idle one would go for the next
		conns = append(conns, conn)
	}
	_ = conns[99].SetReadDeadline(time.Now().Add(patience))
	resp, err := http.ReadResponse(bufio.NewReader(conns[99]), nil)
	if err != nil || resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" {
		t.Fatalf("one client too many: %v %v, want a 503 with Retry-After", resp, err)
	}
	body := fmt.Sprintf(`{"model":"sim","prompt":%q,"max_tokens":8}`, childPrompt)
	for _, conn := range conns[:20] {
		_, _ = fmt.Fprintf(conn, "/v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	}
	for i, conn := range conns[:20] {
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatalf("request %d: no answer on a connection that was open: %v", i, err)
		}
		b, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != 200 || !strings.Contains(string(b), sim.Text(childPrompt, 8)) {
			t.Errorf("request %d: %d %s %v", i, resp.StatusCode, b, err)
		}
	}
	for _, conn := range conns {
		_ = conn.Close()
	}
	c.await("served again", func() bool { return c.atOnce(1, 0)["200"] == 1 })
	for _, name := range []string{"xpyd_backend_ejections_total", "xpyd_kv_orphans_total", `xpyd_decisions_total{path="decode_only"`} {
		if n := c.metric(name); n != 0 {
			t.Errorf("%s %v", name, n)
		}
	}
	if strings.Contains(c.log(), "refused") || strings.Contains(c.log(), `"state":"down"`) || strings.Contains(c.log(), "backend fails") {
		t.Errorf("a backend was blamed\n%s", c.log())
	}
	c.expectIdle(engines)
}

// T26: idle connections have all descriptors. The longest idle ones go, so that others are served.
func TestIdleConnectionsMakeRoom(t *testing.T) {
	t.Parallel()
	engines := pair(t, nil)
	c := startChild(t, engines, "ulimit -n 64; ", nil, "--timeouts-upstream-idle", "1ms", "--timeouts-dial", "10s", "--timeouts-header", "1h")
	conns := c.open(40)
	var used []net.Conn
	ask := func(conn net.Conn) error {
		_ = conn.SetDeadline(time.Now().Add(patience))
		_, _ = io.WriteString(conn, "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err == nil && resp.StatusCode != 200 {
			err = fmt.Errorf("status %d", resp.StatusCode)
		}
		return err
	}
	served := func() bool { // it stays open and idle
		conn := c.open(1)[0]
		used = append(used, conn)
		return ask(conn) == nil
	}
	for i := range 40 { // those of the first second have no right to a place yet
		c.await(fmt.Sprintf("client %d served beside idle ones", i), served)
	}
	_ = conns[0].SetReadDeadline(time.Now().Add(patience))
	if n, err := conns[0].Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("the longest idle connection: %d %v, want it closed", n, err)
	}
	if err := ask(used[len(used)-1]); err != nil {
		t.Errorf("the last connection: %v, want it open", err)
	}
	if ends := c.atOnce(4, 0); ends["200"] != 4 {
		t.Errorf("completions beside idle connections: %v", ends)
	}
}

// T26: a heap limit far below what the process needs, one processor, and more request bytes than
// may be held. Some requests are refused, none gets a wrong answer, and nothing is left.
func TestLittleMemory(t *testing.T) {
	t.Parallel()
	engines := pair(t, func(o *sim.Options) { o.MaxModelLen, o.NumBlocks = 1<<20, 1<<17 })
	c := startChild(t, engines, "", []string{"GOMEMLIMIT=8MiB", "GOMAXPROCS=1"},
		"--limits-body", "2000000", "--limits-body-budget", "4000000", "--limits-client-share", "1",
		"--health-fall", "100", "--timeouts-dial", "10s") // a busy machine fails checks
	if ends := c.atOnce(50, 0); ends["200"] != 50 {
		t.Errorf("small requests: %v", ends)
	}
	ends := c.atOnce(24, 1<<20)
	for end, n := range ends { // some are refused during the upload and see the end of the connection before the answer
		if strings.HasPrefix(end, "0 ") && (strings.Contains(end, "connection reset") || strings.Contains(end, "broken pipe")) {
			ends["503 overloaded"] += n
			delete(ends, end)
		}
	}
	if ends["200"] == 0 || ends["503 overloaded"] == 0 || len(ends) != 2 {
		t.Errorf("large requests: %v, want some served and some refused as overloaded", ends)
	}
	if ends := c.atOnce(50, 0); ends["200"] != 50 {
		t.Errorf("small requests again: %v", ends)
	}
	c.expectIdle(engines)
}
