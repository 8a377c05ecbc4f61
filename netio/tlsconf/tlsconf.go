// Package tlsconf makes TLS configurations from files of certificates and keys, and follows the files as
// they change. It also explains in an operator's words why a handshake failed.
package tlsconf

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Server names the files with which a port speaks TLS. Without a certificate it speaks plain HTTP.
type Server struct {
	// Cert holds the certificate and those between it and the CA.
	Cert string `mapstructure:"cert"`
	// Key holds the private key of the certificate.
	Key string `mapstructure:"key"`
	// ClientCA holds the CAs of clients. With it, a client must show a certificate.
	ClientCA string `mapstructure:"client_ca"`
}

// Client names what xpyd uses with backends that speak TLS.
type Client struct {
	// CA holds the CAs of the backends. Without it the system's CAs apply.
	CA string `mapstructure:"ca"`
	// Cert is what xpyd shows to a backend that asks for a certificate.
	Cert string `mapstructure:"cert"`
	// Key holds the private key of Cert.
	Key string `mapstructure:"key"`
	// ServerName is the name expected in the backends' certificates, in place of the host of their URLs.
	ServerName string `mapstructure:"server_name"`
}

// On reports that the port speaks TLS.
func (s Server) On() bool { return s.Cert != "" || s.Key != "" || s.ClientCA != "" }

// Fault is what is wrong with a file. Fix follows the value in a message.
type Fault struct {
	Key, Value, Fix string // Key is a name such as cert, without its section
	Err             error  // why the file was not read; may be nil
}

func (f *Fault) Error() string { return fmt.Sprintf("%s: %q %s", f.Key, f.Value, f.Fix) }

func (f *Fault) Unwrap() error { return f.Err }

// Read returns a file's bytes. Its errors do not name the path.
type Read func(path string) ([]byte, error)

// files reads what a configuration needs and remembers it, so that a change can be noticed.
type files struct {
	read Read
	seen []byte
}

func (f *files) open(key, path string) ([]byte, error) {
	text, err := f.read(path)
	if err != nil {
		return nil, &Fault{key, path, fmt.Sprintf("cannot be read: %s; give a PEM file that this user may read", err), err}
	}
	f.seen = append(append(f.seen, text...), 0)
	return text, nil
}

// common returns the settings that both sides share.
func common() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"http/1.1"},
		// Small first records save a browser a moment, and cost a system call for each kilobyte.
		DynamicRecordSizingDisabled: true,
	}
}

// Load makes the configuration of a port.
func (s Server) Load(read Read) (*tls.Config, error) { return s.load(&files{read: read}) }

func (s Server) load(f *files) (*tls.Config, error) {
	if s.Cert == "" {
		return nil, &Fault{Key: "cert", Fix: "is missing: key or client_ca is set; give the certificate too"}
	}
	cfg := common()
	cfg.NextProtos = append(cfg.NextProtos, "http/1.0") // curl --http1.0 offers nothing else
	cert, err := f.pair(s.Cert, s.Key)
	if err != nil {
		return nil, err
	}
	cfg.Certificates = []tls.Certificate{cert}
	if s.ClientCA != "" {
		cfg.ClientAuth = tls.RequireAndVerifyClientCert
		cfg.ClientCAs, err = f.pool("client_ca", s.ClientCA)
	}
	return cfg, err
}

// Load makes the configuration for backends. The caller sets the server's name where it is empty.
func (c Client) Load(read Read) (*tls.Config, error) { return c.load(&files{read: read}) }

func (c Client) load(f *files) (*tls.Config, error) {
	cfg := common()
	cfg.ServerName = c.ServerName
	cfg.ClientSessionCache = tls.NewLRUClientSessionCache(0)
	var err error
	if c.CA != "" {
		if cfg.RootCAs, err = f.pool("ca", c.CA); err != nil {
			return nil, err
		}
	}
	if c.Cert == "" && c.Key == "" {
		return cfg, nil
	}
	cert, err := f.pair(c.Cert, c.Key)
	cfg.Certificates = []tls.Certificate{cert}
	return cfg, err
}

// pair reads a certificate with its key.
func (f *files) pair(certPath, keyPath string) (cert tls.Certificate, err error) {
	switch {
	case certPath == "":
		return cert, &Fault{Key: "cert", Fix: "is missing: key is set; give the certificate too"}
	case keyPath == "":
		return cert, &Fault{Key: "key", Fix: "is missing: cert is set; give the private key of the certificate too"}
	}
	certPEM, err := f.open("cert", certPath)
	if err != nil {
		return cert, err
	}
	keyPEM, err := f.open("key", keyPath)
	if err != nil {
		return cert, err
	}
	if cert, err = tls.X509KeyPair(certPEM, keyPEM); err == nil {
		return cert, nil
	}
	if x509.NewCertPool().AppendCertsFromPEM(certPEM) {
		// The error may quote the file of the key.
		return cert, &Fault{Key: "key", Value: keyPath, Fix: "holds no private key of the certificate in cert; give its PEM, without a passphrase"}
	}
	return cert, &Fault{Key: "cert", Value: certPath, Fix: "holds no certificate; give PEM, the server's own first"}
}

// pool reads a file of CAs.
func (f *files) pool(key, path string) (*x509.CertPool, error) {
	text, err := f.open(key, path)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, &Fault{Key: key, Value: path, Fix: "holds no certificate of a CA; give PEM"}
	}
	return pool, nil
}

// Doubt says what is questionable about the certificate at the given time, in words that follow its
// path. The text is empty if nothing is.
func (s *Source) Doubt(now time.Time) string {
	cfg := s.current.Load()
	if len(cfg.Certificates) == 0 {
		return ""
	}
	leaf := cfg.Certificates[0].Leaf
	soon := leaf.NotAfter.Sub(leaf.NotBefore) / 10 // some live for a year, and others for a day
	switch end := leaf.NotAfter.UTC().Format(time.DateTime); {
	case now.Before(leaf.NotBefore):
		return "holds a certificate that is not valid before " + leaf.NotBefore.UTC().Format(time.DateTime) + " UTC; is the clock right?"
	case now.After(leaf.NotAfter):
		return "holds a certificate that expired on " + end + " UTC; renew it"
	case now.Add(soon).After(leaf.NotAfter):
		return "holds a certificate that expires on " + end + " UTC; renew it"
	}
	return ""
}

// explained is an error of a handshake, in an operator's words.
type explained struct {
	text string
	err  error
}

func (e *explained) Error() string { return e.text }

func (e *explained) Unwrap() error { return e.err }

// refusesCertificate reports whether err is an alert with which a server refuses a client's certificate.
// crypto/tls names these alerts only by their text.
func refusesCertificate(err error) (alert string, refused bool) {
	var op *net.OpError
	if !errors.As(err, &op) || op.Op != "remote error" {
		return "", false
	}
	alert = strings.TrimPrefix(op.Err.Error(), "tls: ")
	return alert, slices.Contains([]string{"bad certificate", "unsupported certificate", "revoked certificate", "expired certificate",
		"unknown certificate", "unknown certificate authority", "certificate required"}, alert)
}

// Remedies are what helps against faults of TLS, in the words of the side that must act.
type Remedies struct {
	CA    string // the other side's CA is not known
	Name  string // its certificate has other names
	Plain string // it does not speak TLS
	Cert  string // it refuses the certificate of this side
}

// Explain names the cause and the fix of a TLS error with a backend. It returns other errors unchanged.
func Explain(err error) error {
	return Remedies{
		CA: "put that CA into backend_tls.ca", Name: "give one of these names in its URL or in backend_tls.server_name",
		Plain: "give its URL with http://", Cert: "give one that it takes in backend_tls.cert and backend_tls.key",
	}.Explain(err)
}

// IsExplained reports whether Explain has found the cause of err.
func IsExplained(err error) bool { return errors.As(err, new(*explained)) }

// Explain names the cause and the fix of a TLS error. It returns other errors unchanged.
func (r Remedies) Explain(err error) error {
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	var plain tls.RecordHeaderError
	alert, refused := refusesCertificate(err)
	text := ""
	switch {
	case errors.As(err, &authority):
		text = "its certificate is signed by a CA that is not known here; " + r.CA
	case errors.As(err, &host):
		text = hostFault(host) + "; " + r.Name
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		text = timeFault(invalid.Cert)
	case errors.As(err, &plain), errors.Is(err, http.ErrSchemeMismatch):
		text = "it does not speak TLS; " + r.Plain
	case refused:
		text = "it refuses xpyd's certificate (" + alert + "); " + r.Cert
	default:
		return err
	}
	return &explained{"TLS: " + text, err}
}

func hostFault(e x509.HostnameError) string {
	var names []string
	for _, ip := range e.Certificate.IPAddresses {
		names = append(names, ip.String())
	}
	names = append(names, e.Certificate.DNSNames...)
	const shown = 4
	return fmt.Sprintf("its certificate is for %q and not for %s", names[:min(len(names), shown)], e.Host)
}

func timeFault(cert *x509.Certificate) string {
	if time.Now().Before(cert.NotBefore) {
		return "its certificate is not valid before " + cert.NotBefore.UTC().Format(time.DateTime) + " UTC; is the clock right?"
	}
	return "its certificate expired on " + cert.NotAfter.UTC().Format(time.DateTime) + " UTC; renew it"
}
