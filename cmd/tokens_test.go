package cmd

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"xpyd/sim"
)

// A token has the name of its holder, which stands in the events. One that is read-only changes nothing. What operators send to
// others holds neither.
func TestAdminTokensWithNames(t *testing.T) {
	t.Parallel()
	p1, d1, d2 := startEngine(t, sim.Options{Role: sim.RolePrefill}), startEngine(t, sim.Options{Role: sim.RoleDecode}), startEngine(t, sim.Options{Role: sim.RoleDecode})
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	tokens := write("tokens", "# who holds what\nanna anna-secret\ngrafana graf-secret read-only\n")
	grafana := write("grafana", "graf-secret\n")
	p := startSelf(t, "serve", "--prefill", p1.URL(), "--decode", d1.URL()+","+d2.URL(), "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0",
		"--admin-token-file", tokens, "--backend-api-key", "engine-secret")
	p.serving(1)
	admin := "http://" + p.admin
	run := func(args ...string) string {
		out, _, err := runRoot(t, args...)
		if err != nil {
			out += "error: " + err.Error()
		}
		return out
	}
	if out := run("ctl", "drain", d2.URL(), "--admin", admin, "--admin-token-file", grafana); !strings.Contains(out, "error: this token may only read") {
		t.Errorf("a read-only token drains: %s", out)
	}
	if out := run("ctl", "drain", d2.URL(), "--admin", admin, "--admin-token-file", tokens); strings.Contains(out, "error") {
		t.Error(out)
	}
	if out := run("events", "--admin", admin, "--admin-token-file", grafana); !strings.Contains(out, "(anna from 127.0.0.1, with xpyd ctl)") {
		t.Error(out)
	}
	const prompt = "xyzzy-marker"
	ask := func() int {
		resp, err := fresh.Post("http://"+p.addr+"/v1/completions", "application/json", strings.NewReader(`{"model":"sim","prompt":"`+prompt+`","max_tokens":4}`))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	if status := ask(); status != http.StatusOK {
		t.Errorf("a completion gets %d", status)
	}
	if err := d1.SetFault(sim.Fault{Kind: sim.FaultStatus, Value: http.StatusInternalServerError}); err != nil {
		t.Fatal(err)
	}
	if status := ask(); status < http.StatusInternalServerError {
		t.Errorf("a completion that fails gets %d", status)
	}
	out := run("status", "--admin", admin, "--admin", "http://127.0.0.1:7", "--admin-token-file", grafana)
	if !strings.Contains(out, admin+": ok") || !strings.Contains(out, "anna from 127.0.0.1") || !strings.Contains(out, "http://127.0.0.1:7: does not answer\n") || !strings.Contains(out, "error: ") {
		t.Errorf("two processes: %s", out)
	}
	file := filepath.Join(dir, "bundle.tar.gz")
	if out := run("support-bundle", "--output", file, "--admin", admin, "--admin-token-file", grafana); out != file+"\n" {
		t.Fatal(out)
	}
	checkBundle(t, file, "anna-secret", "graf-secret", "engine-secret", prompt)
}

// checkBundle looks for all pages in a support bundle, for a completion that has failed, and for secrets in any page.
func checkBundle(t *testing.T, file string, secrets ...string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	packed, err := gzip.NewReader(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for r := tar.NewReader(packed); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[strings.TrimPrefix(h.Name, "xpyd-support/")], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"about.json", "config.json", "pools.json", "backends.json", "status.json", "events.json", "failures.json", "advice.json"} {
		if !json.Valid(files[name]) {
			t.Errorf("%s is no JSON: %.200s", name, files[name])
		}
	}
	if !bytes.Contains(files["metrics.txt"], []byte("xpyd_build_info")) || !bytes.Contains(files["config.json"], []byte(`"backend_api_key": "(hidden)"`)) {
		t.Errorf("metrics %.200s\nconfig %s", files["metrics.txt"], files["config.json"])
	}
	if !bytes.Contains(files["failures.json"], []byte(`"code"`)) {
		t.Errorf("no completion has failed: %s", files["failures.json"])
	}
	for name, text := range files {
		for _, secret := range secrets {
			if bytes.Contains(text, []byte(secret)) {
				t.Errorf("%s holds a secret", name)
			}
		}
	}
}

// check --json has all that check prints, for programs.
func TestCheckJSON(t *testing.T) {
	t.Parallel()
	p1, d1 := startEngine(t, sim.Options{Role: sim.RolePrefill}), startEngine(t, sim.Options{Role: sim.RoleDecode})
	var found checked
	out, _, err := runRoot(t, "check", "--json", "--probe", "--prefill", p1.URL(), "--decode", d1.URL()+",http://127.0.0.1:7")
	if err == nil {
		t.Error("an engine that is not there fits")
	}
	if err := json.Unmarshal([]byte(out), &found); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if found.OK || len(found.Faults) != 1 || len(found.Warnings) == 0 || len(found.Engines) != 3 || len(found.Rounds) != 1 || found.Rounds[0].Result != "ok" || found.Pools["decode"][0] != d1.URL() {
		t.Errorf("%s", out)
	}
}
