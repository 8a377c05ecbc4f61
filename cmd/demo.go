package cmd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"xpyd/cmd/config"
	"xpyd/cmd/daemon"
	"xpyd/router"
	"xpyd/sim"
)

// demoModel is the name of the model that the demo's engines serve.
const demoModel = "sim"

func newDemoCmd() *cobra.Command {
	var once bool
	var listen string
	var roleless int
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run the proxy with two simulated prefill and two simulated decode engines in one process",
		Long: `demo runs the proxy with two simulated prefill and two simulated decode engines in one process,
and sends one completion through them. Then it keeps running, so that you can send requests of your own.
With --engines N it has N engines without a role in their place.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if once && !cmd.Flags().Changed("listen") {
				listen = "127.0.0.1:0"
			}
			if _, _, err := net.SplitHostPort(listen); err != nil {
				return config.UsageError{Err: fmt.Errorf("--listen: %q must be host:port; try 127.0.0.1:8080", listen)}
			}
			if roleless < 0 || roleless > 16 {
				return config.UsageError{Err: fmt.Errorf("--engines: %d must be from 1 to 16", roleless)}
			}
			return demo(cmd.Context(), cmd.OutOrStdout(), listen, roleless, once)
		},
	}
	cmd.Flags().BoolVar(&once, "once", false, "stop after the first answer")
	cmd.Flags().IntVar(&roleless, "engines", 0, "`number` of engines without a role, in place of those with one")
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:8080", "address of the proxy's data port; with --once the default is any free port")
	return cmd
}

func demo(ctx context.Context, out io.Writer, listen string, roleless int, once bool) (err error) {
	engines, pools, err := startDemoEngines(roleless)
	defer func() {
		for _, e := range engines {
			err = errors.Join(err, e.Close())
		}
	}()
	if err != nil {
		return err
	}
	cfg := config.Default()
	cfg.Listen, cfg.Admin, cfg.Router = listen, "127.0.0.1:0", pools
	cfg.Timeouts.Drain = 5 * time.Second
	lines := &lastLine{}
	p, err := daemon.Start(cfg, readBuildInfo().Version, zerolog.New(lines).Level(zerolog.InfoLevel))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Shutdown()) }()
	printDemo(out, pools, p)
	if err := demoRequest(ctx, out, "http://"+p.Addr); err != nil {
		return err
	}
	if err := lines.explain(ctx, out); err != nil || once {
		return err
	}
	fmt.Fprintf(out, "\nserving until Ctrl-C; try:\n  curl -N http://%s/v1/chat/completions -H 'Content-Type: application/json' \\\n"+
		"    -d '{\"model\":%q,\"stream\":true,\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}]}'\n", p.Addr, demoModel)
	select {
	case <-ctx.Done():
		return nil
	case err := <-p.Failed():
		return err
	}
}

func printDemo(out io.Writer, pools router.Config, p *daemon.Proxy) {
	if len(pools.Engines) > 0 {
		fmt.Fprintf(out, "engines   %s\n", strings.Join(router.Texts(pools.Engines), " "))
	} else {
		fmt.Fprintf(out, "engines   prefill %s\n          decode  %s\n", strings.Join(router.Texts(pools.Prefill), " "), strings.Join(router.Texts(pools.Decode), " "))
	}
	fmt.Fprintf(out, "proxy     http://%s   (status page: http://%s/, metrics: http://%s/metrics)\n\n", p.Addr, p.AdminAddr, p.AdminAddr)
}

// startDemoEngines returns the engines that it has started, even if it fails: so many without a role, or, with 0, two of
// each role.
func startDemoEngines(roleless int) (engines []*sim.Engine, pools router.Config, err error) {
	pools = router.DefaultConfig()
	start := func(n int, name string, role sim.Role, pool *[]router.Entry) {
		for i := 0; i < n && err == nil; i++ {
			var e *sim.Engine
			if e, err = sim.Start(sim.Options{Name: fmt.Sprintf("%s-%d", name, i), Role: role, Model: demoModel}); err != nil {
				err = fmt.Errorf("start %s-%d: %w", name, i, err)
				return
			}
			engines = append(engines, e)
			*pool = append(*pool, router.MustEntries(e.URL())...)
		}
	}
	if roleless > 0 {
		start(roleless, "engine", sim.RoleDecode, &pools.Engines) // the parameters of a request say which leg it runs
		return engines, pools, err
	}
	start(2, "prefill", sim.RolePrefill, &pools.Prefill)
	start(2, "decode", sim.RoleDecode, &pools.Decode)
	return engines, pools, err
}

// demoRequest streams one chat completion and prints its text as it comes.
func demoRequest(ctx context.Context, out io.Writer, base string) error {
	const question = "Why are prefill and decode better off on different GPUs?"
	body := fmt.Sprintf(`{"model":%q,"stream":true,"max_tokens":24,"messages":[{"role":"user","content":%q}]}`, demoModel, question)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("chat completion: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("chat completion: %s: %s", resp.Status, text)
	}
	fmt.Fprintf(out, "question  %s\nanswer    ", question)
	stream, err := io.ReadAll(io.TeeReader(resp.Body, &deltaPrinter{out: out}))
	fmt.Fprintln(out)
	if err == nil && !bytes.HasSuffix(stream, []byte("data: [DONE]\n\n")) {
		err = errors.New("chat completion: the stream did not end with [DONE]")
	}
	return err
}

// deltaPrinter prints the text of each event that passes through it.
type deltaPrinter struct {
	out  io.Writer
	rest []byte
}

func (d *deltaPrinter) Write(p []byte) (int, error) {
	d.rest = append(d.rest, p...)
	for {
		event, rest, ok := bytes.Cut(d.rest, []byte("\n\n"))
		if !ok {
			return len(p), nil
		}
		d.rest = rest
		var chunk struct {
			Choices []struct {
				Delta struct {
					Content string `json:"content"`
				} `json:"delta"`
			} `json:"choices"`
		}
		if json.Unmarshal(bytes.TrimPrefix(event, []byte("data: ")), &chunk) == nil && len(chunk.Choices) > 0 {
			fmt.Fprint(d.out, chunk.Choices[0].Delta.Content)
		}
	}
}

// lastLine is a log that keeps the line of the last completion.
type lastLine struct {
	mu   sync.Mutex
	line []byte
}

func (l *lastLine) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte(`"message":"completion"`)) {
		l.mu.Lock()
		l.line = bytes.Clone(p)
		l.mu.Unlock()
	}
	return len(p), nil
}

// explain prints the two legs and the phases from the log line, which is written right after the last
// byte of the answer.
func (l *lastLine) explain(ctx context.Context, out io.Writer) error {
	var f struct {
		RequestID string  `json:"request_id"`
		LegID     string  `json:"leg_id"`
		Path      string  `json:"path"`
		Prefill   string  `json:"prefill"`
		Decode    string  `json:"decode"`
		PrefillMS float64 `json:"prefill_ms"`
		HandoffMS float64 `json:"handoff_ms"`
		TTFT      float64 `json:"ttft_ms"`
		Total     float64 `json:"total_ms"`
		Events    int     `json:"events"`
	}
	line, err := l.await(ctx)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(line, &f); err != nil {
		return fmt.Errorf("read the log line: %w", err)
	}
	if f.Prefill == "" {
		fmt.Fprintf(out, "\nleg       whole on %s\n", f.Decode)
		return nil
	}
	fmt.Fprintf(out, "\nlegs      1 prefill on %s (one token, KV blocks pinned)\n          2 decode  on %s (pulls the blocks, streams)\n"+
		"id        %s on both legs\nphases    prefill %.1f ms, handoff %.2f ms, first token after %.1f ms, all %d events after %.1f ms (path %s)\n",
		f.Prefill, f.Decode, f.LegID, f.PrefillMS, f.HandoffMS, f.TTFT, f.Events, f.Total, f.Path)
	return nil
}

func (l *lastLine) await(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for {
		l.mu.Lock()
		line := l.line
		l.mu.Unlock()
		if line != nil {
			return line, nil
		}
		select {
		case <-ctx.Done():
			return nil, errors.New("the proxy wrote no log line for the completion")
		case <-time.After(5 * time.Millisecond):
		}
	}
}
