package soak

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"xpyd/tools/certs"
	"xpyd/tools/process"
)

// runCerts has the certificates of a run over TLS. Clients, proxy and engines show one to each other. Those of
// the proxy and of the engines are replaced while the run goes on.
type runCerts struct {
	*certs.CA
	client   tls.Certificate
	sessions tls.ClientSessionCache // of the clients
	engine   atomic.Pointer[tls.Certificate]
}

// proxyFile is in the directory of artefacts. A certificate and its key are in one file, so that a rename
// replaces both.
const proxyFile = "proxy.pem"

func newCerts(dir string) (c *runCerts, err error) {
	c = &runCerts{sessions: tls.NewLRUClientSessionCache(0)}
	if c.CA, err = certs.New(dir); err != nil {
		return nil, err
	}
	if c.client, _, err = c.Issue(); err != nil {
		return nil, err
	}
	_, err = c.renew()
	return c, err
}

// renew replaces the certificates of the engines and of the proxy, and returns the serial number of the
// proxy's.
func (c *runCerts) renew() (serial int64, err error) {
	engine, _, err := c.Issue()
	if err != nil {
		return 0, err
	}
	c.engine.Store(&engine)
	_, err = c.Pair(proxyFile)
	return c.Last(), err
}

// server is the configuration of an engine.
func (c *runCerts) server() *tls.Config {
	if c == nil {
		return nil
	}
	return &tls.Config{
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.engine.Load(), nil },
		ClientAuth:     tls.RequireAndVerifyClientCert, ClientCAs: c.Pool,
	}
}

// dialer is the configuration of a client. With resume it takes up a session of before, as SDKs do. Where
// each refused request cost a whole handshake, the clients alone would take all of a small machine.
func (c *runCerts) dialer(version uint16, resume bool) *tls.Config {
	cfg := &tls.Config{RootCAs: c.Pool, ServerName: "127.0.0.1", Certificates: []tls.Certificate{c.client}, MaxVersion: version}
	if resume {
		cfg.ClientSessionCache = c.sessions
	}
	return cfg
}

// settings adds the keys of TLS to the proxy's configuration.
func (c *runCerts) settings(all map[string]any) {
	ca, own := c.File(), filepath.Join(c.Dir, proxyFile)
	all["tls"] = map[string]any{"cert": own, "key": own, "client_ca": ca}
	all["backend_tls"] = map[string]any{"ca": ca, "cert": own, "key": own}
	all["timeouts"].(map[string]any)["handshake"] = "2s"
}

// renewer replaces certificates during a run. A new one must be served soon, and a file that holds none
// must change nothing and be told.
type renewer struct{ s *soak }

// certsBound is how long the proxy may take to see a new file. It looks every 10 s.
const certsBound = 30 * time.Second

// run ends with the load, or soon after. The last two turns are in the last stage, when nothing else
// changes files. A turn that waits for the proxy to look may have taken most of it.
func (n *renewer) run(ctx context.Context) {
	pause := max(n.s.o.Duration/30, time.Second)
	last := func() time.Time { return n.s.plan.start(stageRecovery) } // later while the faults go on
	for time.Now().Add(pause).Before(last()) && process.SleepUntil(ctx, time.Now().Add(pause)) {
		n.turn(ctx, false)
	}
	for time.Now().Before(last()) {
		if !process.SleepUntil(ctx, last()) {
			return
		}
	}
	n.refuse(ctx)
	n.turn(ctx, true)
}

// turn replaces the certificates and waits until the proxy's is served. With hup the proxy is told.
func (n *renewer) turn(ctx context.Context, hup bool) {
	ctx = context.WithoutCancel(ctx) // what was begun is finished
	n.s.faults.close(n.s.faults.open("proxy", kindReplaced, "", 0))
	serial, err := n.s.certs.renew()
	if err == nil && hup {
		err = n.hangUp()
	}
	if err == nil {
		err = n.await(ctx, func() bool { return n.served() == serial })
	}
	if err != nil {
		n.s.verdict.Breach(invHealth, "a new certificate that is not served", "%v", err)
	}
}

// refuse puts a file that holds no certificate in the place of the proxy's.
func (n *renewer) refuse(ctx context.Context) {
	ctx = context.WithoutCancel(ctx)
	n.s.faults.close(n.s.faults.open("proxy", kindRefused, "", 0))
	before, told := int64(0), n.s.log.badCerts.Load()
	err := n.await(ctx, func() bool { before = n.served(); return before != 0 })
	if err == nil {
		err = n.s.certs.Write(proxyFile, []byte("no certificate\n"))
	}
	if err == nil {
		err = n.hangUp()
	}
	if err == nil {
		err = n.await(ctx, func() bool { return n.s.log.badCerts.Load() > told })
	}
	if err == nil && n.await(ctx, func() bool { return n.served() == before }) != nil { // one dial may fail
		err = fmt.Errorf("serial number %d is served, before %d", n.served(), before)
	}
	if err != nil {
		n.s.verdict.Breach(invHealth, "a file without a certificate that changed something, or was not told", "%v", err)
	}
}

func (n *renewer) hangUp() error {
	pid, _, _ := n.s.proxy.now()
	return n.s.proxy.signal(pid, syscall.SIGHUP)
}

func (n *renewer) await(ctx context.Context, ok func() bool) error {
	for end := time.Now().Add(certsBound); !ok(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) || ctx.Err() != nil {
			return fmt.Errorf("not within %v", certsBound)
		}
	}
	return nil
}

// served is the serial number of the certificate that a new connection gets, or 0.
func (n *renewer) served() int64 {
	d := tls.Dialer{NetDialer: &net.Dialer{Timeout: certsBound}, Config: n.s.certs.dialer(tls.VersionTLS13, false)}
	conn, err := d.Dial("tcp", n.s.proxy.address())
	if err != nil {
		return 0
	}
	defer func() { _ = conn.Close() }()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber.Int64()
}
