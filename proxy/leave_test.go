package proxy_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"xpyd/kvparams"
	"xpyd/netio"
	"xpyd/proxy"
	"xpyd/router"
	"xpyd/sim"
)

// barrier holds one engine in one phase until the test lets it go.
type barrier struct {
	phase   sim.Phase
	index   int
	reached chan sim.Event
	release chan struct{}
	once    sync.Once
	opened  sync.Once
}

// open lets the engine go on. Later calls do nothing.
func (b *barrier) open() { b.opened.Do(func() { close(b.release) }) }

func newBarrier(phase sim.Phase, index int) *barrier {
	return &barrier{phase: phase, index: index, reached: make(chan sim.Event, 1), release: make(chan struct{})}
}

func (b *barrier) hook(e sim.Event) {
	if e.Phase != b.phase || e.Phase == sim.PhaseStreamEvent && e.Index != b.index {
		return
	}
	hold := false
	b.once.Do(func() { hold = true })
	if hold {
		b.reached <- e
		<-b.release
	}
}

// dialRaw opens a client connection that the test controls byte by byte.
func (r *rig) dialRaw() *net.TCPConn {
	r.t.Helper()
	return r.dialFrom(home)
}

// dialFrom connects from the given address of this machine.
func (r *rig) dialFrom(ip string) *net.TCPConn {
	r.t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}
	c, err := dialer.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = c.Close() })
	return c.(*net.TCPConn)
}

func raw(c call, id string) string {
	body := c.body()
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nX-Request-Id: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", c.path(), id, len(body), body)
}

func leaving() map[string]func(c *net.TCPConn) {
	return map[string]func(c *net.TCPConn){
		"close":      func(c *net.TCPConn) { _ = c.Close() },
		"half-close": func(c *net.TCPConn) { _ = c.CloseWrite() },
		"reset":      func(c *net.TCPConn) { _ = c.SetLinger(0); _ = c.Close() },
	}
}

func TestClientLeavesInEachPhase(t *testing.T) {
	together(t)
	for _, tc := range []struct {
		phase   sim.Phase
		index   int
		counted string // xpyd_client_gone_total's phase
		freed   string // how P's blocks became free; empty if none were pinned
		form    int
	}{
		{phase: sim.PhasePrefillStart, counted: "prefill", freed: "reject", form: 1},
		{phase: sim.PhasePrefillEnding, counted: "prefill", freed: "reject", form: 0},
		{phase: sim.PhaseDecodeReceived, counted: "decode", freed: "abort", form: 3},
		{phase: sim.PhaseDecodeLoaded, counted: "decode", freed: "read", form: 2},
		{phase: sim.PhaseStreamEvent, index: 3, counted: "stream", freed: "read", form: 1},
	} {
		for how, leave := range leaving() {
			t.Run(string(tc.phase)+"/"+how, func(t *testing.T) {
				b := newBarrier(tc.phase, tc.index)
				r := newRig(t, rigOptions{engine: func(o *sim.Options) { o.Hook = b.hook }})
				t.Cleanup(b.open)
				conn := r.dialRaw()
				_, _ = io.WriteString(conn, raw(forms(prompt, 9)[tc.form], "leaver"))
				r.reached(b)
				leave(conn)
				// The proxy must have noticed before the engine goes on.
				r.await("aware that the client left", func() bool {
					if tc.counted == "prefill" && r.server.Departed() == 1 {
						return true // P may still answer
					}
					return r.metric(`xpyd_client_gone_total{phase="`+tc.counted+`"}`) == 1
				})
				b.open()
				r.await("counted in phase "+tc.counted, func() bool {
					return r.metric(`xpyd_client_gone_total{phase="`+tc.counted+`"}`) == 1
				})
				r.expectNothingHeld()
				got := r.prefill[0].Ledger().FreedBy
				if tc.freed != "" && got[tc.freed] != 1 {
					t.Errorf("freed by %v, want %s once", got, tc.freed)
				}
				if n := r.metric(`xpyd_requests_total{api="` + map[bool]string{true: "chat", false: "completions"}[forms("", 1)[tc.form].chat] + `",outcome="client_gone"`); n != 1 {
					t.Errorf("%v requests counted as client_gone", n)
				}
			})
		}
	}
}

func TestHalfClosedClientIsNeverToldOfSuccess(t *testing.T) {
	together(t)
	for _, tc := range []struct {
		connector string
		phase     sim.Phase
		form      int
	}{
		{"nixl", sim.PhasePrefillStart, 0}, {"nixl", sim.PhaseDecodeReceived, 0},
		// Their decode legs are held, and may answer.
		{"nixl-push", sim.PhaseDecodeReceived, 0}, {"mooncake", sim.PhaseDecodeReceived, 0}, {"mooncake", sim.PhaseDecodeReceived, 1},
	} {
		c := forms(prompt, 9)[tc.form]
		t.Run(tc.connector+" "+string(tc.phase)+" "+c.name(), func(t *testing.T) {
			dialect, _ := kvparams.Lookup(tc.connector)
			b := newBarrier(tc.phase, 0)
			r := newRig(t, rigOptions{dialect: dialect, engine: func(o *sim.Options) { o.Hook = b.hook }})
			t.Cleanup(b.open)
			conn := r.dialRaw()
			_, _ = io.WriteString(conn, raw(c, "half"))
			<-b.reached
			_ = conn.CloseWrite()
			r.await("aware", func() bool { return r.server.Departed()+int64(r.metric("xpyd_client_gone_total")) == 1 })
			b.open()
			_ = conn.SetReadDeadline(time.Now().Add(2 * patience))
			got, err := io.ReadAll(conn)
			if err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 499 ") || !strings.Contains(string(got), `"code":"client_gone"`) {
				t.Errorf("%v %q", err, got)
			}
			r.await("logged with the status that it got", func() bool {
				return strings.Contains(r.logs.String(), `"status":499,"outcome":"client_gone"`)
			})
		})
	}
}

// A prefill engine that has much to do comes late to the prompt of a client that has left. Decode waits for its blocks
// all the same, and would lose its own if it were cut.
func TestDecodeOfAClientThatLeftWaitsForALatePrefill(t *testing.T) {
	together(t)
	dialect, _ := kvparams.Lookup("mooncake")
	b := newBarrier(sim.PhasePrefillStart, 0)
	r := newRig(t, rigOptions{dialect: dialect, engine: func(o *sim.Options) {
		o.Hook, o.TransferPerBlock = b.hook, 150*time.Millisecond // the blocks come after the prefill's answer
	}})
	t.Cleanup(b.open)
	conn := r.dialRaw()
	_, _ = io.WriteString(conn, raw(forms(prompt, 9)[0], "leaver"))
	r.reached(b)
	r.await("waiting for blocks", func() bool { return r.decode[0].Used() > 0 })
	_ = conn.Close()
	r.await("aware that the client left", func() bool { return r.server.Departed() == 1 })
	time.Sleep(11 * time.Second) // longer than decode's grace
	b.open()
	r.await("done with its legs", func() bool { return r.metric("xpyd_in_flight") == 0 })
	r.expectNothingHeld()
	r.expectNoneUsed()
}

// A decode leg without a client ends in any case soon after its prefill.
func TestDecodeOfAClientThatLeftEndsAfterItsPrefill(t *testing.T) {
	together(t)
	dialect, _ := kvparams.Lookup("mooncake")
	b := newBarrier(sim.PhasePrefillStart, 0)
	r := newRig(t, rigOptions{dialect: dialect, engine: func(o *sim.Options) { o.Hook = b.hook },
		config: func(c *proxy.Config) { c.Timeouts.Prefill = time.Minute }})
	t.Cleanup(b.open)
	if err := r.decode[0].SetFault(sim.Fault{Kind: sim.FaultHang}); err != nil {
		t.Fatal(err)
	}
	conn := r.dialRaw()
	_, _ = io.WriteString(conn, raw(forms(prompt, 9)[0], "leaver"))
	r.reached(b)
	_ = conn.Close()
	r.await("aware that the client left", func() bool { return r.server.Departed() == 1 })
	b.open()
	r.await("done with its legs", func() bool { return r.metric("xpyd_in_flight") == 0 })
}

// The legs of a client that has left may be held for long. They end with the process all the same.
func TestDrainEndsLegsHeldForAClientThatLeft(t *testing.T) {
	dialect, _ := kvparams.Lookup("mooncake")
	b, received := newBarrier(sim.PhasePrefillStart, 0), make(chan struct{}, 1)
	hook := func(e sim.Event) {
		if e.Phase == sim.PhaseDecodeReceived {
			received <- struct{}{}
		}
		b.hook(e)
	}
	r := newRig(t, rigOptions{dialect: dialect, engine: func(o *sim.Options) { o.Hook = hook },
		config: func(c *proxy.Config) {
			c.Timeouts.Drain, c.Timeouts.PrefillAbortGrace = 50*time.Millisecond, 10*time.Millisecond
		}})
	t.Cleanup(b.open)
	conn := r.dialRaw()
	_, _ = io.WriteString(conn, raw(forms(prompt, 9)[0], "leaver"))
	<-b.reached
	<-received
	_ = conn.Close()
	r.await("aware", func() bool { return r.server.Departed() == 1 })
	if err := r.server.Shutdown(); err != nil { // the prefill engine still works
		t.Error(err)
	}
	if n := r.server.Live(); n != 0 {
		t.Errorf("%d completions run after the end", n)
	}
}

// A prefill has its grace at the end of the drain too, however long that is.
func TestDrainWaitsForTheGraceOfAPrefill(t *testing.T) {
	b := newBarrier(sim.PhasePrefillStart, 0)
	r := newRig(t, rigOptions{engine: func(o *sim.Options) { o.Hook = b.hook }, config: func(c *proxy.Config) {
		c.Timeouts.Drain, c.Timeouts.PrefillAbortGrace = 50*time.Millisecond, 6*time.Second
	}})
	t.Cleanup(b.open)
	got := r.start(forms(prompt, 9)[0])
	<-b.reached
	if err := r.server.Shutdown(); err != nil { // the prefill engine still works
		t.Error(err)
	}
	if a := r.soon(got); a.status != 503 {
		t.Errorf("status %d, %v", a.status, a.err)
	}
}

func TestClientLeavesDuringALongPrefill(t *testing.T) {
	b := newBarrier(sim.PhasePrefillStart, 0)
	r := newRig(t, rigOptions{
		engine: func(o *sim.Options) { o.Hook = b.hook },
		config: func(c *proxy.Config) { c.Timeouts.PrefillAbortGrace = 50 * time.Millisecond },
	})
	t.Cleanup(b.open)
	conn := r.dialRaw()
	_, _ = io.WriteString(conn, raw(forms(prompt, 9)[0], "leaver"))
	<-b.reached
	_ = conn.Close()
	// Longer than the grace: the write side towards P is shut down, and P's answer is
	// not waited for much longer than another second.
	r.await("counted", func() bool { return r.metric(`xpyd_client_gone_total{phase="prefill"}`) == 1 })
	b.open()
	if rec := r.record(r.prefill[0], "leaver"); rec.Outcome != "aborted" {
		t.Errorf("prefill leg %+v, want it aborted", rec)
	}
	r.await("free", func() bool { return r.prefill[0].Ledger().Pinned == 0 })
	if n := len(r.decode[0].Requests()); n != 0 {
		t.Errorf("decode was asked %d times", n)
	}
}

func TestReleaseByOneTokenDecodeBelow032(t *testing.T) {
	b := newBarrier(sim.PhasePrefillEnding, 0)
	r := newRig(t, rigOptions{engine: func(o *sim.Options) { o.Hook, o.Version = b.hook, "0.31.9" }})
	t.Cleanup(b.open)
	r.await("versions known", func() bool { return strings.Contains(r.logs.String(), "0.31.9") })
	conn := r.dialRaw()
	_, _ = io.WriteString(conn, raw(forms(prompt, 9)[3], "leaver"))
	<-b.reached
	_ = conn.Close()
	r.await("aware", func() bool { return r.server.Departed() == 1 })
	b.open()
	r.await("drained", func() bool { return r.metric(`xpyd_kv_handles_total{end="drained"}`) == 1 })
	r.expectNothingHeld()
	rec := r.record(r.decode[0], "leaver")
	if rec.MaxTokens != 1 || rec.Stream || !rec.DoRemotePrefill || rec.Path != "/v1/chat/completions" {
		t.Errorf("drain request %+v", rec)
	}
}

func TestReleaseOffIsCountedAsOrphan(t *testing.T) {
	b := newBarrier(sim.PhasePrefillEnding, 0)
	r := newRig(t, rigOptions{
		engine: func(o *sim.Options) { o.Hook = b.hook },
		config: func(c *proxy.Config) { c.KV.Release = "off" },
	})
	t.Cleanup(b.open)
	conn := r.dialRaw()
	_, _ = io.WriteString(conn, raw(forms(prompt, 9)[0], "leaver"))
	<-b.reached
	_ = conn.Close()
	r.await("aware", func() bool { return r.server.Departed() == 1 })
	b.open()
	r.await("counted", func() bool { return r.metric(`xpyd_kv_orphans_total{reason="release_off"}`) == 1 })
	if p := r.prefill[0].Ledger().Pinned; p == 0 {
		t.Error("nothing pinned: the test proves nothing")
	} else if got := r.metric("xpyd_kv_blocks_stranded"); got != float64(p) {
		t.Errorf("%v blocks stranded, the engine holds %d", got, p)
	}
}

func TestClientLeavesInTheBody(t *testing.T) {
	r := newRig(t, rigOptions{})
	for _, chunked := range []bool{false, true} {
		conn := r.dialRaw()
		head := "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
		if chunked {
			// A whole document, but the upload is cut between two chunks.
			_, _ = io.WriteString(conn, head+"Transfer-Encoding: chunked\r\n\r\n1e\r\n{\"model\":\"sim\",\"prompt\":\"abc\"}\r\n")
		} else {
			_, _ = io.WriteString(conn, head+"Content-Length: 1000\r\n\r\n{\"model\":")
		}
		r.await("reading", func() bool { return r.metric("xpyd_request_bytes_buffered") > 0 })
		_ = conn.Close()
		r.await("let go", func() bool { return r.metric("xpyd_request_bytes_buffered") == 0 })
	}
	r.await("counted", func() bool { return r.metric(`xpyd_client_gone_total{phase="body"}`) == 2 })
	if n := len(r.prefill[0].Requests()); n != 0 {
		t.Errorf("prefill was asked %d times", n)
	}
}

func TestPipelinedRequestsAreAnsweredInOrder(t *testing.T) {
	r := newRig(t, rigOptions{})
	conn := r.dialRaw()
	first, second := forms(prompt, 5)[1], forms("another prompt altogether", 4)[0]
	_, _ = io.WriteString(conn, raw(first, "one")+raw(second, "two"))
	br := bufio.NewReader(conn)
	_ = conn.SetReadDeadline(time.Now().Add(2 * patience))
	seen := ""
	for !strings.Contains(seen, "X-Request-Id: two") {
		line, err := br.ReadString('\n')
		if err != nil {
			t.Fatalf("%v after %q", err, seen)
		}
		seen += line
	}
	if i, j := strings.Index(seen, "X-Request-Id: one"), strings.Index(seen, "0\r\n\r\n"); i < 0 || j < i {
		t.Fatalf("the first answer did not end before the second began: %q", seen)
	}
}

// A signal, or another process, may come before the server has begun to accept.
func TestTheEndComesBeforeServe(t *testing.T) {
	together(t)
	ends := map[string]func(*proxy.Server) error{
		"shutdown": (*proxy.Server).Shutdown,
		"retire":   func(s *proxy.Server) error { return s.Retire(t.Context()) },
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			for range 20 { // now and then between the two
				server := quietServer(t)
				ln, err := netio.Listen("127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				served := make(chan error, 1)
				go func() { served <- server.Serve(ln) }()
				if err := end(server); err != nil {
					t.Error(err)
				}
				select {
				case err := <-served:
					if err != nil {
						t.Error(err)
					}
				case <-time.After(patience):
					t.Fatal("it serves on")
				}
			}
		})
	}
}

// quietServer has one decode engine, which does not answer, and does not serve yet.
func quietServer(t *testing.T) *proxy.Server {
	t.Helper()
	pools := router.DefaultConfig()
	pools.Decode = router.MustEntries("http://127.0.0.1:1")
	rt, err := router.New(pools, 1, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	dialect, _ := kvparams.Lookup("nixl")
	server, err := proxy.New(proxy.DefaultConfig(), rt, dialect, "test", zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Shutdown() })
	return server
}

func TestShutdownLetsStreamsFinish(t *testing.T) {
	b := newBarrier(sim.PhaseStreamEvent, 2)
	r := newRig(t, rigOptions{engine: func(o *sim.Options) { o.Hook = b.hook }})
	t.Cleanup(b.open)
	c := forms(prompt, 9)[1]
	got := make(chan answer, 1)
	go func() { got <- r.call(c) }()
	<-b.reached
	stopped := make(chan error, 1)
	go func() { stopped <- r.server.Shutdown() }()
	r.await("unready", func() bool { return !r.server.Ready() })
	b.open()
	r.expectWhole(c, <-got)
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
	if _, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://")); err == nil {
		t.Error("the port is still open")
	}
	r.expectNothingHeld()
}

func TestShutdownEndsWhatDoesNotFinish(t *testing.T) {
	together(t)
	for _, tc := range []struct {
		name  string
		phase sim.Phase
		index int
	}{
		{"stream", sim.PhaseStreamEvent, 3}, {"before the first event", sim.PhaseDecodeReceived, 0}, {"prefill", sim.PhasePrefillEnding, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBarrier(tc.phase, tc.index)
			r := newRig(t, rigOptions{
				engine: func(o *sim.Options) { o.Hook = b.hook },
				config: func(c *proxy.Config) {
					c.Timeouts.Drain, c.Timeouts.PrefillAbortGrace = 100*time.Millisecond, 6*time.Second
				},
			})
			t.Cleanup(b.open)
			c := forms(prompt, 9)[1]
			got := make(chan answer, 1)
			go func() { got <- r.call(c) }()
			r.reached(b)
			stopped := make(chan error, 1)
			go func() { stopped <- r.server.Shutdown() }()
			if tc.phase == sim.PhasePrefillEnding {
				// P answers after the cut and within its grace, and the handle must be given back.
				r.await("cut", func() bool { return strings.Contains(r.logs.String(), "the drain time is over") })
				time.AfterFunc(200*time.Millisecond, b.open)
			}
			a := <-got
			if tc.phase == sim.PhaseStreamEvent {
				r.expectBroken(c, a, "shutting_down")
			} else if a.status != 503 || a.code() != "shutting_down" {
				t.Errorf("%d %s %v", a.status, a.body, a.err)
			}
			if tc.phase != sim.PhasePrefillEnding {
				b.open()
			}
			if err := <-stopped; err != nil {
				t.Errorf("shutdown: %v", err)
			}
			r.await("free", func() bool { return r.prefill[0].Ledger().Pinned == 0 })
		})
	}
}

func TestSlowUploadIsAnswered408(t *testing.T) {
	r := newRig(t, rigOptions{config: func(c *proxy.Config) {
		c.Timeouts.Body, c.Timeouts.BodyStall = 100*time.Millisecond, 10*time.Minute
	}})
	for _, head := range []string{"Content-Length: 1000\r\n\r\n{", "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"} {
		conn := r.dialRaw()
		_, _ = io.WriteString(conn, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"+head)
		_ = conn.SetReadDeadline(time.Now().Add(2 * patience))
		b, err := io.ReadAll(conn)
		if err != nil || !strings.HasPrefix(string(b), "HTTP/1.1 408 ") || !strings.Contains(string(b), "request_timeout") {
			t.Errorf("%v %q", err, b)
		}
	}
}

func TestStalledReaderIsCutOff(t *testing.T) {
	r := newRig(t, rigOptions{config: func(c *proxy.Config) { c.Timeouts.WriteStall = 1500 * time.Millisecond }})
	conn := r.dialRaw()
	_ = conn.SetReadBuffer(4 << 10)
	c := call{stream: true, prompt: prompt, tokens: 15_000} // 3 MB, more than the sockets hold
	_, _ = io.WriteString(conn, raw(c, "stalled"))
	r.await("cut", func() bool { return r.metric(`xpyd_client_gone_total{phase="stream"}`) == 1 })
	r.expectNothingHeld()
}

func TestHTTP10(t *testing.T) {
	r := newRig(t, rigOptions{})
	for _, stream := range []bool{false, true} {
		conn := r.dialRaw()
		c := call{stream: stream, prompt: prompt, tokens: 3}
		_, _ = io.WriteString(conn, strings.Replace(raw(c, "old"), "HTTP/1.1", "HTTP/1.0", 1))
		_ = conn.SetReadDeadline(time.Now().Add(2 * patience))
		b, err := io.ReadAll(conn)
		if err != nil || !strings.HasPrefix(string(b), "HTTP/1.1 200 ") {
			t.Errorf("%v %q", err, b)
		}
	}
}

func TestLogLine(t *testing.T) {
	r := newRig(t, rigOptions{})
	c := forms(prompt, 5)[3]
	r.expectWhole(c, r.call(c, "X-Request-Id", "line-1"))
	r.await("logged", func() bool { return strings.Contains(r.logs.String(), `"message":"completion"`) })
	line := r.logs.String()
	for _, want := range []string{`"request_id":"line-1"`, `"leg_id":"line-1-`, `"prefill":"` + r.prefill[0].URL(), `"decode":"` + r.decode[0].URL(),
		`"path":"disaggregated"`, `"status":200`, `"outcome":"ok"`, `"prefill_ms":`, `"handoff_ms":`, `"ttft_ms":`, `"total_ms":`, `"events":`, `"bytes":`} {
		if !strings.Contains(line, want) {
			t.Errorf("log line lacks %s:\n%s", want, line)
		}
	}
	if strings.Contains(line, "quick brown") || strings.Contains(line, c.want()) {
		t.Error("a prompt or a completion reached the log")
	}
}
