package proxy_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"xpyd/netio/tlsconf"
	"xpyd/netio/tlsconf/tlstest"
	"xpyd/proxy"
	"xpyd/router"
	"xpyd/sim"
)

// The rows T34 to T36 of the fault matrix: certificates that have expired, that another CA has signed, and
// that are replaced while requests run. tools/faults names the tests of each row.

// engineFault is what is wrong with TLS before an engine. server makes its configuration, and nil stands
// for an engine that speaks plain HTTP. own has the files that xpyd shows to engines.
type engineFault struct {
	name   string
	server func(ca, foreign *tlstest.CA, t *testing.T) *tls.Config
	own    func(ca *tlstest.CA) tlstest.Pair
	logged string
	after  bool // the handshake, as the client of TLS 1.3 sees it
}

func engineFaults() []engineFault {
	strict := func(ca, by *tlstest.CA, t *testing.T) *tls.Config {
		cfg := serverOf(t, ca.Local("strict"))
		cfg.ClientAuth, cfg.ClientCAs = tls.RequireAndVerifyClientCert, by.Pool
		return cfg
	}
	return []engineFault{
		{name: "expired", logged: "its certificate expired on ", server: func(ca, _ *tlstest.CA, t *testing.T) *tls.Config {
			return serverOf(t, ca.Issue("old", time.Now().Add(-time.Hour), "127.0.0.1"))
		}},
		{name: "not yet valid", logged: "its certificate is not valid before ", server: func(ca, _ *tlstest.CA, t *testing.T) *tls.Config {
			return serverOf(t, ca.IssueBetween("early", time.Now().Add(time.Hour), time.Now().Add(2*time.Hour), "127.0.0.1"))
		}},
		{name: "other CA", logged: "signed by a CA that is not known here", server: func(_, foreign *tlstest.CA, t *testing.T) *tls.Config {
			return serverOf(t, foreign.Local("foreign"))
		}},
		{name: "other name", logged: "and not for 127.0.0.1", server: func(ca, _ *tlstest.CA, t *testing.T) *tls.Config {
			return serverOf(t, ca.Issue("far", time.Now().Add(time.Hour), "far.example"))
		}},
		{name: "plain", logged: "it does not speak TLS"},
		{name: "xpyd's certificate is of another CA", after: true, logged: "it refuses xpyd's certificate (", server: func(ca, foreign *tlstest.CA, t *testing.T) *tls.Config {
			return strict(ca, foreign, t)
		}, own: func(ca *tlstest.CA) tlstest.Pair { return ca.Local("own") }},
		{name: "xpyd's certificate has expired", after: true, logged: "it refuses xpyd's certificate (expired certificate)", server: func(ca, _ *tlstest.CA, t *testing.T) *tls.Config {
			return strict(ca, ca, t)
		}, own: func(ca *tlstest.CA) tlstest.Pair { return ca.Issue("own", time.Now().Add(-time.Hour), "127.0.0.1") }},
	}
}

// config is that of a proxy that trusts ca.
func (f engineFault) config(ca *tlstest.CA) func(c *proxy.Config) {
	return func(c *proxy.Config) {
		c.BackendTLS = tlsconf.Client{CA: ca.File}
		if f.own != nil {
			p := f.own(ca)
			c.BackendTLS.Cert, c.BackendTLS.Key = p.Cert, p.Key
		}
	}
}

// url is that of the engine behind the fault.
func (f engineFault) url(t *testing.T, ca *tlstest.CA, engine string) string {
	target := strings.TrimPrefix(engine, "http://")
	if f.server == nil {
		return "https://" + target
	}
	return "https://" + tlstest.Terminate(t, f.server(ca, tlstest.NewCA(t), t), target)
}

// A pool whose only engine cannot be spoken to is down: 503 at once, no prefill, and the log has the cause.
func TestOnlyEngineWhoseCertificateIsRefused(t *testing.T) {
	together(t)
	for _, f := range engineFaults() {
		t.Run(f.name, func(t *testing.T) {
			ca := tlstest.NewCA(t)
			var d []*sim.Engine
			r := newRig(t, rigOptions{
				config: f.config(ca),
				router: func(c *router.Config) {
					c.Decode = router.MustEntries(f.url(t, ca, c.Decode[0].URL))
					c.Health.Interval, c.Health.SuspectInterval = 50*time.Millisecond, 50*time.Millisecond
				},
				before: func(r *rig) { r.decode, d = nil, r.decode }, // it is not waited for
			})
			r.await("logged", func() bool { return strings.Contains(r.logs.String(), f.logged) })
			for _, c := range forms(prompt, 5) {
				a := r.call(c, "X-Request-Id", "nobody")
				if a.status != 503 || a.code() != "decode_unavailable" || a.header.Get("Retry-After") == "" || a.header.Get("X-Request-Id") != "nobody" {
					t.Errorf("%s: %d %s %v", c.name(), a.status, a.body, a.header)
				}
			}
			if n := r.metric(`xpyd_request_errors_total{code="decode_unavailable"}`); n != 4 {
				t.Errorf("%v errors counted", n)
			}
			if n := len(r.prefill[0].Requests()) + len(d[0].Requests()); n != 0 {
				t.Errorf("engines were asked %d times", n)
			}
			r.expectNothingHeld()
		})
	}
}

// switching is a server whose configuration changes under way. A session is not resumed, because that shows
// no certificate.
type switching struct{ now atomic.Pointer[tls.Config] }

func (s *switching) set(cfg *tls.Config) {
	cfg.SessionTicketsDisabled = true
	s.now.Store(cfg)
}

func (s *switching) config() *tls.Config {
	return &tls.Config{
		GetConfigForClient:     func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.now.Load(), nil },
		SessionTicketsDisabled: true,
	}
}

// A certificate goes bad between two checks. The decode engine has not seen the handle then, which goes to
// another one.
func TestEngineWhoseCertificateGoesBad(t *testing.T) {
	together(t)
	for _, f := range engineFaults() {
		if f.server == nil {
			continue
		}
		t.Run(f.name, func(t *testing.T) {
			ca, front := tlstest.NewCA(t), &switching{}
			front.set(serverOf(t, ca.Local("engine")))
			bad := ""
			r := newRig(t, rigOptions{
				decode: 2,
				config: then(f.config(ca), func(c *proxy.Config) { c.Timeouts.UpstreamIdle = time.Nanosecond }),
				router: func(c *router.Config) {
					c.Health.EjectAfter = 0
					bad = "https://" + tlstest.Terminate(t, front.config(), strings.TrimPrefix(c.Decode[0].URL, "http://"))
					c.Decode[0].URL = bad
				},
			})
			r.server.StopChecks()
			front.set(f.server(ca, tlstest.NewCA(t), t))
			outcome := map[bool]string{false: "refused", true: "gateway"}[f.after]
			met := func() bool { return r.legOutcome(bad, "decode", outcome) > 0 }
			r.until(met, func(i int) {
				c, id := forms(fmt.Sprint(i, prompt), 5)[i%4], fmt.Sprint("bad-", i)
				a := r.call(c, "X-Request-Id", id)
				r.expectWhole(c, a)
				if got := a.header.Get("X-Xpyd-Path"); got != "disaggregated" || a.header.Get("X-Request-Id") != id {
					t.Errorf("%s: %v", id, a.header)
				}
			})
			if n := len(r.decode[0].Requests()); n != 0 {
				t.Errorf("the engine got %d requests", n)
			}
			r.expectEachHandleOnce()
			r.expectNothingHeld()
		})
	}
}

// An engine that takes connections and never says its part of the handshake fails as a dial does, after
// timeouts.handshake.
func TestEngineThatHangsInTheHandshake(t *testing.T) {
	together(t)
	ca := tlstest.NewCA(t)
	var hang atomic.Bool
	release := make(chan struct{})
	cfg := serverOf(t, ca.Local("engine"))
	slow := &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		if hang.Load() {
			<-release
		}
		return cfg, nil
	}}
	bad := ""
	r := newRig(t, rigOptions{
		decode: 2,
		config: func(c *proxy.Config) {
			c.BackendTLS = tlsconf.Client{CA: ca.File}
			c.Timeouts.UpstreamIdle, c.Timeouts.Handshake = time.Nanosecond, 200*time.Millisecond
		},
		router: func(c *router.Config) {
			c.Health.EjectAfter = 0
			bad = "https://" + tlstest.Terminate(t, slow, strings.TrimPrefix(c.Decode[0].URL, "http://"))
			c.Decode[0].URL = bad
		},
	})
	t.Cleanup(func() { close(release) })
	r.server.StopChecks()
	hang.Store(true)
	r.until(func() bool { return r.legOutcome(bad, "decode", "refused") > 0 }, func(i int) {
		c := forms(fmt.Sprint(i, prompt), 5)[i%4]
		r.expectWhole(c, r.call(c))
	})
	r.expectEachHandleOnce()
	r.expectNothingHeld()
}

// A client's certificate that has expired, is of another CA or is for servers is turned away with the alert
// that names the cause. No engine is asked, and the next client is served.
func TestClientsWhoseCertificateIsRefused(t *testing.T) {
	ca, foreign := tlstest.NewCA(t), tlstest.NewCA(t)
	o := secured(t, ca, rigOptions{})
	o.config = then(o.config, func(c *proxy.Config) { c.TLS.ClientCA = ca.File })
	good := ca.Local("client").Load(t)
	own := o.before
	o.before = func(r *rig) {
		own(r)
		r.client.Transport.(*http.Transport).TLSClientConfig.Certificates = []tls.Certificate{good}
	}
	r := newRig(t, o)
	for i, tc := range []struct {
		name string
		cert *tls.Certificate
		want string
	}{
		{"expired", load(t, ca.Issue("late", time.Now().Add(-time.Hour))), "expired certificate"},
		{"not yet valid", load(t, ca.IssueBetween("early", time.Now().Add(time.Hour), time.Now().Add(2*time.Hour))), "expired certificate"},
		{"other CA", load(t, foreign.Local("foreign")), "unknown certificate authority"},
		{"none", nil, "certificate required"},
	} {
		for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			cfg := &tls.Config{RootCAs: ca.Pool, MinVersion: version, MaxVersion: version}
			if tc.cert != nil { // even if the server does not name its CA
				cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return tc.cert, nil }
			}
			got, err := askTLS(strings.TrimPrefix(r.url, "https://"), cfg)
			want := tc.want
			if tc.cert == nil && version == tls.VersionTLS12 {
				want = "handshake failure"
			}
			if err == nil || got != "" {
				t.Errorf("%s: answered %q", tc.name, got)
			} else if !strings.Contains(err.Error(), want) && !strings.Contains(err.Error(), "bad certificate") {
				t.Errorf("%s, %s: %v, want %s", tc.name, tls.VersionName(version), err, want)
			}
			turned := 2*i + 1 + int(version-tls.VersionTLS12)
			r.await("counted", func() bool { return r.metric(`xpyd_connections_turned_away_total{reason="tls"}`) == float64(turned) })
		}
	}
	if n := len(legs(r.prefill, "prefill")) + len(legs(r.decode, "decode")); n != 0 {
		t.Errorf("engines were asked %d times", n)
	}
	for _, c := range forms(prompt, 5) {
		r.expectWhole(c, r.call(c))
	}
	r.expectNothingHeld()
}

func load(t *testing.T, p tlstest.Pair) *tls.Certificate {
	cert := p.Load(t)
	return &cert
}

// askTLS sends a request over a connection of its own, and returns what comes.
func askTLS(addr string, cfg *tls.Config) (got string, err error) {
	conn, err := tls.Dial("tcp", addr, cfg)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(2 * patience))
	if _, err := io.WriteString(conn, "GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); err != nil {
		return "", err
	}
	got, err = bufio.NewReader(conn).ReadString('\n')
	return got, err
}
