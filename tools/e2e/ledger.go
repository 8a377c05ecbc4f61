package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"time"
)

// ledger is what the engines and xpyd say about a span of requests. It proves that blocks were
// pulled, and that none was left behind.
type ledger struct {
	t       *trial
	xpyd    *proxy
	engines []*engine
	logs    []int64 // length of each engine's log at the start
	sums    map[string]float64
	ends    map[string]float64 // handles by how they ended, as xpyd counts them
}

// figures that a ledger reads of every engine.
var figures = []string{
	"vllm:nixl_xfer_time_seconds_count", "vllm:nixl_num_failed_transfers_total", "vllm:nixl_num_kv_expired_reqs_total",
	"vllm:external_prefix_cache_hits_total", "vllm:generation_tokens_total", "vllm:prompt_tokens_total",
}

// settleTime is how long an engine's figures may lag behind its answers.
const settleTime = 5 * time.Second

// openLedger begins after xpyd has sent its own request over each pair.
func openLedger(ctx context.Context, t *trial, x *proxy, engines []*engine) (*ledger, error) {
	l := &ledger{t: t, xpyd: x, engines: engines}
	if err := l.awaitWarm(ctx); err != nil {
		return nil, err
	}
	for _, e := range engines {
		info, err := os.Stat(e.log)
		if err != nil {
			return nil, fmt.Errorf("read the log of %s: %w", e.name, err)
		}
		l.logs = append(l.logs, info.Size())
	}
	var err error
	if l.ends, err = l.handleEnds(); err != nil {
		return nil, err
	}
	l.sums, err = l.read(ctx)
	return l, err
}

// awaitWarm waits for the warm-ups, and judges that the blocks that they held are free.
func (l *ledger) awaitWarm(ctx context.Context) error {
	prefills, decodes := 0, 0
	for _, e := range l.engines {
		if e.role == "prefill" {
			prefills++
		} else {
			decodes++
		}
	}
	var ended float64
	err := poll(ctx, time.Minute, func() bool {
		ended, _ = l.xpyd.metric("xpyd_warmups_total", `result="ok"`)
		return int(ended) >= prefills*decodes
	})
	if err != nil {
		return fmt.Errorf("await the warm-up of %d pairs: %w: %v have ended", prefills*decodes, err, ended)
	}
	if err := l.awaitIdle(ctx); err != nil {
		l.t.fail("before the first request: %v", err)
	}
	return nil
}

// awaitIdle waits until no engine holds a block.
func (l *ledger) awaitIdle(ctx context.Context) error {
	for _, e := range l.engines {
		var used float64
		err := poll(ctx, 3*time.Second, func() bool {
			used, _ = e.metric(ctx, "vllm:kv_cache_usage_perc")
			return used == 0
		})
		if err != nil {
			return fmt.Errorf("%s still uses %.1f %% of its blocks after 3 s", e.name, 100*used)
		}
	}
	return nil
}

// read sums each figure by role: "decode vllm:…".
func (l *ledger) read(ctx context.Context) (map[string]float64, error) {
	sums := map[string]float64{}
	for _, e := range l.engines {
		page, err := e.page(ctx)
		if err != nil {
			return nil, err
		}
		for _, name := range figures {
			v, err := page.Sum(name)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", e.name, err)
			}
			sums[e.role+" "+name] += v
		}
	}
	return sums, nil
}

// grown returns how far a figure is above its value at the start.
func (l *ledger) grown(ctx context.Context, role, name string) (float64, error) {
	now, err := l.read(ctx)
	if err != nil {
		return 0, err
	}
	key := role + " " + name
	return now[key] - l.sums[key], nil
}

// want judges one figure, which may lag behind.
func (l *ledger) want(ctx context.Context, role, name string, want float64) error {
	var got float64
	var err error
	if late := poll(ctx, settleTime, func() bool {
		got, err = l.grown(ctx, role, name)
		return err != nil || got >= want
	}); late != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return err
	}
	if got != want {
		l.t.fail("%s: %s grew by %v, want %v", role, name, got, want)
		return nil
	}
	l.t.pass()
	return nil
}

// close judges the span. There must be as many transfers as requests that took both legs, one token
// of a prefill engine for each, nothing left behind, and the same id in the logs of both engines.
func (l *ledger) close(ctx context.Context, disaggregated int) error {
	if err := l.awaitIdle(ctx); err != nil {
		l.t.fail("%v", err)
	} else {
		l.t.pass()
	}
	n := float64(disaggregated)
	for _, f := range []struct {
		role, name string
		want       float64
	}{
		{l.t.fleet.opts.kv.moves, "vllm:nixl_xfer_time_seconds_count", n},
		{"prefill", "vllm:generation_tokens_total", n},
		{"prefill", "vllm:nixl_num_kv_expired_reqs_total", 0},
		{"decode", "vllm:nixl_num_failed_transfers_total", 0},
	} {
		if err := l.want(ctx, f.role, f.name, f.want); err != nil {
			return err
		}
	}
	if err := l.handles(disaggregated); err != nil {
		return err
	}
	return l.ids()
}

// handleEnds reads xpyd's own accounts.
func (l *ledger) handleEnds() (map[string]float64, error) {
	ends := map[string]float64{}
	for _, end := range []string{"issued", "burnt", "released", "drained", "expired", "lost"} {
		n, err := l.xpyd.metric("xpyd_kv_handles_total", `end="`+end+`"`)
		if err != nil {
			return nil, err
		}
		ends[end] = n
	}
	return ends, nil
}

// handles judges that every handle was used.
func (l *ledger) handles(disaggregated int) error {
	ends, err := l.handleEnds()
	if err != nil {
		return err
	}
	for end, n := range ends {
		want := 0.0
		if end == "issued" || end == "burnt" {
			want = float64(disaggregated)
		}
		if got := n - l.ends[end]; got != want {
			l.t.fail("xpyd: %v handles %s, want %v", got, end, want)
		} else {
			l.t.pass()
		}
	}
	return nil
}

// ids looks for the id of each leg in the logs of the engines that xpyd's line names.
func (l *ledger) ids() error {
	logs := map[string][]byte{}
	for i, e := range l.engines {
		text, err := os.ReadFile(e.log)
		if err != nil {
			return fmt.Errorf("read the log of %s: %w", e.name, err)
		}
		logs[e.url] = text[min(l.logs[i], int64(len(text))):]
		if line := warning(logs[e.url]); line != "" {
			l.t.fail("%s logs: %s", e.name, line)
		}
	}
	for _, line := range l.xpyd.lines() {
		id, _ := line["leg_id"].(string)
		if line["path"] != "disaggregated" || line["outcome"] != "ok" || !strings.HasPrefix(id, "e2e-") {
			continue
		}
		for _, role := range []string{"prefill", "decode"} {
			url, _ := line[role].(string)
			if !bytes.Contains(logs[url], []byte(id)) {
				l.t.fail("the log of %s at %s does not name %s", role, url, id)
			} else {
				l.t.pass()
			}
		}
	}
	return nil
}

// warning returns a line that no engine may log: blocks that were read twice, or an engine's end.
func warning(log []byte) string {
	for line := range bytes.Lines(log) {
		for _, mark := range []string{"Potentially invalid KV blocks", "EngineCore encountered"} {
			if bytes.Contains(line, []byte(mark)) {
				return fmt.Sprintf("%.300s", bytes.TrimSpace(line))
			}
		}
	}
	return ""
}
