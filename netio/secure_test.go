package netio

import (
	"crypto/tls"
	"errors"
	"io"
	"testing"
	"time"

	"xpyd/netio/tlsconf/tlstest"
)

// What comes together with close_notify is not lost, and the end comes after it.
func TestLastBytesTogetherWithTheFarewell(t *testing.T) {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		ca := tlstest.NewCA(t)
		far, near := tcpPair(t)
		shaken := make(chan error, 1)
		server := tls.Server(far, &tls.Config{Certificates: []tls.Certificate{ca.Local("engine").Load(t)}, MaxVersion: version})
		go func() { shaken <- server.Handshake() }()
		c := connOn(t, near)
		if err := errors.Join(c.SecureClient(&tls.Config{RootCAs: ca.Pool, ServerName: "127.0.0.1"}, time.Now().Add(30*time.Second)), <-shaken); err != nil {
			t.Fatal(err)
		}
		if !c.Quiet() {
			t.Error("session tickets are taken for something")
		}
		_, _ = io.WriteString(server, "last")
		_ = server.CloseWrite()
		for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
			if b := make([]byte, 128); time.Now().After(deadline) {
				t.Fatal("did not come")
			} else if n, _ := c.peek(b); n >= 50 { // both records
				break
			}
		}
		_ = c.SetDeadline(time.Now().Add(30 * time.Second))
		if err := c.more(); err != nil || string(c.in.Unread) != "last" {
			t.Fatalf("%s: %v %q", tls.VersionName(version), err, c.in.Unread)
		}
		c.in.Use(4)
		if err := c.more(); !errors.Is(err, io.EOF) || !c.HungUp() {
			t.Errorf("%s: %v, want the end", tls.VersionName(version), err)
		}
	}
}
