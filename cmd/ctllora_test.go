package cmd

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"xpyd/sim"
)

// An adapter is loaded on the engines of both pools, and both legs of a request for it go to engines that have it.
func TestCtlLora(t *testing.T) {
	t.Parallel()
	start := func(role sim.Role, lora bool) *sim.Engine {
		e, err := sim.Start(sim.Options{Role: role}.Fast())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = e.Close() })
		if lora {
			e.LoadAdapters()
		}
		return e
	}
	pre, dec, bare := start(sim.RolePrefill, true), start(sim.RoleDecode, true), start(sim.RoleDecode, false)
	p := startSelf(t, "serve", "--prefill", pre.URL(), "--decode", dec.URL()+","+bare.URL(), "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
	p.serving(1)
	var out string
	var err error
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if out, err = p.ctl("ctl", "lora", "load", "sql", "/adapters/sql"); !strings.Contains(err.Error(), "not known yet") || time.Now().After(end) {
			break
		}
	}
	if want := "sql is not loaded on 1 of 3 engines"; err.Error() != want || !strings.Contains(out, dec.URL()+": sql is loaded\n") ||
		!strings.Contains(out, bare.URL()+": it has no /v1/load_lora_adapter; start it with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True\n") {
		t.Fatalf("%v, want %s\n%s", err, want, out)
	}
	if out, _ = p.ctl("ctl", "lora", "load", "sql", "/adapters/sql"); !strings.Contains(out, pre.URL()+": sql is loaded\n") {
		t.Errorf("loading it again: %s", out)
	}
	ask := func() (status int, path string) {
		res, err := http.Post("http://"+p.addr+"/v1/completions", "application/json", strings.NewReader(`{"model":"sql","prompt":"a prompt of some words","max_tokens":1}`))
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		return res.StatusCode, res.Header.Get("X-Xpyd-Path")
	}
	until := func(want int, path string) {
		for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			is, way := ask()
			if is == want && way == path {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("requests for the adapter have status %d, path %q, and never %d, %q", is, way, want, path)
			}
		}
	}
	until(http.StatusOK, "disaggregated") // xpyd reads the lists of both pools at once, and one of them comes first
	for range 8 {
		if status, path := ask(); status != http.StatusOK || path != "disaggregated" { // the third engine would answer 404
			t.Errorf("status %d, path %q", status, path)
		}
	}
	if _, err = p.ctl("ctl", "lora", "unload", "sql", "--model", "nope"); err == nil || err.Error() != `no engine serves the model "nope"` {
		t.Error(err)
	}
	if out, _ = p.ctl("ctl", "lora", "unload", "sql"); !strings.Contains(out, dec.URL()+": sql is unloaded\n") {
		t.Error(out)
	}
	until(http.StatusNotFound, "disaggregated") // an engine's own
	if text := p.operate("events"); !strings.Contains(text, "an adapter is loaded on 2 of 3 engines") || !strings.Contains(text, "an adapter is unloaded on 2 of 3 engines") {
		t.Error(text)
	}
}

// Where no engine has loaded an adapter, nothing says that it is loaded.
func TestCtlLoraRefusedByAll(t *testing.T) {
	t.Parallel()
	e, err := sim.Start(sim.Options{Role: sim.RoleDecode}.Fast())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	p := startSelf(t, "serve", "--decode", e.URL(), "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
	p.serving(1)
	var out string
	eventually(t, "known", func() bool {
		out, err = p.ctl("ctl", "lora", "load", "sql", "/adapters/sql")
		return !strings.Contains(err.Error(), "not known yet")
	})
	if err.Error() != "sql is not loaded on 1 of 1 engines" || !strings.Contains(out, e.URL()+": it has no /v1/load_lora_adapter") {
		t.Errorf("%v\n%s", err, out)
	}
	if status, text := p.send(http.MethodPut, "/adapters/sql", `{"path":"/adapters/sql"}`); status != http.StatusBadGateway || !strings.Contains(text, `"url"`) {
		t.Errorf("%d %s", status, text)
	}
	if text := p.operate("events"); strings.Contains(text, "an adapter is") {
		t.Error(text)
	}
}
