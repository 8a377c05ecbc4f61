package cmd

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"xpyd/sim"
)

// A reload changes timeouts and limits for requests that come after it, and back. It refuses those that
// belong to connections, and changes nothing then.
func TestReloadChangesTimeoutsAndLimits(t *testing.T) {
	t.Parallel()
	p1 := startEngine(t, sim.Options{Name: "p1", Role: sim.RolePrefill})
	d1 := startEngine(t, sim.Options{Name: "d1", Role: sim.RoleDecode, TokenLatency: 20 * time.Millisecond})
	file := newPoolFile(t, urls(p1), urls(d1))
	usual, err := os.ReadFile(file.path)
	if err != nil {
		t.Fatal(err)
	}
	p := startSelf(t, "serve", "--config", file.path)
	p.serving(1)
	p.awaitReady()
	ask := func(prompt string, tokens int) string {
		t.Helper()
		resp, err := fresh.Post("http://"+p.addr+"/v1/completions", "application/json", strings.NewReader(completionBody(prompt, tokens, false)))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode == http.StatusOK {
			return "200"
		}
		return fmt.Sprint(resp.StatusCode, " ", string(b))
	}
	long := strings.Repeat("long ", 1000)
	for _, tc := range []struct {
		settings, prompt string
		tokens           int
		held             int // streams that run meanwhile
		want             string
	}{
		{"", long, 2, 1, "200"},
		{"limits: {body: 1KiB}", long, 2, 0, "413"},
		{"limits: {body_budget: 32MiB, client_share: 0.25}", long, 2, 0, "200"},
		{"limits: {client_in_flight: 1}", "short", 2, 1, "429"},
		{"limits: {require_content_length: true}", "short", 2, 0, "200"},
		{"timeouts: {request: 200ms}", "slow", 1000, 0, "504"},
		{"timeouts: {first_event: 200ms}", "slow", 1000, 0, "504"},
		{"", "short", 2, 1, "200"},
	} {
		file.text(string(usual) + tc.settings + "\n")
		p.operate("ctl", "reload")
		streams := longStreams(t, p.addr, tc.held, 100)
		if got := ask(tc.prompt, tc.tokens); !strings.HasPrefix(got, tc.want) {
			t.Errorf("with %q: %s, want %s", tc.settings, got, tc.want)
		}
		for _, s := range streams {
			if err := <-s; err != nil {
				t.Errorf("with %q a stream that runs: %v", tc.settings, err)
			}
		}
	}
	file.text(string(usual) + "timeouts: {dial: 3s, request: 1ms}\nlimits: {connections_per_ip: 1}\n")
	if _, err := p.ctl("ctl", "reload"); err == nil || !strings.HasPrefix(err.Error(), "limits.connections_per_ip, timeouts.dial changed: ") {
		t.Errorf("a reload with keys of connections says %v", err)
	}
	if got := ask("short", 2); got != "200" {
		t.Errorf("after a reload that was refused: %s", got)
	}
}
