package cmd

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// processes makes a /proc of these command lines.
func processes(t *testing.T, lines map[string]string) string {
	t.Helper()
	proc := t.TempDir()
	for pid, line := range lines {
		if err := os.Mkdir(filepath.Join(proc, pid), 0o700); err != nil {
			t.Fatal(err)
		}
		text := strings.ReplaceAll(line, " ", "\x00") + "\x00"
		if err := os.WriteFile(filepath.Join(proc, pid, "cmdline"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return proc
}

// An init or a script is process 1, and tells nothing of the serve that it has started.
func TestAdminPortOfTheServeBehindAnInit(t *testing.T) {
	const otherwise = "http://127.0.0.1:8081"
	for _, tc := range []struct {
		lines map[string]string
		want  string
	}{
		{map[string]string{"1": "/sbin/docker-init -- /entrypoint.sh serve", "7": "/usr/bin/xpyd serve --admin :9100 --decode http://d:1", "9": "xpyd healthcheck"}, ":9100"},
		{map[string]string{"1": "/tini -- /usr/bin/xpyd serve --admin :9100", "7": "/usr/bin/xpyd serve --admin :9100"}, ":9100"},
		{map[string]string{"1": "/pause", "7": "xpyd serve --admin :9100", "8": "xpyd serve --admin :9100"}, ":9100"},
		{map[string]string{"1": "/sbin/init", "7": "xpyd serve --admin :9100", "8": "xpyd serve --admin :9200"}, otherwise},
		{map[string]string{"1": "/sbin/init", "7": "xpyd sim"}, otherwise},
	} {
		f := adminFlags{proc: processes(t, tc.lines)}
		if got := f.ofServe(t.Context(), nil, otherwise); got != tc.want {
			t.Errorf("%q: %s, want %s", tc.lines, got, tc.want)
		}
		if got := f.ofServe(t.Context(), []string{"XPYD_ADMIN=:9300"}, ":9300"); !strings.HasPrefix(tc.lines["1"], "/tini") && got != ":9300" {
			t.Errorf("%q: %s, want what the variable says", tc.lines, got)
		}
	}
}

// Inside the container of a serve the admin port is where that serve has it, however it was told.
func TestAdminPortOfTheServeInAContainer(t *testing.T) {
	const otherwise = "http://127.0.0.1:8081"
	file := writeFile(t, "xpyd.yaml", "admin: 0.0.0.0:9100\nadmin_tls: {cert: /gone, key: /gone}\n", 0o600)
	plain := writeFile(t, "plain.yaml", "admin: 127.0.0.1:9200\napi_key_file: /gone\n", 0o600)
	broken := writeFile(t, "broken.yaml", "admin: [", 0o600)
	for _, tc := range []struct {
		line, variable, want string
	}{
		{"/xpyd serve --decode http://d:1", "", "127.0.0.1:8081"}, // its default
		{"/xpyd serve --admin :9000 --decode http://d:1", "127.0.0.1:9300", ":9000"},
		{"/xpyd serve", "127.0.0.1:9300", "127.0.0.1:9300"},
		{"/xpyd serve --config " + plain, "", "127.0.0.1:9200"},
		{"/xpyd serve --config " + file, "", "https://0.0.0.0:9100"},
		{"/sbin/docker-init -- /xpyd serve --config=" + plain, "", "127.0.0.1:9200"},
		{"/xpyd serve --as vllm-router -- --worker-urls http://w:1 --prometheus-port 9400", "", "127.0.0.1:9400"},
		{"/xpyd serve --config " + broken, "", otherwise},
		{"/xpyd serve --nonsense", "", otherwise},
		{"/xpyd serve --admin= --decode http://d:1", "", otherwise},
		{"/xpyd sim", "", otherwise},
		{"/sbin/init serve", "", otherwise},
		{"serve", "", otherwise},
		{"", "", otherwise},
	} {
		f := adminFlags{proc: processes(t, map[string]string{"1": tc.line})}
		var environ []string
		if tc.variable != "" {
			environ = []string{"XPYD_ADMIN=" + tc.variable}
		}
		if got := f.ofServe(t.Context(), environ, otherwise); got != tc.want {
			t.Errorf("%q: %s, want %s", tc.line, got, tc.want)
		}
	}
	if got := (&adminFlags{proc: "/nonexistent"}).ofServe(t.Context(), nil, otherwise); got != otherwise {
		t.Errorf("without the file: %s", got)
	}
}

// The image's health check finds a serve whose admin port only its file tells.
func TestHealthcheckOfAServeWithAFile(t *testing.T) {
	t.Parallel()
	_, d := pairOfEngines(t, -1)
	p := serveProcess(t, nil, urls(d))
	_, port, err := net.SplitHostPort(p.admin)
	if err != nil {
		t.Fatal(err)
	}
	file := writeFile(t, "xpyd.yaml", "admin: 0.0.0.0:"+port+"\n", 0o600)
	check := newHealthcheckCmd(&adminFlags{proc: processes(t, map[string]string{"1": "/xpyd serve --config " + file})})
	check.SetArgs([]string{"--timeout", patience.String()})
	if err := check.ExecuteContext(t.Context()); err != nil {
		t.Error(err)
	}
}
