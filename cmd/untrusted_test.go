package cmd

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"

	"xpyd/bench/verify"
	"xpyd/sim"
)

// What a server says may not drive the terminal.
func TestServersDoNotDriveTheTerminal(t *testing.T) {
	const evil = "\x1b]0;title\x07\x1b[2J\u009b31m\r"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/version":
			_, _ = fmt.Fprintf(w, `{"version":"0.32.0\u001b[2J\u009b31m"}`)
		case "/backends":
			_, _ = fmt.Fprintf(w, `{"backends":[{"role":"decode","url":"http://d:1","version":"\u001b[2J\u009b31m"}]}`)
		case "/readyz":
			_, _ = w.Write([]byte(evil))
		default:
			w.WriteHeader(http.StatusTeapot)
			_, _ = w.Write([]byte(evil))
		}
	}))
	t.Cleanup(server.Close)
	few := strings.Join(verify.Names()[2:], ",")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"status", "--admin", server.URL},
		{"status", "--json", "--admin", server.URL},
		{"ctl", "log-level", "--admin", server.URL},
		{"check", "--probe", "--decode", server.URL},
		{"verify", "--url", server.URL, "--prefill", server.URL, "--decode", server.URL, "--timeout", "2s", "--skip", few},
	} {
		cmd := exec.Command(self, args...)
		cmd.Env = append(os.Environ(), actAsXpyd+"=1")
		out, _ := cmd.CombinedOutput()
		if len(out) == 0 || strings.ContainsAny(string(out), "\x1b\x07\u009b\r") {
			t.Errorf("%s prints %q", args[0], out)
		}
	}
}

func TestSpellOut(t *testing.T) {
	for text, want := range map[string]string{
		"a\tb\nç 漢": "a\tb\nç 漢", "\x1b[2J": `\u001b[2J`, "\u009b": `\u009b`, "\x9b": `\x9b`, "a\x7f\u202eb": `a\u007f\u202eb`, "\U000e0001": `\udb40\udc01`, "�": "�",
	} {
		if got := spellOut(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

// A redirect would take a token to a server that it is not for.
func TestRedirectsAreNotFollowedWithAToken(t *testing.T) {
	t.Parallel()
	followed := ""
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		followed = r.Header.Get("Authorization") + " " + r.URL.Path
	}))
	t.Cleanup(other.Close)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL+r.URL.Path, http.StatusTemporaryRedirect)
	}))
	t.Cleanup(server.Close)
	few := strings.Join(verify.Names()[2:], ",")
	key := writeFile(t, "key", "sesame\n", 0o600)
	engine := startSim(t, sim.Options{Role: sim.RoleDecode}).URL()
	for _, args := range [][]string{
		{"status", "--admin", server.URL, "--admin-token-file", key},
		{"ctl", "reload", "--admin", server.URL, "--admin-token-file", key},
		{"healthcheck", "--admin", server.URL, "--admin-token-file", key},
		{"check", "--probe", "--decode", server.URL, "--backend-api-key-file", key},
		{"verify", "--url", server.URL, "--prefill", engine, "--decode", engine, "--key-file", key, "--timeout", "2s", "--skip", few},
	} {
		root := newRootCmd()
		root.SetOut(&strings.Builder{})
		root.SetErr(&strings.Builder{})
		root.SetArgs(args)
		if err := root.ExecuteContext(t.Context()); err == nil || followed != "" {
			t.Errorf("%s: error %v, and the other server got %q", args[0], err, followed)
		}
		followed = ""
	}
}

// A site that points its own name at this machine may read nothing.
func TestPagesAreForAddressesOnly(t *testing.T) {
	t.Parallel()
	p1, d1 := pairOfEngines(t, -1)
	p := serveProcess(t, urls(p1), urls(d1), "--pprof")
	for _, path := range []string{"/metrics", "/backends", "/status", "/", "/debug/pprof/heap", "/livez"} {
		for host, want := range map[string]int{"evil.example": http.StatusForbidden, "localhost": http.StatusOK, p.admin: http.StatusOK} {
			if path == "/livez" {
				want = http.StatusOK
			}
			if status, body := p.send(http.MethodGet, path, "", "Host", host); status != want {
				t.Errorf("%s for %s: %d, want %d: %.80s", path, host, status, want, body)
			}
		}
	}
}
