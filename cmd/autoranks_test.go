package cmd

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"xpyd/sim"
)

// rankServer is a server with data-parallel ranks that may come back with others.
type rankServer struct {
	t       *testing.T
	url     string
	engines []*sim.Engine
	front   *sim.Ranks
}

// newRankServer takes an address, at which nothing listens before start.
func newRankServer(t *testing.T) *rankServer {
	ln, err := net.Listen("tcp", "127.0.0.2:0") // on an address on which no other test takes a port meanwhile
	if err != nil {
		t.Fatal(err)
	}
	_ = ln.Close()
	s := &rankServer{t: t, url: "http://" + ln.Addr().String()}
	t.Cleanup(s.stop)
	return s
}

func (s *rankServer) host() string { return strings.TrimPrefix(s.url, "http://") }

// start serves that many new decode engines.
func (s *rankServer) start(ranks int) {
	s.t.Helper()
	s.serve(ranks, sim.Options{Role: sim.RoleDecode, TokenLatency: time.Millisecond})
}

func (s *rankServer) serve(ranks int, each sim.Options) {
	s.t.Helper()
	s.engines = nil
	for range ranks {
		s.engines = append(s.engines, startEngine(s.t, each))
	}
	var err error
	if s.front, err = sim.ServeRanks(s.host(), urls(s.engines...)...); err != nil {
		s.t.Fatal(err)
	}
}

func (s *rankServer) stop() {
	if s.front != nil {
		_ = s.front.Close()
	}
}

// pool is what /pools shows of the server in a pool.
func (s *rankServer) pool(p *process, role string) string {
	var own []string
	for _, b := range p.poolOf(role) {
		if rest, ok := strings.CutPrefix(b, s.url); ok {
			own = append(own, strings.TrimSuffix(rest, " 1"))
		}
	}
	return strings.Join(own, ", ")
}

// await waits until the pool has the server like that.
func (s *rankServer) await(p *process, role, want string) {
	s.t.Helper()
	eventually(s.t, role+" with "+want, func() bool { return s.pool(p, role) == want })
}

// up reports whether a page of xpyd's metrics says that some rank is up.
func (s *rankServer) up(text string) bool {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "xpyd_backend_up{") && strings.Contains(line, s.host()) && strings.HasSuffix(line, " 1\n") {
			return true
		}
	}
	return false
}

// used sends requests until each rank has computed some of them. All are answered.
func (s *rankServer) used(p *process) {
	s.t.Helper()
	l := startTraffic(p.addr, 2)
	eventually(s.t, "each rank is used", func() bool {
		for _, e := range s.engines {
			if asked(e, time.Time{}) == 0 {
				return false
			}
		}
		return true
	})
	l.end(s.t)
}

var quickChecks = []string{"--health-slow-start", "0s", "--decode-policy", "round_robin", "--health-interval", "50ms", "--health-suspect-interval", "50ms", "--health-rise", "1", "--health-fall", "3"}

// An engine with @auto that is down at the start gets no requests. Its ranks join when it answers, and
// follow it when it comes back with more, with fewer, and with one.
func TestRanksAreFound(t *testing.T) {
	t.Parallel()
	p1, d1 := pairOfEngines(t, -1)
	s := newRankServer(t)
	p := serveProcess(t, urls(p1), append(urls(d1), s.url+"@auto"), append(quickChecks, "--routing-poll", "0s")...)
	if got := s.pool(p, "decode"); got != "@auto ready" {
		t.Errorf("an engine that nobody knows is %q", got)
	}
	if _, text := p.get(p.admin, "/backends"); !strings.Contains(text, `"engine_unknown": "it has not said yet how many data-parallel ranks it has"`) {
		t.Errorf("%s", text)
	}
	for _, step := range []struct {
		ranks int
		want  string
	}{
		{2, "@0 ready, @1 ready"}, {3, "@0 ready, @1 ready, @2 ready"}, {1, " ready"}, {2, "@0 ready, @1 ready"},
	} {
		s.start(step.ranks)
		s.await(p, "decode", step.want)
		s.used(p)
		s.stop()
		eventually(t, "down", func() bool { _, text := p.get(p.admin, "/metrics"); return !s.up(text) })
		if got := s.pool(p, "decode"); got != step.want {
			t.Errorf("an engine that is down is %q, was %q", got, step.want)
		}
	}
	p.signal(p.serving(1), syscall.SIGTERM)
	p.gone()
}

// Engines whose ranks are found are added, drained, moved and removed as wholes, by their URL with @auto or by host and
// port, and stay what they were made while the engine is away.
func TestCtlOfFoundRanks(t *testing.T) {
	t.Parallel()
	p1, d1 := pairOfEngines(t, -1)
	s := newRankServer(t)
	s.start(2)
	state := filepath.Join(t.TempDir(), "members.json")
	args := append(quickChecks, "--state-file", state)
	p := serveProcess(t, urls(p1), urls(d1), args...)
	p.operate("ctl", "add", s.url+"@auto", "--role", "decode")
	s.await(p, "decode", "@0 ready, @1 ready")
	s.used(p)
	if out := p.operate("ctl", "drain", s.host(), "--wait"); !strings.Contains(out, s.url+"@auto: drained") || !strings.Contains(out, s.url+"@1: decode") {
		t.Errorf("ctl drain says %q", out)
	}
	s.await(p, "decode", "@0 drain, @1 drain")
	p.operate("ctl", "enable", s.host()+"@auto")
	s.await(p, "decode", "@0 ready, @1 ready")
	if code, answer := p.send("PATCH", "/backends/"+s.host()+"@1", `{"state":"drain"}`); code != 409 || !strings.Contains(answer, "change "+s.url+"@auto as a whole") {
		t.Errorf("%d %s", code, answer)
	}
	for _, refused := range [][]string{
		{"ctl", "add", s.url + "@auto", "--role", "decode"}, {"ctl", "add", s.url, "--role", "decode"}, {"ctl", "add", s.url + "@7", "--role", "decode"},
		{"ctl", "remove", s.host() + "@1"}, {"ctl", "role", s.host() + "@1", "prefill"},
	} {
		if out, err := p.ctl(refused...); err == nil {
			t.Errorf("%v: %s", refused, out)
		}
	}
	s.stop()
	s.start(1)
	s.await(p, "decode", " ready")
	p.signal(p.serving(1), syscall.SIGTERM)
	p.gone()

	p = serveProcess(t, urls(p1), urls(d1), args...)
	s.await(p, "decode", " ready")
	p.operate("ctl", "weight", s.host(), "2")
	p.operate("ctl", "drain", s.host())
	s.stop()
	s.start(3)
	s.await(p, "decode", "@0 drain 2, @1 drain 2, @2 drain 2")
	p.operate("ctl", "weight", s.host(), "1")
	p.operate("ctl", "enable", s.host())
	if out := p.operate("ctl", "role", s.host(), "prefill"); !strings.Contains(out, s.url+"@2: prefill") {
		t.Errorf("ctl role says %q", out)
	}
	s.await(p, "prefill", "@0 ready, @1 ready, @2 ready")
	s.await(p, "decode", "")
	p.operate("ctl", "remove", s.host(), "--wait")
	s.await(p, "prefill", "")
	if text, err := os.ReadFile(state); err != nil || strings.Contains(string(text), s.host()) {
		t.Errorf("%v, %s", err, text)
	}
	p.signal(p.serving(1), syscall.SIGTERM)
	p.gone()
}

// An engine whose ranks are found leaves with requests on each rank. The answer counts those of all, and its host and
// port still names it, however often it is asked, so that it can be forced later on.
func TestFoundRanksAreForcedLater(t *testing.T) {
	t.Parallel()
	other := startEngine(t, sim.Options{Role: sim.RoleDecode})
	s := newRankServer(t)
	s.serve(2, sim.Options{Role: sim.RoleDecode, PrefillTokensPerSecond: .01})
	p := serveProcess(t, nil, []string{s.url + "@auto"}, quickChecks...)
	eventually(t, "up", func() bool { return p.metric(`xpyd_backend_up{backend="`+s.url) == 2 })
	var all []chan error
	for n := range 3 {
		got := make(chan error, 1)
		all = append(all, got)
		go func() {
			c := client{addr: p.addr}
			_, err := c.ask(fmt.Sprintf("never computed %d", n), 3, true)
			got <- err
		}()
	}
	eventually(t, "the requests are there", func() bool { return p.metric(`xpyd_in_flight{backend="`+s.url) == 3 })
	p.operate("ctl", "add", other.URL(), "--role", "decode")
	for _, name := range []string{s.host(), s.url, s.host() + "@auto", s.url + "@auto", s.host()} {
		if out := p.operate("ctl", "remove", name); !strings.Contains(out, s.url+"@auto: removed; as decode it still has 3 requests and 0 handles") {
			t.Errorf("remove %s says %q", name, out)
		}
	}
	p.operate("ctl", "remove", s.host(), "--force", "--wait")
	for _, got := range all {
		if err := <-got; err != nil {
			t.Error(err)
		}
	}
	p.signal(p.serving(1), syscall.SIGTERM)
	p.gone()
}

// A reload keeps the ranks that were found, and takes those that were written for known.
func TestReloadOfFoundRanks(t *testing.T) {
	t.Parallel()
	p1, d1 := pairOfEngines(t, -1)
	s := newRankServer(t)
	s.start(2)
	path := filepath.Join(t.TempDir(), "xpyd.yaml")
	write := func(decode string) {
		t.Helper()
		text := "prefill: [" + p1.URL() + "]\ndecode: [" + d1.URL() + ", \"" + s.url + decode + "\"]\n"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("@0..1")
	p := serveProcess(t, nil, nil, append(quickChecks, "--config", path)...)
	s.used(p)
	l := startTraffic(p.addr, 4)
	for _, decode := range []string{"@auto", "@auto weight=2", "@auto", "@0..1", "@auto"} {
		write(decode)
		p.operate("ctl", "reload")
		want := "@0 ready, @1 ready"
		if strings.HasSuffix(decode, "weight=2") {
			want = "@0 ready 2, @1 ready 2"
		}
		if got := s.pool(p, "decode"); got != want {
			t.Errorf("%s: %q, want %q", decode, got, want)
		}
		l.more(t, 10)
	}
	l.end(t)
	if before := asked(d1, time.Time{}); before == 0 {
		t.Error("the other engine has had nothing")
	}
	p.signal(p.serving(1), syscall.SIGTERM)
	p.gone()
}

// A server that comes back before a check has missed it is noticed by the next reading of its metrics.
func TestRanksAreFoundBetweenChecks(t *testing.T) {
	t.Parallel()
	p1, d1 := pairOfEngines(t, -1)
	s := newRankServer(t)
	s.start(2)
	p := serveProcess(t, urls(p1), append(urls(d1), s.url+"@auto"), append(quickChecks, "--health-interval", "1h", "--routing-poll", "20ms")...)
	s.await(p, "decode", "@0 ready, @1 ready")
	s.stop()
	s.start(3)
	s.await(p, "decode", "@0 ready, @1 ready, @2 ready")
	s.used(p)
	p.signal(p.serving(1), syscall.SIGTERM)
	p.gone()
}

// An engine that does not show its metrics gets no requests, and the log says why. One that shows them without
// ranks is one backend.
func TestRanksThatAnEngineDoesNotSay(t *testing.T) {
	t.Parallel()
	p1, d1 := pairOfEngines(t, -1)
	d2 := startEngine(t, sim.Options{Role: sim.RoleDecode, TokenLatency: time.Millisecond})
	engine, err := url.Parse(d2.URL())
	if err != nil {
		t.Fatal(err)
	}
	var shows atomic.Bool
	pass := httputil.NewSingleHostReverseProxy(engine)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path != "/metrics":
			pass.ServeHTTP(w, r)
		case !shows.Load():
			w.WriteHeader(http.StatusForbidden)
		}
	}))
	t.Cleanup(front.Close)
	p := serveProcess(t, urls(p1), append(urls(d1), front.URL+"@auto"), quickChecks...)
	p.await(1, "the engine does not say how many data-parallel ranks it has: it gets no requests")
	l := startTraffic(p.addr, 2)
	l.more(t, 20)
	l.end(t)
	if n := asked(d2, time.Time{}); n > 0 {
		t.Errorf("%d requests", n)
	}
	p.expectPool("decode", d1.URL()+" ready 1", front.URL+"@auto ready 1")
	shows.Store(true)
	eventually(t, "one backend", func() bool { return strings.Contains(strings.Join(p.poolOf("decode"), ", "), front.URL+" ready 1") })
	p.signal(p.serving(1), syscall.SIGTERM)
	p.gone()
}

// An engine that says how many ranks it has, and has more than the pools can have, keeps those that were known. The log
// says why, once for the engine and not for each rank. An engine of which nothing is known gets no requests.
func TestRanksThatDoNotFit(t *testing.T) {
	t.Parallel()
	p1, d1 := pairOfEngines(t, -1)
	s := newRankServer(t)
	s.start(2)
	engine, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	var many, down atomic.Bool
	pass := httputil.NewSingleHostReverseProxy(engine)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case down.Load():
			w.WriteHeader(http.StatusServiceUnavailable)
		case r.URL.Path == "/metrics" && many.Load():
			for n := range 1025 {
				_, _ = fmt.Fprintf(w, "vllm:num_requests_running{engine=\"%d\"} 0\n", n)
			}
		default:
			pass.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(front.Close)
	const log = "the engine says how many data-parallel ranks it has, and the pools cannot have so many: "
	p := serveProcess(t, urls(p1), append(urls(d1), front.URL+"@auto"), append(quickChecks, "--routing-poll", "0s")...)
	up := func(n float64) {
		t.Helper()
		eventually(t, fmt.Sprint(n, " ranks up"), func() bool { return p.metric(`xpyd_backend_up{backend="`+front.URL) == n })
	}
	up(2)
	down.Store(true)
	up(0)
	many.Store(true)
	down.Store(false)
	up(2)
	p.await(1, log+"the ranks that were known stay")
	p.expectPool("decode", d1.URL()+" ready 1", front.URL+"@0 ready 1", front.URL+"@1 ready 1")
	p.operate("ctl", "remove", front.URL, "--wait")
	p.operate("ctl", "add", front.URL+"@auto", "--role", "decode")
	p.await(1, log+"it gets no requests")
	if n := p.count(log + "the ranks that were known stay"); n != 1 {
		t.Errorf("the log says it %d times of one engine", n)
	}
	if n := p.count("the engine does not say how many data-parallel ranks it has: the ranks that were known stay"); n != 0 {
		t.Errorf("the log says %d times that an engine does not say what it says", n)
	}
	p.signal(p.serving(1), syscall.SIGTERM)
	p.gone()
}
