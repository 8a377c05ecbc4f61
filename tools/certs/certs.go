// Package certs makes the certificates of a run over TLS, all of one CA that nothing else trusts.
package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"
)

// CA signs certificates.
type CA struct {
	Dir    string // of files
	Pool   *x509.CertPool
	cert   *x509.Certificate
	key    *ecdsa.PrivateKey
	serial atomic.Int64 // of the certificate issued last
}

// New makes a CA, whose certificate it writes to File.
func New(dir string) (*CA, error) {
	c := &CA{Dir: dir, Pool: x509.NewCertPool()}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "CA of a run"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, key, err := c.sign(template)
	if err == nil {
		c.cert, err = x509.ParseCertificate(der)
	}
	if err != nil {
		return nil, fmt.Errorf("make the CA: %w", err)
	}
	c.key = key
	c.Pool.AddCert(c.cert)
	return c, c.Write(caFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

const caFile = "ca.pem"

// File is the path of the CA's own certificate.
func (c *CA) File() string { return filepath.Join(c.Dir, caFile) }

// sign makes a key and its certificate, for a day unless template says otherwise. The first one is the CA's own.
func (c *CA) sign(template *x509.Certificate) (der []byte, key *ecdsa.PrivateKey, err error) {
	if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil { // P-256 is what most CAs hand out today
		return nil, nil, fmt.Errorf("make a key: %w", err)
	}
	template.SerialNumber = big.NewInt(c.serial.Add(1))
	template.NotBefore = time.Now().Add(-time.Hour)
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(24 * time.Hour)
	}
	parent, signer := c.cert, c.key
	if parent == nil {
		parent, signer = template, key
	}
	if der, err = x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer); err != nil {
		return nil, nil, fmt.Errorf("make a certificate: %w", err)
	}
	return der, key, nil
}

// Issue makes a certificate for 127.0.0.1, for no name, and the text of a file that holds it with its key.
func (c *CA) Issue() (cert tls.Certificate, text []byte, err error) {
	return c.issue(time.Time{})
}

// Expired is what a server shows whose certificate has ended a minute ago.
func (c *CA) Expired() (*tls.Config, error) {
	cert, _, err := c.issue(time.Now().Add(-time.Minute))
	return &tls.Config{Certificates: []tls.Certificate{cert}}, err
}

// issue makes a certificate that ends then, or after a day.
func (c *CA) issue(end time.Time) (cert tls.Certificate, text []byte, err error) {
	der, key, err := c.sign(&x509.Certificate{
		NotAfter: end, Subject: pkix.Name{CommonName: "xpyd"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return cert, nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return cert, nil, fmt.Errorf("make a key: %w", err)
	}
	text = append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})...)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, text, nil
}

// Last is the serial number of the certificate issued last.
func (c *CA) Last() int64 { return c.serial.Load() }

// Pair issues a certificate and writes it with its key to one file, whose path it returns.
func (c *CA) Pair(name string) (path string, err error) {
	_, text, err := c.Issue()
	if err != nil {
		return "", err
	}
	return filepath.Join(c.Dir, name), c.Write(name, text)
}

// Write replaces a file as a whole.
func (c *CA) Write(name string, text []byte) error {
	path := filepath.Join(c.Dir, name)
	err := os.WriteFile(path+".new", text, 0o600)
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return fmt.Errorf("write a certificate: %w", err)
	}
	return nil
}
