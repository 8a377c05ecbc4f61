package cmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"xpyd/cmd/config"
)

// readyPipe hands the first line that is written to it to the reader of its channel.
type readyPipe struct {
	once sync.Once
	line chan string
}

func (p *readyPipe) Write(b []byte) (int, error) {
	p.once.Do(func() { p.line <- string(b) })
	return len(b), nil
}

func TestSimServesLogsAndStops(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := &readyPipe{line: make(chan string, 1)}
	var log bytes.Buffer
	cmd := newSimCmd()
	cmd.SetArgs([]string{"--role", "prefill", "--listen", "127.0.0.1:0", "--fast", "--model", "tiny", "--fault", "delay=1ms"})
	cmd.SetOut(out)
	cmd.SetErr(&log)
	done := make(chan error, 1)
	go func() { done <- cmd.ExecuteContext(ctx) }()
	line := <-out.line
	_, rest, _ := strings.Cut(line, "ready: ")
	url, rest, _ := strings.Cut(rest, ",")
	if !strings.Contains(rest, "model tiny, side channel 127.0.0.1:") {
		t.Errorf("ready line %q", line)
	}
	req, err := http.NewRequest(http.MethodPost, url+"/v1/completions", strings.NewReader(`{"prompt":"a secret"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Request-Id", "rid-1")
	req.Close = true
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != 200 {
		t.Errorf("answer: %d, %v", resp.StatusCode, err)
	}
	_ = resp.Body.Close()
	cancel()
	if err := <-done; err != nil {
		t.Errorf("ended with %v", err)
	}
	if got := log.String(); !strings.Contains(got, `"request_id":"rid-1"`) || strings.Count(got, "\n") != 1 || strings.Contains(got, "secret") {
		t.Errorf("log %q", got)
	}
}

func TestSimOutlivesARestart(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := &readyPipe{line: make(chan string, 1)}
	cmd := newSimCmd()
	cmd.SetArgs([]string{"--listen", "127.0.0.1:0", "--fast"})
	cmd.SetOut(out)
	cmd.SetErr(io.Discard)
	done := make(chan error, 1)
	go func() { done <- cmd.ExecuteContext(ctx) }()
	_, url, _ := strings.Cut(strings.TrimSpace(<-out.line), "ready: ")
	url, _, _ = strings.Cut(url, ",")
	post := func(path, body string) {
		t.Helper()
		for deadline := time.Now().Add(patience); ; {
			resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Post(url+path, "application/json", strings.NewReader(body))
			if err == nil && resp.StatusCode == 200 {
				_ = resp.Body.Close()
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: %v", path, err)
			}
		}
	}
	post("/sim/restart", "")
	post("/v1/completions", `{"prompt":"a"}`) // retried while it restarts
	cancel()
	if err := <-done; err != nil {
		t.Errorf("ended with %v", err)
	}
}

func TestSimRefusesWrongFlags(t *testing.T) {
	for args, want := range map[string]string{
		"--role=nope":            `sim role "nope": want prefill, decode, both or encode`,
		"--load-failure=x":       `sim load failure policy "x": want fail or recompute`,
		"--fault=explode":        `fault kind "explode": want one of refuse,`,
		"--fault=badhandle=x":    `fault badhandle "x": want one of empty, empty-blocks, empty-group, engine,`,
		"--fault=random=2":       "fault random share 2: want more than 0, at most 1",
		"--listen=8100":          `sim HTTP address "8100": want host:port`,
		"--side-channel=h:p:1":   `sim side channel address "h:p:1": want host:port`,
		"--num-blocks=-3":        "sim blocks -3: want at least 1",
		"--max-model-len=999999": "sim max model len 999999: 8192 blocks of 16 tokens hold only 131072",
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		cmd := newSimCmd()
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetArgs([]string{"--listen", "127.0.0.1:0", args})
		cmd.SetOut(io.Discard)
		err := cmd.ExecuteContext(ctx)
		cancel()
		var usage config.UsageError
		if !errors.As(err, &usage) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want a usage error %q", args, err, want)
		}
	}
}

// A port that is taken is named, whichever of the sim's ports it is.
func TestSimOnATakenPort(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	addr := ln.Addr().String()
	want := "listen: " + addr + " is in use; end its owner or choose another address"
	for _, args := range [][]string{{"--listen", addr}, {"--listen", addr, "--ranks", "2"}, {"--listen", "127.0.0.1:0", "--role", "prefill", "--side-channel", addr}} {
		cmd := newSimCmd()
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetArgs(args)
		cmd.SetOut(io.Discard)
		if err := cmd.ExecuteContext(t.Context()); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", args, err, want)
		}
	}
}

func TestSimPrefixCachingFlags(t *testing.T) {
	for _, tc := range []struct {
		flags []string
		want  float64
	}{
		{nil, 16},
		{[]string{"--prefix-caching=false"}, 0},
		{[]string{"--no-prefix-caching"}, 0},
		{[]string{"--max-num-batched-tokens", "-1"}, 16},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		out := &readyPipe{line: make(chan string, 1)}
		cmd := newSimCmd()
		cmd.SetArgs(append([]string{"--listen", "127.0.0.1:0", "--fast"}, tc.flags...))
		cmd.SetOut(out)
		cmd.SetErr(io.Discard)
		done := make(chan error, 1)
		go func() { done <- cmd.ExecuteContext(ctx) }()
		_, url, _ := strings.Cut(strings.TrimSpace(<-out.line), "ready: ")
		url, _, _ = strings.Cut(url, ",")
		prompt := strings.Repeat("four", 17) // 17 tokens: one block, and the last
		var answer []byte
		for range 2 {
			resp, err := http.Post(url+"/v1/completions", "application/json", strings.NewReader(`{"prompt":"`+prompt+`","max_tokens":1}`))
			if err != nil {
				t.Fatal(err)
			}
			answer, err = io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if err != nil {
				t.Fatal(err)
			}
		}
		if want := fmt.Sprintf(`"cached_tokens":%v,`, tc.want); !bytes.Contains(answer, []byte(want)) {
			t.Errorf("%v: %s, want %s", tc.flags, answer, want)
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("%v: ended with %v", tc.flags, err)
		}
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}

// The limits of a profile hold unless a flag says otherwise.
func TestSimTakesTheLimitsOfItsProfile(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	out := &readyPipe{line: make(chan string, 1)}
	cmd := newSimCmd()
	cmd.SetArgs([]string{"--listen", "127.0.0.1:0", "--num-blocks", "200000", "--profile", "h200-qwen3-8b"})
	cmd.SetOut(out)
	cmd.SetErr(io.Discard)
	done := make(chan error, 1)
	go func() { done <- cmd.ExecuteContext(ctx) }()
	_, url, _ := strings.Cut(strings.TrimSpace(<-out.line), "ready: ")
	url, _, _ = strings.Cut(url, ",")
	const requests = 65 // one more than run at once without a profile
	for range requests {
		go func() { // ends with the engine
			resp, err := http.Post(url+"/v1/completions", "application/json", strings.NewReader(`{"prompt":"a","max_tokens":20000,"ignore_eos":true}`))
			if err == nil {
				_ = resp.Body.Close()
			}
		}()
	}
	running := func() bool {
		resp, err := http.Get(url + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "vllm:num_requests_running{") {
				return strings.HasSuffix(line, fmt.Sprintf(" %d\n", requests)) || strings.HasSuffix(line, fmt.Sprintf(" %d.0\n", requests))
			}
		}
		return false
	}
	for deadline := time.Now().Add(patience); !running(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Errorf("not all of %d requests run", requests)
			break
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("ended with %v", err)
	}
}
