package cmd

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"xpyd/netio/tlsconf/tlstest"
)

// secureTarget puts TLS before an engine and returns its URL.
func secureTarget(t *testing.T, p tlstest.Pair, url string) string {
	t.Helper()
	return "https://" + tlstest.Terminate(t, &tls.Config{Certificates: []tls.Certificate{p.Load(t)}}, strings.TrimPrefix(url, "http://"))
}

// getTLS is a request that must be answered, over a fresh connection.
func getTLS(t *testing.T, ca *tlstest.CA, url, token string) (status int, body string) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca.Pool}, DisableKeepAlives: true}}
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// Both ports and the engines speak TLS. Certificates are replaced with HUP, the ports are handed over, and
// no request fails.
func TestHandoverAndNewCertificatesUnderLoadOverTLS(t *testing.T) {
	t.Parallel()
	ca := tlstest.NewCA(t)
	engP, engD := pairOfEngines(t, 2*time.Millisecond)
	front, back := ca.Local("xpyd"), ca.Local("engine")
	token := writeFile(t, "token", "sesame\n", 0o600)
	p := startSelf(t, "serve", "--listen=127.0.0.1:0", "--admin=127.0.0.1:0", "--admin-token-file", token,
		"--tls-cert", front.Cert, "--tls-key", front.Key, "--admin-tls-cert", front.Cert, "--admin-tls-key", front.Key,
		"--backend-tls-ca", ca.File, "--timeouts-idle=8s",
		"--prefill", secureTarget(t, back, engP.URL()), "--decode", secureTarget(t, back, engD.URL()))
	p.serving(1)
	eventually(t, "ready", func() bool { status, _ := getTLS(t, ca, "https://"+p.addr+"/readyz", ""); return status == 200 })
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() { requestsOverTLS(t, ca, p.addr, i, stop) })
	}
	for n := 1; n <= 2; n++ {
		ca.Local("xpyd") // over the files in use
		p.signal(p.serving(n), syscall.SIGHUP)
		p.await(n, "pools reloaded")
		p.await(n, "certificates reloaded")
		p.handOver(n)
	}
	for path, want := range map[string][2]int{"/livez": {200, 200}, "/readyz": {200, 200}, "/metrics": {401, 200}, "/pools": {401, 200}} {
		without, _ := getTLS(t, ca, "https://"+p.admin+path, "")
		with, _ := getTLS(t, ca, "https://"+p.admin+path, "sesame")
		if wrong, _ := getTLS(t, ca, "https://"+p.admin+path, "other"); [2]int{without, with} != want || wrong != without {
			t.Errorf("admin %s: %d without a token, %d with it, %d with another one", path, without, with, wrong)
		}
	}
	close(stop)
	wg.Wait()
	p.signal(p.serving(3), syscall.SIGTERM)
	p.gone()
}

// requestsOverTLS sends completions until stop, over a kept connection or fresh ones.
func requestsOverTLS(t *testing.T, ca *tlstest.CA, addr string, i int, stop <-chan struct{}) {
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca.Pool}, DisableKeepAlives: i%2 == 0}
	client := http.Client{Transport: transport, Timeout: patience}
	defer transport.CloseIdleConnections()
	for n := 0; ; n++ {
		select {
		case <-stop:
			return
		default:
		}
		prompt := fmt.Sprintf("client %d request %d", i, n)
		resp, err := client.Post("https://"+addr+"/v1/completions", "application/json", strings.NewReader(completionBody(prompt, 4, n%2 == 0)))
		if err == nil {
			err = wholeAnswer(resp, prompt, 4, n%2 == 0)
			_ = resp.Body.Close()
		}
		if err != nil {
			t.Errorf("client %d request %d: %v", i, n, err)
			return
		}
	}
}

// check --probe asks engines over TLS, and names what is wrong with a certificate and the fix.
func TestCheckProbesOverTLS(t *testing.T) {
	ca, foreign := tlstest.NewCA(t), tlstest.NewCA(t)
	p, d := newStub(), newStub()
	good := ca.Local("engine")
	for _, tc := range []struct {
		name string
		cert tlstest.Pair // of decode
		want string
	}{
		{"fits", good, "\nok\n"},
		{"other CA", foreign.Local("foreign"), "its certificate is signed by a CA that is not known here; put that CA into backend_tls.ca"},
		{"expired", ca.Issue("old", time.Now().Add(-time.Hour), "127.0.0.1"), "its certificate expired on "},
		{"other name", ca.Issue("far", time.Now().Add(time.Hour), "far.example"), "give one of these names in its URL or in backend_tls.server_name"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out, err := runCheck("--probe", "--prefill", secureTarget(t, good, p.start(t)), "--decode", secureTarget(t, tc.cert, d.start(t)), "--backend-tls-ca", ca.File)
			if !strings.Contains(out, tc.want) || (err == nil) != (tc.name == "fits") {
				t.Errorf("%v, %s", err, out)
			}
		})
	}
}
