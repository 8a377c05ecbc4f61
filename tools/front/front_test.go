package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// collecting is a proxy that does what the page warns of: it reads whole answers before it passes them
// on, and does not notice that its client leaves.
func collecting(t *testing.T, to string) (addr string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		req, err := http.NewRequest(r.Method, "http://"+to+r.URL.Path, r.Body)
		if err != nil {
			t.Error(err)
			return
		}
		req.Header = r.Header
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		defer func() { _ = resp.Body.Close() }()
		all, _ := io.ReadAll(resp.Body)
		w.WriteHeader(resp.StatusCode)
		_, _ = w.Write(all)
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// xpyd itself passes each check, and a proxy that holds answers back does not.
func TestChecksFindAProxyThatCollects(t *testing.T) {
	r, err := startRig()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.close)
	var out bytes.Buffer
	if err := try(t.Context(), &out, r, "none", r.addr); err != nil {
		t.Error(err)
	}
	r.patience = time.Second // it fails in any case
	err = r.check(t.Context(), checks()[0], collecting(t, r.addr))
	if err == nil || !strings.Contains(err.Error(), "did not come") && !strings.Contains(err.Error(), "deadline") {
		t.Errorf("events through a proxy that collects them: %v", err)
	}
}

// The page has a block for each proxy, and its addresses can be replaced.
func TestPageHasEachFront(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", page))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range fronts() {
		conf, err := f.configure(string(text), "127.0.0.1:1", "127.0.0.1:2", "/d")
		if err != nil {
			t.Errorf("%s: %v", f.name, err)
		}
		for _, want := range []string{"127.0.0.1:1", "127.0.0.1:2"} {
			if strings.Count(conf, want) != 1 {
				t.Errorf("%s: %q is not once in\n%s", f.name, want, conf)
			}
		}
	}
}
