package proxy_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"xpyd/proxy"
	"xpyd/router"
	"xpyd/sim"
)

// tap copies connections to a server, and keeps what each client sends.
type tap struct {
	ln net.Listener
	to string

	mu   sync.Mutex
	sent []*bytes.Buffer
}

func newTap(t *testing.T, to string) *tap {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &tap{ln: ln, to: strings.TrimPrefix(to, "http://")}
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go w.copy(conn)
		}
	}()
	return w
}

func (w *tap) copy(conn net.Conn) {
	engine, err := net.Dial("tcp", w.to)
	if err != nil {
		_ = conn.Close()
		return
	}
	w.mu.Lock()
	kept := &bytes.Buffer{}
	w.sent = append(w.sent, kept)
	w.mu.Unlock()
	go func() {
		_, _ = io.Copy(conn, engine)
		_, _ = conn.Close(), engine.Close()
	}()
	_, _ = io.Copy(writerFunc(func(b []byte) (int, error) {
		w.mu.Lock()
		kept.Write(b)
		w.mu.Unlock()
		return engine.Write(b)
	}), conn)
	_, _ = conn.Close(), engine.Close()
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// requests reads the heads that have come so far: method and path, and the lines.
func (w *tap) requests(t *testing.T) (all []*http.Request) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, sent := range w.sent {
		r := bufio.NewReader(bytes.NewReader(sent.Bytes()))
		for {
			req, err := http.ReadRequest(r)
			if err != nil {
				break // the end, or a request that is still coming
			}
			_, _ = io.Copy(io.Discard, req.Body)
			all = append(all, req)
		}
	}
	return all
}

// Whatever lines a client writes, each request of it reaches a rank's engine with exactly one line of the
// header, and it is xpyd's: legs, and what is relayed.
func TestOneLineNamesTheRank(t *testing.T) {
	taps := []*tap{}
	r := newRig(t, rigOptions{router: func(c *router.Config) {
		c.Routing.Poll = 10 * time.Millisecond
		for _, pool := range []*[]router.Entry{&c.Prefill, &c.Decode} {
			other, err := sim.Start(sim.Options{Name: "other"}.Fast())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = other.Close() })
			front, err := sim.StartRanks(other.URL(), (*pool)[0].URL)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = front.Close() })
			w := newTap(t, front.URL())
			taps, *pool = append(taps, w), router.MustEntries("http://"+w.ln.Addr().String()+"@1")
		}
	}, config: func(c *proxy.Config) { c.Routes.Pass = []string{"POST /x/classify"} }})
	ask := func(lines, text string) {
		t.Helper()
		conn := r.dialRaw()
		defer func() { _ = conn.Close() }()
		_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
		_, _ = io.WriteString(conn, strings.Replace(text, "Host: x\r\n", "Host: x\r\n"+lines, 1))
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Fatal(err)
		}
	}
	body := `{"model":"sim","prompt":"one two","input":"x"}`
	for i, lines := range []string{
		"", "X-data-parallel-rank: 0\r\n", "x-DATA-parallel-rank: 0\r\nX-Data-Parallel-Rank: 2\r\n", "X_data_parallel_rank: 0\r\n",
		"X-data-parallel-rank: 0\r\nConnection: x-data-parallel-rank\r\n", "X-data-parallel-rank:\r\n",
	} {
		for j, c := range forms(prompt, 2) {
			ask(lines, raw(c, fmt.Sprint("id", i, j)))
		}
		for _, path := range []string{"/tokenize", "/v1/embeddings", "/x/classify"} {
			ask(lines, fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body))
		}
	}
	for i, w := range taps {
		want := []string{"/health", "/metrics", "/v1/models", "/v1/completions", "/v1/chat/completions"}
		if i == 1 {
			want = append(want, "/tokenize", "/v1/embeddings", "/x/classify")
		}
		seen := map[string]int{}
		r.await("all seen", func() bool {
			clear(seen)
			for _, req := range w.requests(t) {
				seen[req.URL.Path]++
			}
			return !slices.ContainsFunc(want, func(path string) bool { return seen[path] == 0 })
		})
		for _, req := range w.requests(t) {
			var lines []string
			for name, values := range req.Header {
				if strings.EqualFold(strings.ReplaceAll(name, "_", "-"), "X-Data-Parallel-Rank") {
					lines = append(lines, values...)
				}
			}
			want := []string{"1"}
			if slices.Contains([]string{"/health", "/v1/models", "/version"}, req.URL.Path) {
				want = nil // the port's own answers, which are about no rank
			}
			if !slices.Equal(lines, want) {
				t.Errorf("%s %s came with the ranks %q, want %q", req.Method, req.URL.Path, lines, want)
			}
		}
	}
}
