package cmd

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"xpyd/cmd/config"
)

// xpyd sim --ranks serves engines of their own behind one port, and ends when one of them dies.
func TestSimWithRanks(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := &readyPipe{line: make(chan string, 1)}
	cmd := newSimCmd()
	cmd.SetArgs([]string{"--role", "prefill", "--listen", "127.0.0.1:0", "--fast", "--ranks", "2", "--name", "p1"})
	cmd.SetOut(out)
	cmd.SetErr(io.Discard)
	done := make(chan error, 1)
	go func() { done <- cmd.ExecuteContext(ctx) }()
	_, rest, _ := strings.Cut(<-out.line, "sim p1 ready: ")
	url, rest, _ := strings.Cut(rest, ", ")
	if rest != "model sim, ranks "+url+"@0..1\n" {
		t.Errorf("ready line ends in %q", rest)
	}
	ask := func(rank, path, body string) (status int, answer string) {
		t.Helper()
		req, err := http.NewRequest(http.MethodPost, url+path, strings.NewReader(body))
		if body == "" {
			req, err = http.NewRequest(http.MethodGet, url+path, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		req.Close = true
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("X-data-parallel-rank", rank)
		resp, err := fresh.Do(req)
		if err != nil {
			return 0, "" // the engine broke off
		}
		defer func() { _ = resp.Body.Close() }()
		text, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(text)
	}
	if status, text := ask("1", "/v1/completions", `{"model":"sim","prompt":"a"}`); status != 200 {
		t.Fatalf("status %d: %s", status, text)
	}
	for rank, want := range map[string]int{"0": 0, "1": 1} {
		if _, text := ask(rank, "/sim/requests", ""); strings.Count(text, `"p1-dp`+rank+`"`) != want || strings.Count(text, `"engine"`) != want {
			t.Errorf("rank %s had %s, want %d requests", rank, text, want)
		}
	}
	if status, text := ask("2", "/v1/completions", `{"model":"sim","prompt":"a"}`); status != 400 || !strings.Contains(text, "out of range [0, 2)") {
		t.Errorf("rank 2: status %d: %s", status, text)
	}
	if status, text := ask("0", "/sim/fault", `"kill"`); status != 200 {
		t.Fatalf("status %d: %s", status, text)
	}
	ask("0", "/v1/completions", `{"model":"sim","prompt":"a"}`)
	select {
	case err := <-done:
		if err == nil || !strings.Contains(err.Error(), "sim p1-dp0 died") {
			t.Errorf("ended with %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Error("goes on with a dead rank")
	}
}

func TestSimRefusesRanks(t *testing.T) {
	for _, tc := range []struct{ args, want string }{
		{"--ranks=0", "--ranks: 0 must be from 1 to 64"},
		{"--ranks=65", "--ranks: 65 must be from 1 to 64"},
		{"--ranks=2 --connector=lmcache", "--ranks: connector lmcache takes no ranks; start one engine a rank"},
		{"--ranks=2 --connector=sglang --role=prefill", `--side-channel: "127.0.0.1:0" must have a port, as a leg names that of rank 0`},
		{"--ranks=2 --fault=explode", `fault kind "explode"`},
		{"--ranks=2 --num-blocks=-3", "sim blocks -3"},
	} {
		cmd := newSimCmd()
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetArgs(append([]string{"--listen", "127.0.0.1:0"}, strings.Fields(tc.args)...))
		cmd.SetOut(io.Discard)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		err := cmd.ExecuteContext(ctx)
		cancel()
		if usage := (config.UsageError{}); !errors.As(err, &usage) || !strings.HasPrefix(err.Error(), tc.want) {
			t.Errorf("%s: %v, want a usage error %q", tc.args, err, tc.want)
		}
	}
}
