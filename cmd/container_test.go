package cmd

import (
	"net"
	"strings"
	"testing"
)

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
		f := adminFlags{first: writeFile(t, "cmdline", strings.ReplaceAll(tc.line, " ", "\x00")+"\x00", 0o600)}
		var environ []string
		if tc.variable != "" {
			environ = []string{"XPYD_ADMIN=" + tc.variable}
		}
		if got := f.ofServe(t.Context(), environ, otherwise); got != tc.want {
			t.Errorf("%q: %s, want %s", tc.line, got, tc.want)
		}
	}
	if got := (&adminFlags{first: "/nonexistent"}).ofServe(t.Context(), nil, otherwise); got != otherwise {
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
	check := newHealthcheckCmd(&adminFlags{first: writeFile(t, "cmdline", "/xpyd\x00serve\x00--config\x00"+file+"\x00", 0o600)})
	check.SetArgs([]string{"--timeout", patience.String()})
	if err := check.ExecuteContext(t.Context()); err != nil {
		t.Error(err)
	}
}
