package proxy_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"xpyd/netio"
	"xpyd/proxy"
	"xpyd/router"
	"xpyd/sim"
)

func TestStreamIdleHoldsFromTheFirstEvent(t *testing.T) {
	const first = time.Minute
	r := newRig(t, rigOptions{config: func(c *proxy.Config) {
		c.Timeouts.FirstEvent, c.Timeouts.StreamIdle = first, 2*time.Second
	}})
	start := time.Now()
	c := streamed(false, 9, "[[D:stall@3]]")
	r.expectBroken(c, r.call(c), "decode_stalled")
	if d := time.Since(start); d >= first {
		t.Fatalf("stall noticed after %v, stream_idle is 2 s", d)
	}
}

type emfile struct {
	net.Listener
	n atomic.Int32
}

func (l *emfile) Accept() (net.Conn, error) {
	if l.n.Add(1) == 1 {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	}
	return l.Listener.Accept()
}

func TestOutOfDescriptorsDoesNotEndTheServer(t *testing.T) {
	r := newRig(t, rigOptions{})
	ln, err := netio.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- r.server.Serve(&emfile{Listener: ln}) }()
	select {
	case err := <-done:
		t.Errorf("Serve ended: %v", err)
	case <-time.After(300 * time.Millisecond): // longer than the pause after a failed accept
		if resp, err := http.Get("http://" + ln.Addr().String() + "/livez"); err != nil || resp.StatusCode != 200 {
			t.Errorf("%v %v", resp, err)
		} else {
			_ = resp.Body.Close()
		}
		http.DefaultClient.CloseIdleConnections()
		_ = r.server.Shutdown() // closes both listeners
		<-done
	}
}

func TestRetryAfterDoesNotBlindTheProber(t *testing.T) {
	together(t)
	var healthy atomic.Bool
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan struct{}, 8)
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		select {
		case asked <- struct{}{}:
		default:
		}
		if !healthy.Load() {
			w.Header().Set("Retry-After", "60")
			w.WriteHeader(503)
			return
		}
		_, _ = io.WriteString(w, `{"data":[{"id":"sim"}]}`)
	})}
	go func() { _ = srv.Serve(ln) }()
	t.Cleanup(func() { _ = srv.Close() })
	r := newRig(t, rigOptions{prefill: -1, router: func(c *router.Config) {
		c.Decode = append(c.Decode, router.MustEntries("http://"+ln.Addr().String())...)
	}})
	<-asked
	healthy.Store(true)
	r.await("up although it had asked for a minute", func() bool {
		return r.metric(fmt.Sprintf(`xpyd_backend_up{backend="http://%s",role="decode"}`, ln.Addr())) == 1
	})
}

func TestModelsDoesNotSleepForRetryAfter(t *testing.T) {
	together(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path == "/v1/models" {
			w.Header().Set("Retry-After", "60")
			w.WriteHeader(503)
			return
		}
		w.WriteHeader(404)
	})}
	go func() { _ = srv.Serve(ln) }()
	t.Cleanup(func() { _ = srv.Close() })
	r := newRig(t, rigOptions{prefill: -1, router: func(c *router.Config) {
		c.Decode = append(router.MustEntries("http://"+ln.Addr().String()), c.Decode...)
	}})
	r.client.Timeout = 2 * patience
	if a := r.send("GET", "/v1/models", ""); a.err != nil {
		t.Fatalf("/v1/models: %v", a.err)
	}
}

// answer larger than limits.answer, framed by the connection's end, cut.
func rawDecode(t *testing.T, completion string) string {
	together(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				req, err := http.ReadRequest(bufio.NewReader(c))
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, req.Body)
				if req.Method == "GET" {
					_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 24\r\n\r\n"+`{"data":[{"id":"slow"}]}`)
					return
				}
				_, _ = io.WriteString(c, completion)
			}()
		}
	}()
	return "http://" + ln.Addr().String()
}

func TestLargeUnframedAnswerIsRefused(t *testing.T) {
	url := rawDecode(t, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"+`{"choices":[{"text":"`+strings.Repeat("x", 40000))
	r := newRig(t, rigOptions{prefill: -1,
		config: func(c *proxy.Config) { c.Limits.Answer = 8 << 10 },
		router: func(c *router.Config) { c.Decode = router.MustEntries(url) }})
	a := r.call(forms("hello", 4)[0])
	if a.err == nil && a.status == 200 {
		t.Fatalf("a cut answer of %d bytes ended cleanly", len(a.body))
	}
}

func TestLegIDIsNotAnotherRequests(t *testing.T) {
	r := newRig(t, rigOptions{})
	for range 5 {
		r.expectWhole(forms("hello", 4)[0], r.call(forms("hello", 4)[0], "X-Request-Id", "alice"))
		_ = r.post("/v1/completions", `{`, "X-Request-Id", "bob")
	}
	r.await("logged", func() bool { return strings.Contains(r.logs.String(), `"bob"`) })
	for _, l := range strings.Split(r.logs.String(), "\n") {
		if strings.Contains(l, `"request_id":"bob"`) && strings.Contains(l, "alice-") {
			t.Fatalf("bob's line names alice's leg: %s", l)
		}
	}
}

func TestConcurrentConnectorSecondRound(t *testing.T) {
	r := newRig(t, rigOptions{decode: 2, dialect: newPushDialect(), engine: func(o *sim.Options) { o.Role = sim.RoleBoth }})
	f, err := sim.ParseFault("status=500")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.decode[0].SetFault(f); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		c := forms("hello there", 4)[0]
		r.expectWhole(c, r.call(c))
	}
}

// A prefill that is cut as its decode fails is no failure of its engine.
func TestConcurrentConnectorBlamesNoPrefillForDecode(t *testing.T) {
	r := newRig(t, rigOptions{decode: 2, dialect: newPushDialect(), engine: func(o *sim.Options) {
		if o.Role == sim.RolePrefill {
			o.PrefillTokensPerSecond = 1
		}
		o.Role = sim.RoleBoth
	}})
	f, err := sim.ParseFault("status=500")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range r.decode {
		if err := d.SetFault(f); err != nil {
			t.Fatal(err)
		}
	}
	for range 8 {
		if a := r.call(forms(prompt, 4)[0]); a.status != 500 || a.code() != "decode_failed" {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	if n := r.metric(`xpyd_backend_ejections_total{backend="` + r.prefill[0].URL()); n != 0 || strings.Contains(r.logs.String(), `"role":"prefill","backend":"`+r.prefill[0].URL()+`","reason"`) {
		t.Errorf("%v ejections of prefill\n%s", n, r.logs)
	}
}

func TestShutdownEndsAnUpload(t *testing.T) {
	r := newRig(t, rigOptions{config: func(c *proxy.Config) { c.Timeouts.Drain = 100 * time.Millisecond }})
	c := forms("hello[[P:hang]]", 4)[0]
	text := raw(c, "late")
	conn := r.dialRaw()
	_, _ = io.WriteString(conn, text[:len(text)-5])
	r.await("uploading", func() bool { return r.metric("xpyd_request_bytes_buffered") > 0 })
	stopped := make(chan error, 1)
	go func() { stopped <- r.server.Shutdown() }()
	_ = conn.SetDeadline(time.Now().Add(2 * patience))
	expectError(t, conn, 503, "shutting_down") // the drain time is over
	_, _ = io.WriteString(conn, text[len(text)-5:])
	if err := <-stopped; err != nil {
		t.Errorf("shutdown: %v", err)
	}
	_ = conn.Close()
	if n := len(r.prefill[0].Requests()); n != 0 {
		t.Errorf("P was asked %d times after the drain", n)
	}
}

// a client that reads all the time, on a slow link.
func TestSlowButSteadyReaderIsServed(t *testing.T) {
	const size = 6 << 20
	body := `{"choices":[{"index":0,"text":"` + strings.Repeat("x", size) + `","finish_reason":"stop"}]}`
	url := rawDecode(t, fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body))
	r := newRig(t, rigOptions{prefill: -1,
		config: func(c *proxy.Config) { c.Timeouts.WriteStall = 2500 * time.Millisecond },
		router: func(c *router.Config) { c.Decode = router.MustEntries(url) }})
	conn := r.dialRaw()
	_ = conn.SetReadBuffer(64 << 10)
	_, _ = io.WriteString(conn, raw(forms("hello", 4)[0], "slow"))
	buf := make([]byte, 40<<10)
	got := 0
	for got < len(body) {
		n, err := conn.Read(buf)
		got += n
		if err != nil {
			t.Fatalf("cut off after %d of %d bytes: %v", got, len(body), err)
		}
		time.Sleep(30 * time.Millisecond)
	}
}

// what an engine says in a 500 stays out of the answer on the other routes too.
func TestOtherRoutesHideA500(t *testing.T) {
	url := rawDecode(t, "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 20\r\n\r\nhost 10.0.0.7 secret")
	r := newRig(t, rigOptions{prefill: -1, router: func(c *router.Config) { c.Decode = router.MustEntries(url) }})
	if a := r.post("/tokenize", `{"prompt":"x"}`); strings.Contains(a.body, "10.0.0.7") {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if r.metric(`xpyd_request_errors_total{code="decode_failed"`) == 0 {
		t.Error("not counted")
	}
}

// the cap on decode-only requests holds when they move to another D.
func TestDecodeOnlyCapHoldsOnAnotherBackend(t *testing.T) {
	r := newRig(t, rigOptions{decode: 2,
		config: func(c *proxy.Config) { c.DecodeOnly.MaxShare = 0.25 },
		router: func(c *router.Config) { c.DecodeMaxInFlight, c.Queue = 8, router.Line{} }})
	r.prefill[0].Kill()
	f, err := sim.ParseFault("hang")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.decode[0].SetFault(f); err != nil {
		t.Fatal(err)
	}
	r.decode[1].Kill() // each request meets it first or is on the other one
	for range 12 {
		c := r.dialRaw()
		_, _ = io.WriteString(c, raw(forms("hello", 4)[0], "x"))
	}
	inFlight := func() float64 { return r.metric(`xpyd_in_flight{backend="` + r.decode[0].URL()) }
	r.await("all settled", func() bool { return r.metric("xpyd_requests_total") == 8 })
	if n := inFlight(); n > 4 {
		t.Errorf("%v decode-only requests in flight, the cap is 4", n)
	}
}

func TestConnectionsOfOneAddress(t *testing.T) {
	r := newRig(t, rigOptions{config: func(c *proxy.Config) { c.Limits.ConnectionsPerIP = 1 }})
	r.dialRaw()
	second := r.dialRaw()
	_ = second.SetReadDeadline(time.Now().Add(2 * patience))
	if n, err := second.Read(make([]byte, 1)); n != 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a second connection: %d bytes, %v", n, err)
	}
	if n := r.metric(`xpyd_connections_turned_away_total{reason="per_ip"}`); n != 1 {
		t.Errorf("%v counted, want 1", n)
	}
}
