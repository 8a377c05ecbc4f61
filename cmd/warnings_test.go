package cmd

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"xpyd/cmd/config"
)

// check prints each warning on a line and still succeeds.
func TestCheckPrintsWarnings(t *testing.T) {
	const pools = "--listen=127.0.0.1:1 --prefill=http://p:1 --decode=http://d:1"
	secrets := writeFile(t, "x.yaml", "api_keys: [sesame]\nbackend_api_key: sesame\n", 0o640)
	for _, tc := range []struct {
		args string
		want int
	}{
		{pools, 0},
		{"--decode=http://d:1", 1}, // the data port is open to all
		{pools + " --queue-length=5", 1},
		{"--listen=127.0.0.1:1 --decode=http://d:1 --pd-mode=auto --pd-threshold-tokens=9", 2},
		{pools + " --pd-mode=never --queue-wait=9s --decode-only-max-share=0.5", 3},
		{"--listen=127.0.0.1:1 --decode=http://d:1 --prefill-policy=random --prefill-max-in-flight=2 --decode-only-max-share=0.5 --decode-only-enabled=false", 4},
		{pools + " --config=" + secrets, 2},
	} {
		args := strings.Fields(tc.args)
		c, err := load(t, args, nil)
		if err != nil {
			t.Fatal(err)
		}
		out, err := runCheck(args...)
		if err != nil || strings.Count(out, "\nwarning: ") != tc.want || !strings.HasSuffix(out, "\nok\n") || strings.Contains(out, "sesame") {
			t.Errorf("check %s: %v, %s", tc.args, err, out)
		}
		for _, w := range config.Warnings(c) {
			if !strings.Contains(out, "\nwarning: "+w+"\n") {
				t.Errorf("check %s lacks %q: %s", tc.args, w, out)
			}
		}
	}
}

// The log of serve and the status page have the warnings from the start.
func TestServeWarns(t *testing.T) {
	t.Parallel()
	p := startSelf(t, "serve", "--listen=127.0.0.1:0", "--admin=127.0.0.1:0", "--decode=http://127.0.0.1:1", "--pd-mode=auto")
	p.serving(1)
	l := p.await(1, "questionable setting")
	if s, _ := l["setting"].(string); !strings.HasPrefix(s, "pd.mode: ") || l["level"] != "warn" {
		t.Errorf("%v", l)
	}
	resp, err := http.Get("http://" + p.admin + "/status")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var status struct{ Warnings []string }
	if err := json.NewDecoder(resp.Body).Decode(&status); err != nil || len(status.Warnings) != 1 || status.Warnings[0] != l["setting"] {
		t.Errorf("status page: %q, %v", status.Warnings, err)
	}
}

// A file of keys that others may read is refused, because a warning is not enough.
func TestKeyFileForEverybodyIsRefused(t *testing.T) {
	file := writeFile(t, "keys", "sesame\n", 0o644)
	want := `config: api_key_file: "` + file + `" may be read by others (mode 0644); run chmod 600 ` + file + ` (flag --api-key-file, XPYD_API_KEY_FILE)`
	_, err := runCheck(append([]string{"--api-key-file", file}, decodeFlag...)...)
	checkUsage(t, err, want)
}

// The log of serve warns of open doors too.
func TestServeWarnsOfOpenDoors(t *testing.T) {
	t.Parallel()
	file := writeFile(t, "x.yaml", "listen: 0.0.0.0:0\nadmin: 0.0.0.0:0\nadmin_token: sesame\ndecode: [http://127.0.0.1:1]\n", 0o644)
	p := startSelf(t, "serve", "--config", file)
	pid := p.serving(1)
	for i, want := range []string{"listen: ", "admin: ", "admin_token: "} {
		if s, _ := p.await(i+1, "questionable setting")["setting"].(string); !strings.HasPrefix(s, want) {
			t.Errorf("%q, want %q", s, want)
		}
	}
	p.signal(pid, syscall.SIGTERM)
	p.gone()
}

// The process still starts, and its log has the warning.
func TestServeWithStrangeVariables(t *testing.T) {
	t.Parallel()
	_, d := pairOfEngines(t, -1)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "serve", "--listen=127.0.0.1:0", "--admin=", "--decode="+d.URL())
	cmd.Env = []string{"XPYD_PORT=80", "XPYD_QEUE_WAIT=9s"}
	p := startProcess(t, cmd)
	pid := p.serving(1)
	for i, want := range []string{"the variable XPYD_PORT ", "the variable XPYD_QEUE_WAIT names no known key and does nothing; the nearest is XPYD_QUEUE_WAIT"} {
		l := p.await(i+1, "questionable setting")
		if s, _ := l["setting"].(string); !strings.HasPrefix(s, want) {
			t.Errorf("%q, want %q", s, want)
		}
	}
	p.signal(pid, syscall.SIGTERM)
	p.gone()
}
