package proxy_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"xpyd/proxy"
	"xpyd/router"
	"xpyd/sim"
)

// expectWithoutPools fails unless c is served on that path, or, without a path, refused with that
// code in its first round.
func (r *rig) expectWithoutPools(t *testing.T, c call, path, code, when string) (took time.Duration) {
	t.Helper()
	start := time.Now()
	a := r.call(c)
	took = time.Since(start)
	if path != "" {
		if r.expectWhole(c, a); a.header.Get("X-Xpyd-Path") != path {
			t.Errorf("%s: served %s, want %s", when, a.header.Get("X-Xpyd-Path"), path)
		}
		return took
	}
	if a.status != 503 || a.code() != code || a.header.Get("Retry-After") == "" {
		t.Errorf("%s: %d %s %v, want 503 %s and Retry-After", when, a.status, a.code(), a.header, code)
	}
	line := regexp.MustCompile(`"request_id":"` + a.header.Get("X-Request-Id") + `".*"rounds":1,`)
	r.await("told of one round", func() bool { return line.MatchString(r.logs.String()) })
	return took
}

// T21: whole pools die and come back. What cannot be served is refused at once, with a Retry-After,
// and before any prefill. The health checks find what returns.
func TestWholePoolsDieAndComeBack(t *testing.T) {
	together(t)
	for _, tc := range []struct {
		name             string
		prefill, decode  bool // die
		decodeOnly       bool // decode_only.enabled
		refused, serving string
	}{
		{"prefill, decode alone serves", true, false, true, "", "decode_only"},
		{"prefill, decode may not", true, false, false, "prefill_unavailable", ""},
		{"decode", false, true, true, "decode_unavailable", ""},
		{"both", true, true, true, "decode_unavailable", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, rigOptions{prefill: 2, decode: 2, config: func(c *proxy.Config) { c.DecodeOnly.Enabled = tc.decodeOnly }})
			var dead []*sim.Engine
			if tc.prefill {
				dead = append(dead, r.prefill...)
			}
			if tc.decode {
				dead = append(dead, r.decode...)
			}
			c := forms(prompt, 4)[1]
			r.expectWhole(c, r.call(c))
			for _, e := range dead {
				e.Kill()
			}
			r.expectWithoutPools(t, c, tc.serving, tc.refused, "the moment they die") // only the dials tell
			prefills := len(legs(r.prefill, "prefill"))
			for _, e := range dead {
				r.server.FailChecks(e.URL())
			}
			best := time.Hour // of some, because a busy machine can only delay
			for i := 0; i < 40 && (i < 5 || tc.serving == "" && best > 50*time.Millisecond); i++ {
				best = min(best, r.expectWithoutPools(t, c, tc.serving, tc.refused, "once the checks have failed"))
			}
			if tc.serving == "" && best > 50*time.Millisecond {
				t.Errorf("refused after %v at the soonest", best)
			}
			if n := len(legs(r.prefill, "prefill")) - prefills; n > 0 {
				t.Errorf("prefilled %d times what nobody can decode", n)
			}
			for _, e := range dead {
				if err := e.Restart(); err != nil {
					t.Fatal(err)
				}
			}
			r.await("served as before", func() bool {
				a := r.call(c)
				return a.status == 200 && a.header.Get("X-Xpyd-Path") == "disaggregated"
			})
			r.expectWhole(c, r.call(c)) // at the start of its slow start
			r.await("idle", func() bool { return r.metric("xpyd_in_flight") == 0 })
			if strings.Contains(r.logs.String(), `"handoff_ms":-`) {
				t.Errorf("a handoff is said to have taken less than nothing\n%s", r.logs)
			}
		})
	}
}

// planter is an engine's HTTP port that answers each completion properly and keeps its
// connections, on which the test can write more.
type planter struct {
	ln    net.Listener
	mu    sync.Mutex
	conns map[net.Conn]bool // those that have answered a completion
}

func newPlanter(t *testing.T, complete string) *planter {
	t.Helper()
	together(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &planter{ln: ln, conns: map[net.Conn]bool{}}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { p.serve(c, complete) })
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		p.mu.Lock()
		for c := range p.conns {
			_ = c.Close()
		}
		p.mu.Unlock()
		wg.Wait()
	})
	return p
}

func (p *planter) url() string { return "http://" + p.ln.Addr().String() }

func (p *planter) serve(c net.Conn, complete string) {
	defer func() {
		_ = c.Close()
		p.mu.Lock()
		delete(p.conns, c)
		p.mu.Unlock()
	}()
	p.mu.Lock()
	p.conns[c] = false
	p.mu.Unlock()
	for br := bufio.NewReader(c); ; {
		req, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, req.Body)
		body := `{"object":"list","data":[{"id":"sim","object":"model"}],"version":"0.32.0"}`
		if req.Method == http.MethodPost {
			body = complete
			p.mu.Lock()
			p.conns[c] = true
			p.mu.Unlock()
		}
		_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	}
}

// plant writes raw on every connection that has served a completion, and waits until the
// proxy's sockets have it. It returns how many those are.
func (p *planter) plant(t *testing.T, r *rig, raw string) (n int) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for c, served := range p.conns {
		if !served {
			continue
		}
		n++
		_, _ = io.WriteString(c, raw)
		at := ends{local: c.RemoteAddr().(*net.TCPAddr).Port, peer: c.LocalAddr().(*net.TCPAddr).Port}
		r.await("bytes at the proxy", func() bool {
			fds := sockets(t, at)
			if len(fds) == 0 {
				return true // closed already
			}
			var b [1]byte
			got, _, err := unix.Recvfrom(fds[0], b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
			return err == nil && got == 1
		})
	}
	return n
}

// T32: what a backend sends on a connection that waits in the pool is never the answer to the next
// request, on either leg.
func TestLateBytesAreNoAnswer(t *testing.T) {
	together(t)
	answer := func(text string) string {
		return `{"id":"cmpl-1","object":"text_completion","created":1,"model":"sim","choices":[{"index":0,"text":"` + text + `","logprobs":null,"finish_reason":"stop"}],"usage":null,"kv_transfer_params":null}`
	}
	prefilled := func(engine string) string {
		return strings.Replace(answer("x"), `"kv_transfer_params":null`, `"kv_transfer_params":`+strings.Replace(stubHandle, `"remote_engine_id":"e"`, `"remote_engine_id":"`+engine+`"`, 1), 1)
	}
	whole := func(body string) string {
		return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	}
	const ownEngine, plantedEngine = "own-engine", "planted-engine"
	for _, tc := range []struct{ name, onPrefill, onDecode string }{
		{"whole answers", whole(prefilled(plantedEngine)), whole(answer("planted"))},
		{"a piece of an answer", whole(prefilled(plantedEngine))[:40], whole(answer("planted"))[:40]},
		{"one line end", "\r\n", "\r\n"},
		{"an interim answer", "HTTP/1.1 100 Continue\r\n\r\n", "HTTP/1.1 100 Continue\r\n\r\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := make(chan string, 8)
			p := newPlanter(t, prefilled(ownEngine))
			d := newPlanter(t, answer("own"))
			spy := newStub(t, func(w http.ResponseWriter, req *http.Request) {
				body, _ := io.ReadAll(req.Body)
				got <- string(body)
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, answer("own"))
			})
			for _, decode := range []string{d.url(), spy.server.URL} {
				r := newRig(t, rigOptions{router: func(c *router.Config) { c.Prefill, c.Decode = router.MustEntries(p.url()), router.MustEntries(decode) }})
				c := forms(prompt, 3)[0]
				for i := range 3 {
					if a := r.call(c); a.status != 200 || a.text() != "own" {
						t.Fatalf("request %d: %d %s", i, a.status, a.body)
					}
					planted := p.plant(t, r, tc.onPrefill)
					if decode == d.url() {
						planted = min(planted, d.plant(t, r, tc.onDecode))
					}
					if planted == 0 {
						t.Fatal("no connection to write on: the test proves nothing")
					}
				}
			}
			for range 3 {
				if body := <-got; !strings.Contains(body, ownEngine) || strings.Contains(body, plantedEngine) {
					t.Errorf("decode got another handle than prefill gave: %s", body)
				}
			}
		})
	}
}
