package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// certificates are the files of a CA that this run alone knows, and of what the CA has signed for
// xpyd. The clients get the CA's file in the way that their documentation tells. No other CA of the
// machine has signed anything, so a client that ignores the file cannot connect.
type certificates struct{ ca, cert, key string }

// certify writes a CA and a certificate for 127.0.0.1, and for no name.
func certify(dir string) (certificates, error) {
	c := certificates{filepath.Join(dir, "ca.pem"), filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")}
	caKey, wrong := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	key, wrongToo := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err := errors.Join(wrong, wrongToo); err != nil {
		return c, fmt.Errorf("make keys: %w", err)
	}
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "CA of a run"}, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "xpyd"},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	for _, cert := range []*x509.Certificate{ca, leaf} {
		cert.NotBefore, cert.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	}
	caDER, wrong := x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey)
	leafDER, wrongToo := x509.CreateCertificate(rand.Reader, leaf, ca, &key.PublicKey, caKey)
	keyDER, wrongThree := x509.MarshalPKCS8PrivateKey(key)
	if err := errors.Join(wrong, wrongToo, wrongThree); err != nil {
		return c, fmt.Errorf("make certificates: %w", err)
	}
	return c, errors.Join(writePEM(c.ca, "CERTIFICATE", caDER), writePEM(c.cert, "CERTIFICATE", leafDER), writePEM(c.key, "PRIVATE KEY", keyDER))
}

func writePEM(file, kind string, der []byte) error {
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		return fmt.Errorf("write a certificate: %w", err)
	}
	return nil
}
