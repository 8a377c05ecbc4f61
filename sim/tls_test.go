package sim_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"xpyd/netio/tlsconf/tlstest"
	"xpyd/sim"
)

// An engine that speaks TLS answers over it, and breaks answers off as a plain one does. It notices a client
// that leaves with a farewell and keeps its connection.
func TestEngineOverTLS(t *testing.T) {
	ca := tlstest.NewCA(t)
	cfg := &tls.Config{Certificates: []tls.Certificate{ca.Local("engine").Load(t)}}
	e, err := sim.Start(sim.Options{TLS: cfg, TokenLatency: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	if !strings.HasPrefix(e.URL(), "https://") {
		t.Fatal(e.URL())
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca.Pool}}}
	t.Cleanup(client.CloseIdleConnections)
	ask := func(prompt string) (string, error) {
		resp, err := client.Post(e.URL()+"/v1/completions", "application/json", strings.NewReader(`{"model":"sim","prompt":"`+prompt+`","max_tokens":8,"stream":true}`))
		if err != nil {
			return "", err
		}
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		return string(body), err
	}
	if body, err := ask("a"); err != nil || !strings.HasSuffix(body, "data: [DONE]\n\n") {
		t.Errorf("%v %q", err, body)
	}
	for _, fault := range []string{"die@4", "die@4:rst", "cut@4"} {
		f, err := sim.ParseFault(fault)
		if err == nil {
			f.Count = 1
			err = e.SetFault(f)
		}
		if err != nil {
			t.Fatal(err)
		}
		if body, err := ask("a"); err == nil || errors.Is(err, io.EOF) || strings.Contains(body, "[DONE]") {
			t.Errorf("%s: %v %.300q", fault, err, body)
		}
	}
	conn, err := tls.Dial("tcp", e.Addr(), &tls.Config{RootCAs: ca.Pool})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	body := `{"model":"sim","prompt":"leaver","max_tokens":2000,"stream":true}`
	_, _ = fmt.Fprintf(conn, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nX-Request-Id: leaver\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	_ = conn.CloseWrite()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		all := e.Requests()
		if last := all[len(all)-1]; last.RequestID == "leaver" && last.Outcome == "aborted" {
			break
		} else if time.Now().After(end) {
			t.Fatalf("not aborted after 10 s: %+v", last)
		}
	}
}
