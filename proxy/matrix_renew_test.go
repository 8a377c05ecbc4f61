package proxy_test

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"xpyd/netio/tlsconf"
	"xpyd/netio/tlsconf/tlstest"
	"xpyd/proxy"
	"xpyd/router"
	"xpyd/sim"
)

// renewal is a rig over TLS on both sides, with certificates on both sides, whose files a test replaces.
type renewal struct {
	*rig
	ca, next *tlstest.CA // of all certificates, at first and later
	engines  *switching
	files    tlsconf.Server // of the data port; the CA of clients is also that of engines
	pools    router.Config
}

func newRenewal(t *testing.T, o rigOptions) *renewal {
	t.Helper()
	n := &renewal{ca: tlstest.NewCA(t), next: tlstest.NewCA(t), engines: &switching{}}
	n.setEngines(t, n.ca)
	front := n.ca.Local("xpyd")
	n.files = tlsconf.Server{Cert: front.Cert, Key: front.Key, ClientCA: n.ca.File}
	o.config = then(o.config, func(c *proxy.Config) {
		c.TLS = n.files
		c.BackendTLS = tlsconf.Client{CA: n.ca.File, Cert: front.Cert, Key: front.Key}
	})
	o.router = then(o.router, func(c *router.Config) {
		secureEngines(t, c, n.engines.config())
		n.pools = *c
	})
	client := n.ca.Local("client")
	o.before = func(r *rig) {
		r.url = strings.Replace(r.url, "http://", "https://", 1)
		r.client = n.clientOf(t, n.ca, client)
	}
	n.rig = newRig(t, o)
	return n
}

// setEngines gives the engines a certificate of a CA. They take no other client's.
func (n *renewal) setEngines(t *testing.T, ca *tlstest.CA) {
	cfg := serverOf(t, ca.Local("engine"))
	cfg.ClientAuth, cfg.ClientCAs = tls.RequireAndVerifyClientCert, ca.Pool
	n.engines.set(cfg)
}

// clientOf trusts a CA and shows a certificate. It keeps connections and sessions.
func (n *renewal) clientOf(t *testing.T, ca *tlstest.CA, own tlstest.Pair) *http.Client {
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{
		RootCAs: ca.Pool, Certificates: []tls.Certificate{own.Load(t)}, ClientSessionCache: tls.NewLRUClientSessionCache(0),
	}}}
}

// replaceAll writes what the other CA has signed over the files in use.
func (n *renewal) replaceAll(t *testing.T) {
	t.Helper()
	front := n.next.Local("xpyd")
	for to, from := range map[string]string{n.files.Cert: front.Cert, n.files.Key: front.Key, n.files.ClientCA: n.next.File} {
		text, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(to, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := n.server.Reload(n.pools); err != nil {
		t.Fatal(err)
	}
}

// All certificates and CAs are replaced while streams run: they go on to their end. Later connections get
// the new ones on both sides, and a client of the CA before gets in no more, even with a session of before.
func TestStreamsOutliveTheirCertificates(t *testing.T) {
	together(t)
	for _, c := range []call{forms(prompt, 40)[1], forms(prompt, 40)[3]} {
		t.Run(c.name(), func(t *testing.T) {
			b := newBarrier(sim.PhaseStreamEvent, 20)
			n := newRenewal(t, rigOptions{engine: func(o *sim.Options) { o.Hook = b.hook }})
			t.Cleanup(b.open)
			n.expectWhole(forms("before", 2)[0], n.call(forms("before", 2)[0]))
			got := make(chan answer, 1)
			go func() { got <- n.call(c, "X-Request-Id", "long") }()
			n.reached(b)
			n.replaceAll(t)
			n.setEngines(t, n.next)
			late := n.clientOf(t, n.next, n.next.Local("client"))
			defer late.CloseIdleConnections()
			early := n.client
			for i, c := range forms("after", 3) {
				n.client = late
				n.expectWhole(c, n.call(c, "X-Request-Id", fmt.Sprint("after-", i)))
			}
			b.open()
			n.expectWhole(c, n.soon(got))
			early.CloseIdleConnections() // so that it has to show its certificate again
			n.client = early
			if a := n.call(forms("again", 2)[0], "X-Request-Id", "again"); a.err == nil {
				t.Errorf("a client of the CA before was served: %d %s", a.status, a.body)
			}
			if n := len(legsOf(n.prefill[0], "again")); n != 0 {
				t.Errorf("its request came to %d engines", n)
			}
			n.await("counted", func() bool { return n.metric(`xpyd_connections_turned_away_total{reason="tls"}`) == 1 })
			n.client = late
			n.expectNothingHeld()
		})
	}
}

// Files that cannot be used leave those before in force, on both sides, and are told once with key and file
// and without what they hold. Good ones are taken again.
func TestBadCertificateFilesChangeNothing(t *testing.T) {
	n := newRenewal(t, rigOptions{config: func(c *proxy.Config) { c.Timeouts.UpstreamIdle = time.Nanosecond }})
	good := map[string][]byte{}
	for _, path := range []string{n.files.Cert, n.files.Key, n.files.ClientCA} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		good[path] = text
	}
	foreign := tlstest.NewCA(t).Local("foreign")
	strange, err := os.ReadFile(foreign.Key)
	if err != nil {
		t.Fatal(err)
	}
	ends := n.metric("xpyd_certificate_expiry_timestamp_seconds")
	restore := func() {
		for path, text := range good {
			if err := os.WriteFile(path, text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := n.server.Reload(n.pools); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		name, path string
		text       []byte // nil: the file is gone
		keys       []string
	}{
		{"empty certificate", n.files.Cert, []byte{}, []string{"tls.cert", "backend_tls.cert"}},
		{"half a certificate", n.files.Cert, good[n.files.Cert][:len(good[n.files.Cert])/2], []string{"tls.cert", "backend_tls.cert"}},
		{"certificate is gone", n.files.Cert, nil, []string{"tls.cert", "backend_tls.cert"}},
		{"another one's key", n.files.Key, strange, []string{"tls.key", "backend_tls.key"}},
		{"no CA", n.files.ClientCA, []byte("secret nonsense"), []string{"tls.client_ca", "backend_tls.ca"}},
		{"CA is gone", n.files.ClientCA, nil, []string{"tls.client_ca", "backend_tls.ca"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			begun := len(n.logs.String())
			if tc.text == nil {
				err = os.Remove(tc.path)
			} else {
				err = os.WriteFile(tc.path, tc.text, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			for range 3 {
				_ = n.server.Reload(n.pools)
				n.client.CloseIdleConnections()
				for _, c := range forms(tc.name, 3) {
					n.expectWhole(c, n.call(c))
				}
			}
			logged := n.logs.String()[begun:]
			for _, key := range tc.keys {
				line := "\"error\":\"" + key + ": "
				if got := strings.Count(logged, line); got != 1 || !strings.Contains(logged, "certificates not reloaded; those before stay in force") {
					t.Errorf("%s: told %d times\n%s", key, got, logged)
				}
			}
			if strings.Contains(logged, "secret nonsense") || strings.Contains(logged, "PRIVATE") {
				t.Errorf("the log shows a file\n%s", logged)
			}
			if got := n.metric("xpyd_certificate_expiry_timestamp_seconds"); got != ends {
				t.Errorf("expiries %v, before %v", got, ends)
			}
			restore()
		})
	}
	n.expectNothingHeld()
}
