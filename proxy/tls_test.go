package proxy_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"xpyd/admin"
	"xpyd/netio/tlsconf"
	"xpyd/netio/tlsconf/tlstest"
	"xpyd/proxy"
	"xpyd/router"
	"xpyd/sim"
)

// secured has the options of a rig whose clients and engines speak TLS, with certificates on both sides.
func secured(t *testing.T, ca *tlstest.CA, o rigOptions) rigOptions {
	t.Helper()
	front, back := ca.Local("xpyd"), ca.Local("engine")
	o.config = then(o.config, func(c *proxy.Config) {
		c.TLS = tlsconf.Server{Cert: front.Cert, Key: front.Key}
		c.BackendTLS = tlsconf.Client{CA: ca.File, Cert: front.Cert, Key: front.Key}
	})
	o.router = then(o.router, func(c *router.Config) {
		engine := &tls.Config{Certificates: []tls.Certificate{back.Load(t)}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ca.Pool}
		secureEngines(t, c, engine)
	})
	o.before = func(r *rig) {
		r.url = strings.Replace(r.url, "http://", "https://", 1)
		r.client.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca.Pool}}
	}
	return o
}

func then[T any](first, second func(*T)) func(*T) {
	return func(c *T) {
		if first != nil {
			first(c)
		}
		second(c)
	}
}

// secureEngines puts TLS before each engine.
func secureEngines(t *testing.T, c *router.Config, cfg *tls.Config) {
	for _, pool := range []*[]router.Entry{&c.Prefill, &c.Decode} {
		for i, e := range *pool {
			(*pool)[i].URL = "https://" + tlstest.Terminate(t, cfg, strings.TrimPrefix(e.URL, "http://"))
		}
	}
}

// dialTLS opens a client connection over TLS. The other one is what TLS runs on.
func (r *rig) dialTLS(ca *tlstest.CA, version uint16) (*tls.Conn, *net.TCPConn) {
	r.t.Helper()
	under, err := net.Dial("tcp", strings.TrimPrefix(r.url, "https://"))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = under.Close() })
	conn := tls.Client(under, &tls.Config{RootCAs: ca.Pool, ServerName: "127.0.0.1", MaxVersion: version})
	if err := conn.Handshake(); err != nil {
		r.t.Fatal(err)
	}
	return conn, under.(*net.TCPConn)
}

func TestCompletionsOverTLS(t *testing.T) {
	ca := tlstest.NewCA(t)
	r := newRig(t, secured(t, ca, rigOptions{}))
	for _, size := range []int{1, 100 << 10} { // more than a record, and than a raw write
		for _, c := range forms(strings.Repeat("word ", size/5+1), 30) {
			r.expectWhole(c, r.call(c))
		}
	}
	if n := r.metric(`xpyd_requests_total{api="chat",outcome="ok"}`); n != 4 {
		t.Errorf("%v chats counted", n)
	}
	r.expectNothingHeld()
}

// A client may leave in the way of TLS and keep its connection open, or in those of TCP.
func TestClientThatLeavesOverTLS(t *testing.T) {
	together(t)
	for name, version := range map[string]uint16{"1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13} {
		for how, leave := range map[string]func(*tls.Conn, *net.TCPConn){
			"close_notify": func(c *tls.Conn, _ *net.TCPConn) { _ = c.CloseWrite() },
			"close":        func(c *tls.Conn, _ *net.TCPConn) { _ = c.Close() },
			"half-close":   func(_ *tls.Conn, c *net.TCPConn) { _ = c.CloseWrite() },
			"reset":        func(_ *tls.Conn, c *net.TCPConn) { _ = c.SetLinger(0); _ = c.Close() },
		} {
			for _, phase := range []sim.Phase{sim.PhasePrefillStart, sim.PhaseStreamEvent} {
				t.Run(name+"/"+how+"/"+string(phase), func(t *testing.T) {
					ca := tlstest.NewCA(t)
					b := newBarrier(phase, map[bool]int{true: 3}[phase == sim.PhaseStreamEvent])
					r := newRig(t, secured(t, ca, rigOptions{engine: func(o *sim.Options) { o.Hook = b.hook }}))
					t.Cleanup(b.open)
					conn, under := r.dialTLS(ca, version)
					_, _ = io.WriteString(conn, raw(forms(prompt, 9)[1], "leaver"))
					<-b.reached
					leave(conn, under)
					r.await("aware", func() bool { return r.server.Departed()+int64(r.metric("xpyd_client_gone_total")) == 1 })
					b.open()
					r.await("counted", func() bool { return r.metric("xpyd_client_gone_total") == 1 })
					r.expectNothingHeld()
				})
			}
		}
	}
}

// A client that sends bytes behind its body, in a record as long as close_notify, stays. They belong to its next request.
func TestClientThatSendsALineEndOverTLSStays(t *testing.T) {
	together(t)
	for name, version := range map[string]uint16{"1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13} {
		t.Run(name, func(t *testing.T) {
			ca := tlstest.NewCA(t)
			b := newBarrier(sim.PhaseStreamEvent, 3)
			r := newRig(t, secured(t, ca, rigOptions{engine: func(o *sim.Options) { o.Hook = b.hook }}))
			t.Cleanup(b.open)
			conn, _ := r.dialTLS(ca, version)
			c := forms(prompt, 9)[1]
			_, _ = io.WriteString(conn, raw(c, "stays"))
			<-b.reached
			_, _ = io.WriteString(conn, "\r\n")
			time.Sleep(500 * time.Millisecond) // the watcher looks every 100 ms
			if n := r.server.Departed() + int64(r.metric("xpyd_client_gone_total")); n != 0 {
				t.Error("taken for one that has left")
			}
			b.open()
			in := bufio.NewReader(conn)
			for _, id := range []string{"stays", "next"} {
				resp, err := http.ReadResponse(in, nil)
				if err != nil {
					t.Fatalf("%s: %v", id, err)
				}
				body, err := io.ReadAll(resp.Body)
				if err != nil || resp.StatusCode != 200 || !strings.HasSuffix(string(body), "data: [DONE]\n\n") {
					t.Errorf("%s: %d %v %s", id, resp.StatusCode, err, body)
				}
				if id == "stays" {
					_, _ = io.WriteString(conn, raw(c, "next"))
				}
			}
			r.expectNothingHeld()
		})
	}
}

// recorded keeps what a connection brings.
type recorded struct {
	net.Conn
	mu  sync.Mutex
	got bytes.Buffer
}

func (c *recorded) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.got.Write(p[:n])
	return n, err
}

// lastRecord is the type of the last record of TLS 1.2 that has come: 21 is an alert.
func (c *recorded) lastRecord() (kind byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for b := c.got.Bytes(); len(b) >= 5; {
		kind = b[0]
		b = b[min(len(b), 5+int(b[3])<<8+int(b[4])):]
	}
	return kind
}

// Only a whole answer is followed by close_notify. After another one TLS says that it was cut.
func TestCutAnswersGetNoFarewellOfTLS(t *testing.T) {
	together(t)
	for _, version := range []string{"1.0", "1.1"} {
		for _, cut := range []bool{false, true} {
			t.Run(fmt.Sprintf("HTTP %s, cut %v", version, cut), func(t *testing.T) {
				ca := tlstest.NewCA(t)
				r := newRig(t, secured(t, ca, rigOptions{}))
				under, err := net.Dial("tcp", strings.TrimPrefix(r.url, "https://"))
				if err != nil {
					t.Fatal(err)
				}
				rec := &recorded{Conn: under}
				conn := tls.Client(rec, &tls.Config{RootCAs: ca.Pool, ServerName: "127.0.0.1", MaxVersion: tls.VersionTLS12})
				defer func() { _ = conn.Close() }()
				c := streamed(false, 9, map[bool]string{true: "[[D:cut@4]]"}[cut])
				body := c.body()
				_, _ = fmt.Fprintf(conn, "POST %s HTTP/%s\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", c.path(), version, len(body), body)
				_ = conn.SetReadDeadline(time.Now().Add(2 * patience))
				got, _ := io.ReadAll(conn)
				if whole := bytes.Contains(got, []byte("[DONE]")); whole == cut {
					t.Fatalf("whole %v: %q", whole, got)
				}
				if said := rec.lastRecord() == 21; said == cut {
					t.Errorf("close_notify %v after %q", said, got)
				}
			})
		}
	}
}

// A connection that was idle for too long ends with close_notify. The deadline of its last answer has passed by then.
func TestIdleConnectionEndsWithAFarewellOfTLS(t *testing.T) {
	ca := tlstest.NewCA(t)
	r := newRig(t, secured(t, ca, rigOptions{config: func(c *proxy.Config) {
		c.Timeouts.WriteStall, c.Timeouts.Idle = 2*time.Second, 5*time.Second
	}}))
	under, err := net.Dial("tcp", strings.TrimPrefix(r.url, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	rec := &recorded{Conn: under}
	conn := tls.Client(rec, &tls.Config{RootCAs: ca.Pool, ServerName: "127.0.0.1", MaxVersion: tls.VersionTLS12})
	defer func() { _ = conn.Close() }()
	_, _ = io.WriteString(conn, "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
	_ = conn.SetReadDeadline(time.Now().Add(2 * patience))
	got, err := io.ReadAll(conn)
	if err != nil || !bytes.HasPrefix(got, []byte("HTTP/1.1 200 ")) {
		t.Fatalf("%q, %v", got, err)
	}
	if kind := rec.lastRecord(); kind != 21 {
		t.Errorf("the last record is of type %d", kind)
	}
}

// A relayed stream that breaks off gets none either.
func TestCutRelayedAnswerGetsNoFarewellOfTLS(t *testing.T) {
	for _, cut := range []bool{false, true} {
		ca := tlstest.NewCA(t)
		end := map[bool]string{false: "0\r\n\r\n"}[cut]
		url := rawDecode(t, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n9\r\ndata: {}\n\r\n"+end)
		o := secured(t, ca, rigOptions{prefill: -1})
		o.router = func(c *router.Config) { c.Decode = router.MustEntries(url) }
		r := newRig(t, o)
		under, err := net.Dial("tcp", strings.TrimPrefix(r.url, "https://"))
		if err != nil {
			t.Fatal(err)
		}
		rec := &recorded{Conn: under}
		conn := tls.Client(rec, &tls.Config{RootCAs: ca.Pool, ServerName: "127.0.0.1", MaxVersion: tls.VersionTLS12})
		defer func() { _ = conn.Close() }()
		const body = `{"input":"x"}`
		_, _ = fmt.Fprintf(conn, "POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		_ = conn.SetReadDeadline(time.Now().Add(2 * patience))
		got, _ := io.ReadAll(conn)
		if said := rec.lastRecord() == 21; said == cut || !bytes.Contains(got, []byte("data: {}")) {
			t.Errorf("cut %v: close_notify %v after %q", cut, said, got)
		}
	}
}

// What speaks no TLS, or another one, is turned away. HTTP gets an answer.
func TestHandshakesThatFail(t *testing.T) {
	ca := tlstest.NewCA(t)
	o := secured(t, ca, rigOptions{})
	o.config = then(o.config, func(c *proxy.Config) { c.TLS.ClientCA = ca.File })
	r := newRig(t, o)
	addr := strings.TrimPrefix(r.url, "https://")
	resp, err := http.Get("http://" + addr + "/v1/models")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	if err != nil || resp.StatusCode != 400 || !strings.Contains(string(body), "this port speaks TLS; use https://") {
		t.Errorf("plain HTTP: %v, %d %s", err, resp.StatusCode, body)
	}
	foreign := tlstest.NewCA(t).Local("foreign").Load(t)
	for i, cfg := range []*tls.Config{
		{RootCAs: ca.Pool, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11},
		{RootCAs: ca.Pool}, // shows no certificate
		{RootCAs: ca.Pool, Certificates: []tls.Certificate{foreign}},
		{RootCAs: ca.Pool, NextProtos: []string{"h2"}},
	} {
		conn, err := tls.Dial("tcp", addr, cfg)
		if err == nil { // with TLS 1.3 the server's refusal comes after the handshake
			_, _ = io.WriteString(conn, "GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n")
			_, err = conn.Read(make([]byte, 1))
			_ = conn.Close()
		}
		if err == nil {
			t.Errorf("client %d was served", i)
		}
		r.await("counted", func() bool {
			return r.metric(`xpyd_connections_turned_away_total{reason="tls"}`) == float64(i+2)
		})
	}
	if !strings.Contains(r.logs.String(), "TLS handshake with a client failed") {
		t.Error("no line in the log")
	}
}

// A client that offers HTTP/1.0 alone is served, and one that says nothing is no failure, however it leaves.
func TestHandshakesThatAreNoFailure(t *testing.T) {
	ca := tlstest.NewCA(t)
	o := secured(t, ca, rigOptions{})
	o.config = then(o.config, func(c *proxy.Config) { c.Timeouts.Header = 100 * time.Millisecond })
	r := newRig(t, o)
	addr := strings.TrimPrefix(r.url, "https://")
	for _, offer := range [][]string{nil, {"http/1.0"}, {"h2", "http/1.0"}, {"http/1.0", "http/1.1"}} {
		conn, err := tls.Dial("tcp", addr, &tls.Config{RootCAs: ca.Pool, NextProtos: offer})
		if err != nil {
			t.Errorf("%v: %v", offer, err)
			continue
		}
		_, _ = io.WriteString(conn, "GET /v1/models HTTP/1.0\r\n\r\n")
		if all, err := io.ReadAll(conn); err != nil || !bytes.HasPrefix(all, []byte("HTTP/1.1 200 ")) {
			t.Errorf("%v: %v %s", offer, err, all)
		}
		_ = conn.Close()
	}
	for how, leave := range map[string]func(c *net.TCPConn){
		"FIN":     func(c *net.TCPConn) { _ = c.Close() },
		"RST":     func(c *net.TCPConn) { _ = c.SetLinger(0); _ = c.Close() },
		"timeout": func(c *net.TCPConn) { _, _ = c.Read(make([]byte, 1)); _ = c.Close() },
	} {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		r.await("accepted", func() bool { return r.server.Connections() > 0 })
		leave(conn.(*net.TCPConn))
		r.await("gone", func() bool { return r.server.Connections() == 0 })
		if n := r.metric(`xpyd_connections_turned_away_total{reason="tls"}`); n != 0 || strings.Contains(r.logs.String(), "handshake") {
			t.Errorf("%s: %v counted, %s", how, n, r.logs.String())
		}
	}
}

// Nor is it one on the admin port.
func TestAdminPortIsQuietAboutSilentConnections(t *testing.T) {
	r := newRig(t, rigOptions{})
	said := new(bytes.Buffer)
	errors := admin.New(admin.Config{View: r.server.View(), Desk: r.desk, Log: zerolog.New(said)}).ErrorLog
	for _, end := range []string{"EOF", "read tcp 127.0.0.1:1->127.0.0.1:2: read: connection reset by peer", "read tcp 127.0.0.1:1->127.0.0.1:2: i/o timeout"} {
		errors.Printf("http: TLS handshake error from %s: %s", "127.0.0.1:2", end)
	}
	if said.Len() > 0 {
		t.Errorf("a warning: %s", said)
	}
	errors.Printf("http: TLS handshake error from 127.0.0.1:2: remote error: tls: bad certificate")
	if !strings.Contains(said.String(), "bad certificate") {
		t.Errorf("no warning of a handshake that failed: %q", said)
	}
}

// What is wrong with an engine's certificate stands in the log with its fix. The engine gets no requests,
// and those of its pool go on.
func TestEnginesWhoseCertificateIsRefused(t *testing.T) {
	together(t)
	ca, foreign := tlstest.NewCA(t), tlstest.NewCA(t)
	for _, tc := range []struct {
		name   string
		engine func() *tls.Config // nil: the engine speaks plain HTTP
		want   string
	}{
		{"expired", func() *tls.Config { return serverOf(t, ca.Issue("old", time.Now().Add(-time.Hour), "127.0.0.1")) }, "TLS: its certificate expired on "},
		{"other CA", func() *tls.Config { return serverOf(t, foreign.Local("foreign")) }, "TLS: its certificate is signed by a CA that is not known here; put that CA into backend_tls.ca"},
		{"other name", func() *tls.Config { return serverOf(t, ca.Issue("far", time.Now().Add(time.Hour), "far.example")) },
			`TLS: its certificate is for [\"far.example\"] and not for 127.0.0.1; give one of these names in its URL or in backend_tls.server_name`},
		{"asks for a certificate", func() *tls.Config {
			cfg := serverOf(t, ca.Local("strict"))
			cfg.ClientAuth, cfg.ClientCAs = tls.RequireAndVerifyClientCert, foreign.Pool
			return cfg
		}, "TLS: it refuses xpyd's certificate ("},
		{"plain", nil, "TLS: it does not speak TLS; give its URL with http://"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bad := ""
			r := newRig(t, rigOptions{
				prefill: 2,
				config:  func(c *proxy.Config) { c.BackendTLS = tlsconf.Client{CA: ca.File} },
				router: func(c *router.Config) {
					inTurn(c)
					c.Health.SuspectInterval = 20 * time.Millisecond
					bad = "https://" + strings.TrimPrefix(c.Prefill[1].URL, "http://")
					if tc.engine != nil {
						bad = "https://" + tlstest.Terminate(t, tc.engine(), strings.TrimPrefix(c.Prefill[1].URL, "http://"))
					}
					c.Prefill[1].URL = bad
				},
				before: func(r *rig) { r.prefill = r.prefill[:1] }, // the other is not waited for
			})
			r.await("logged", func() bool { return strings.Contains(r.logs.String(), tc.want) })
			for range 4 {
				c := forms(prompt, 5)[1]
				r.expectWhole(c, r.call(c))
			}
		})
	}
}

func serverOf(t *testing.T, p tlstest.Pair) *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{p.Load(t)}}
}

// An answer that ends with its connection is whole only after close_notify.
func TestTruncatedAnswerOfAnEngineOverTLS(t *testing.T) {
	together(t)
	for i := range 4 {
		whole, version := i%2 == 1, map[bool]uint16{false: tls.VersionTLS12, true: tls.VersionTLS13}[i < 2]
		t.Run(fmt.Sprintf("whole %v, %s", whole, tls.VersionName(version)), func(t *testing.T) {
			ca := tlstest.NewCA(t)
			cfg := serverOf(t, ca.Local("engine"))
			cfg.MaxVersion = version
			r := newRig(t, rigOptions{
				prefill: -1,
				config:  func(c *proxy.Config) { c.BackendTLS = tlsconf.Client{CA: ca.File} },
				router: func(c *router.Config) {
					c.Decode = router.MustEntries("https://" + endless(t, cfg, whole))
				},
			})
			a := r.post("/tokenize", `{"model":"sim","prompt":"x"}`)
			if whole && (a.status != 200 || a.body != `{"tokens":[1]}`) || !whole && a.status != 502 {
				t.Errorf("%d %s %v\n%s", a.status, a.body, a.err, r.logs)
			}
		})
	}
}

// corked sends what is written at once, when it is closed.
type corked struct {
	net.Conn
	on   bool
	held []byte
}

func (c *corked) Write(p []byte) (int, error) {
	if !c.on {
		return c.Conn.Write(p)
	}
	c.held = append(c.held, p...)
	return len(p), nil
}

func (c *corked) Close() error {
	_ = c.SetWriteDeadline(time.Time{}) // crypto/tls sets one with close_notify
	_, _ = c.Conn.Write(c.held)
	return c.Conn.Close()
}

// endless answers /tokenize without a length, and ends it with or without close_notify, in one segment.
func endless(t *testing.T, cfg *tls.Config, whole bool) (addr string) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	serve := func(accepted net.Conn) {
		under := &corked{Conn: accepted}
		defer func() { _ = under.Close() }()
		conn := tls.Server(under, cfg)
		q, err := http.ReadRequest(bufio.NewReader(conn))
		switch {
		case err != nil:
		case q.Method == http.MethodGet:
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 23\r\nConnection: close\r\n\r\n"+`{"data":[{"id":"sim"}]}`)
		default:
			_, _ = io.Copy(io.Discard, q.Body)
			under.on = true
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"+`{"tokens":[1]}`)
			if whole {
				_ = conn.CloseWrite()
			}
		}
	}
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go serve(conn)
		}
	}()
	return ln.Addr().String()
}

// New certificates are in force for the next connections, and no request fails meanwhile. Files that
// cannot be used change nothing.
func TestCertificatesAreReplacedUnderLoad(t *testing.T) {
	ca := tlstest.NewCA(t)
	var pools router.Config
	o := secured(t, ca, rigOptions{})
	o.router = then(o.router, func(c *router.Config) { pools = *c })
	r := newRig(t, o)
	serial := func() string {
		conn, _ := r.dialTLS(ca, tls.VersionTLS13)
		defer func() { _ = conn.Close() }()
		return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca.Pool}, DisableKeepAlives: i%2 == 0}}
			defer client.CloseIdleConnections()
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				c := forms(fmt.Sprintf("client %d request %d", i, n), 4)[n%4]
				resp, err := client.Post(r.url+c.path(), "application/json", strings.NewReader(c.body()))
				if err != nil {
					t.Error(err)
					return
				}
				body, err := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if err != nil || resp.StatusCode != 200 {
					t.Errorf("%v %d %s", err, resp.StatusCode, body)
				}
			}
		})
	}
	seen := map[string]bool{serial(): true}
	var files tlstest.Pair
	for range 8 {
		files = ca.Local("xpyd") // over the files that are in use
		if err := r.server.Reload(pools); err != nil {
			t.Fatal(err)
		}
		seen[serial()] = true
	}
	if len(seen) != 9 {
		t.Errorf("%d certificates were served, want 9", len(seen))
	}
	last := serial()
	if err := os.WriteFile(files.Cert, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	_ = r.server.Reload(pools)
	if got := serial(); got != last {
		t.Errorf("serial %s, want that of the last good file, %s", got, last)
	}
	if !strings.Contains(r.logs.String(), "certificates not reloaded; those before stay in force") {
		t.Error("nothing in the log")
	}
	close(stop)
	wg.Wait()
	r.expectNothingHeld()
}

// An engine that refuses a large body answers before it has read it, over TLS too.
func TestEarlyAnswerOverTLS(t *testing.T) {
	const body = `{"error":{"message":"too much","code":413}}`
	ca := tlstest.NewCA(t)
	r := newRig(t, rigOptions{
		prefill: -1,
		config: func(c *proxy.Config) {
			c.Timeouts.FirstEvent = 2 * time.Minute // what the wait would end with
			c.BackendTLS = tlsconf.Client{CA: ca.File}
		},
		router: func(c *router.Config) {
			c.Decode = router.MustEntries(hastyTLS(t, serverOf(t, ca.Local("engine")), fmt.Sprintf("HTTP/1.1 413 Payload Too Large\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)))
		},
	})
	start := time.Now()
	a := r.call(forms(strings.Repeat("word ", 8<<20/5), 2)[0])
	if a.status != 413 || a.body != body || time.Since(start) > time.Minute {
		t.Fatalf("%d %.300s after %v", a.status, a.body, time.Since(start))
	}
}

// hastyTLS is hasty over TLS.
func hastyTLS(t *testing.T, cfg *tls.Config, answer string) (url string) {
	t.Helper()
	ln, err := tls.Listen("tcp", "127.0.0.1:0", cfg)
	if err != nil {
		t.Fatal(err)
	}
	return "https://" + hastyOn(t, ln, answer)
}
