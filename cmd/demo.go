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
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run the proxy with two simulated prefill and two simulated decode engines in one process",
		Long: `demo runs the proxy with two simulated prefill and two simulated decode engines in one process,
and sends one completion through them. Then it keeps running, so that you can send requests of your own.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if once && !cmd.Flags().Changed("listen") {
				listen = "127.0.0.1:0"
			}
			if _, _, err := net.SplitHostPort(listen); err != nil {
				return config.UsageError{Err: fmt.Errorf("--listen: %q must be host:port; try 127.0.0.1:8080", listen)}
			}
			return demo(cmd.Context(), cmd.OutOrStdout(), listen, once)
		},
	}
	cmd.Flags().BoolVar(&once, "once", false, "stop after the first answer")
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:8080", "address of the proxy's data port; with --once the default is any free port")
	return cmd
}

func demo(ctx context.Context, out io.Writer, listen string, once bool) (err error) {
	engines, pools, err := startDemoEngines()
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
	fmt.Fprintf(out, "engines   prefill %s\n          decode  %s\nproxy     http://%s   (status page: http://%s/, metrics: http://%s/metrics)\n\n",
		strings.Join(router.Texts(pools.Prefill), " "), strings.Join(router.Texts(pools.Decode), " "), p.Addr, p.AdminAddr, p.AdminAddr)
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

// startDemoEngines returns the engines that it has started, even if it fails.
func startDemoEngines() ([]*sim.Engine, router.Config, error) {
	pools := router.DefaultConfig()
	var engines []*sim.Engine
	for i := range 4 {
		o := sim.Options{Name: fmt.Sprintf("prefill-%d", i), Role: sim.RolePrefill, Model: demoModel}
		if i >= 2 {
			o.Name, o.Role = fmt.Sprintf("decode-%d", i-2), sim.RoleDecode
		}
		e, err := sim.Start(o)
		if err != nil {
			return engines, pools, fmt.Errorf("start %s: %w", o.Name, err)
		}
		engines = append(engines, e)
		if i < 2 {
			pools.Prefill = append(pools.Prefill, router.MustEntries(e.URL())...)
		} else {
			pools.Decode = append(pools.Decode, router.MustEntries(e.URL())...)
		}
	}
	return engines, pools, nil
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
