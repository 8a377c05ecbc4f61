package soak

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"xpyd/tools/process"
)

// certs has the certificates of a run over TLS, all of one CA. Clients, proxy and engines show one to each
// other. Those of the proxy and of the engines are replaced while the run goes on.
type certs struct {
	dir  string
	ca   *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool

	client   tls.Certificate
	sessions tls.ClientSessionCache // of the clients
	engine   atomic.Pointer[tls.Certificate]
	serial   atomic.Int64 // of the certificate issued last
}

// These are files in the directory of artefacts. A certificate and its key are in one file, so that a
// rename replaces both.
const (
	caFile    = "ca.pem"
	proxyFile = "proxy.pem"
)

func newCerts(dir string) (*certs, error) {
	c := &certs{dir: dir, pool: x509.NewCertPool(), sessions: tls.NewLRUClientSessionCache(0)}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the CA's key: %w", err)
	}
	c.key = key
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(48 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err == nil {
		c.ca, err = x509.ParseCertificate(der)
	}
	if err != nil {
		return nil, fmt.Errorf("make the CA: %w", err)
	}
	c.pool.AddCert(c.ca)
	c.serial.Store(1)
	if err := c.write(caFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})); err != nil {
		return nil, err
	}
	if c.client, _, err = c.issue(); err != nil {
		return nil, err
	}
	_, err = c.renew()
	return c, err
}

// issue makes a certificate for 127.0.0.1, and the text of its file.
func (c *certs) issue() (cert tls.Certificate, text []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return cert, nil, fmt.Errorf("make a key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(c.serial.Add(1)), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, c.ca, &key.PublicKey, c.key)
	if err != nil {
		return cert, nil, fmt.Errorf("make a certificate: %w", err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return cert, nil, fmt.Errorf("make a key: %w", err)
	}
	text = append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})...)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, text, nil
}

func (c *certs) write(name string, text []byte) error {
	path := filepath.Join(c.dir, name)
	err := os.WriteFile(path+".new", text, 0o600)
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return fmt.Errorf("write a certificate: %w", err)
	}
	return nil
}

// renew replaces the certificates of the engines and of the proxy, and returns the serial number of the
// proxy's.
func (c *certs) renew() (serial int64, err error) {
	engine, _, err := c.issue()
	if err != nil {
		return 0, err
	}
	c.engine.Store(&engine)
	_, text, err := c.issue()
	if err != nil {
		return 0, err
	}
	return c.serial.Load(), c.write(proxyFile, text)
}

// server is the configuration of an engine.
func (c *certs) server() *tls.Config {
	if c == nil {
		return nil
	}
	return &tls.Config{
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.engine.Load(), nil },
		ClientAuth:     tls.RequireAndVerifyClientCert, ClientCAs: c.pool,
	}
}

// dialer is the configuration of a client. With resume it takes up a session of before, as SDKs do. Where
// each refused request cost a whole handshake, the clients alone would take all of a small machine.
func (c *certs) dialer(version uint16, resume bool) *tls.Config {
	cfg := &tls.Config{RootCAs: c.pool, ServerName: "127.0.0.1", Certificates: []tls.Certificate{c.client}, MaxVersion: version}
	if resume {
		cfg.ClientSessionCache = c.sessions
	}
	return cfg
}

// settings adds the keys of TLS to the proxy's configuration.
func (c *certs) settings(all map[string]any) {
	ca, own := filepath.Join(c.dir, caFile), filepath.Join(c.dir, proxyFile)
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
		n.s.verdict.breach(invHealth, "a new certificate that is not served", "%v", err)
	}
}

// refuse puts a file that holds no certificate in the place of the proxy's.
func (n *renewer) refuse(ctx context.Context) {
	ctx = context.WithoutCancel(ctx)
	n.s.faults.close(n.s.faults.open("proxy", kindRefused, "", 0))
	before, told := int64(0), n.s.log.badCerts.Load()
	err := n.await(ctx, func() bool { before = n.served(); return before != 0 })
	if err == nil {
		err = n.s.certs.write(proxyFile, []byte("no certificate\n"))
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
		n.s.verdict.breach(invHealth, "a file without a certificate that changed something, or was not told", "%v", err)
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
