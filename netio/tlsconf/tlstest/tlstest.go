// Package tlstest makes certificates, and puts TLS in front of plain servers, for tests.
package tlstest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// CA signs certificates. File holds its own.
type CA struct {
	File string
	Pool *x509.CertPool

	t    testing.TB
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Pair is a certificate with its key, as files.
type Pair struct{ Cert, Key string }

// NewCA makes a CA. The end of the test removes its files.
func NewCA(t testing.TB) *CA {
	t.Helper()
	c := &CA{t: t, dir: t.TempDir(), Pool: x509.NewCertPool()}
	c.key = newKey(t)
	der := c.sign(&x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, c.key)
	c.cert, _ = x509.ParseCertificate(der)
	c.Pool.AddCert(c.cert)
	c.File = filepath.Join(c.dir, "ca.pem")
	write(t, c.File, "CERTIFICATE", der)
	return c
}

// Issue writes a certificate for names and addresses. It is valid for the day before end.
func (c *CA) Issue(name string, end time.Time, hosts ...string) Pair {
	c.t.Helper()
	return c.IssueBetween(name, end.Add(-24*time.Hour), end, hosts...)
}

// IssueBetween is Issue for a certificate that is valid from begin to end.
func (c *CA) IssueBetween(name string, begin, end time.Time, hosts ...string) Pair {
	c.t.Helper()
	key := newKey(c.t)
	serial, _ := rand.Int(rand.Reader, big.NewInt(1<<62))
	cert := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, NotBefore: begin, NotAfter: end,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			cert.IPAddresses = append(cert.IPAddresses, ip)
		} else {
			cert.DNSNames = append(cert.DNSNames, h)
		}
	}
	p := Pair{filepath.Join(c.dir, name+".pem"), filepath.Join(c.dir, name+".key")}
	write(c.t, p.Cert, "CERTIFICATE", c.sign(cert, key))
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		c.t.Fatal(err)
	}
	write(c.t, p.Key, "PRIVATE KEY", der)
	return p
}

// Local issues a certificate for 127.0.0.1 that is valid now.
func (c *CA) Local(name string) Pair { return c.Issue(name, time.Now().Add(20*time.Hour), "127.0.0.1") }

// Load returns the pair as crypto/tls wants it.
func (p Pair) Load(t testing.TB) tls.Certificate {
	t.Helper()
	cert, err := tls.LoadX509KeyPair(p.Cert, p.Key)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func (c *CA) sign(cert *x509.Certificate, key *ecdsa.PrivateKey) []byte {
	parent := c.cert
	if parent == nil {
		parent = cert
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, parent, &key.PublicKey, c.key)
	if err != nil {
		c.t.Fatal(err)
	}
	return der
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func write(t testing.TB, path, kind string, der []byte) {
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Terminate puts TLS in front of a plain server, as a proxy beside an engine does, and returns the
// address. If one side of a connection breaks off, the other does too.
func Terminate(t testing.TB, cfg *tls.Config, target string) string {
	t.Helper()
	ln, err := tls.Listen("tcp", "127.0.0.1:0", cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go relay(conn, target)
		}
	}()
	return ln.Addr().String()
}

func relay(client net.Conn, target string) {
	defer func() { _ = client.Close() }()
	if err := client.(*tls.Conn).Handshake(); err != nil {
		return
	}
	server, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	go func() {
		_, _ = io.Copy(server, client)
		_ = server.Close() // the client has left, or the server has ended
	}()
	_, _ = io.Copy(client, server)
}
