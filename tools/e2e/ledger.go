package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
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
	lines   int     // of xpyd's log at the start
	sums    map[string]float64
	ends    map[string]float64 // handles by how they ended, as xpyd counts them
	legs    float64            // of prefill with an answer, by xpyd
}

// figures that a ledger reads of every engine.
func (c connector) figures() []string {
	all := []string{metricExternal, metricLocal, "vllm:generation_tokens_total", "vllm:prompt_tokens_total"}
	if c.moves != "" {
		all = append(all, "vllm:nixl_xfer_time_seconds_count", "vllm:nixl_num_failed_transfers_total", metricExpired)
	}
	return all
}

// These are the prompts' tokens that an engine got from elsewhere, and those of its own prefix cache.
const (
	metricExternal = "vllm:external_prefix_cache_hits_total"
	metricLocal    = "vllm:prefix_cache_hits_total"
)

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
	l.lines = len(x.lines())
	var err error
	if l.ends, err = l.handleEnds(); err != nil {
		return nil, err
	}
	if l.legs, err = l.prefillLegs(ctx); err != nil {
		return nil, err
	}
	l.sums, err = l.read(ctx)
	return l, err
}

func (l *ledger) prefillLegs(ctx context.Context) (float64, error) {
	page, err := l.xpyd.page(ctx)
	if err != nil || len(page.By("xpyd_leg_requests_total", "leg")) == 0 { // before the first leg there is no series
		return 0, err
	}
	return page.Sum("xpyd_leg_requests_total", `leg="prefill"`, `outcome="ok"`)
}

// awaitWarm waits for the warm-ups, and judges that the blocks that they held are free.
func (l *ledger) awaitWarm(ctx context.Context) error {
	if l.t.fleet.opts.kv.moves == "" {
		return l.awaitIdle(ctx)
	}
	pairs := pairsOf(l.engines)
	var ended float64
	err := poll(ctx, time.Minute, func() bool {
		ended, _ = l.xpyd.metric("xpyd_warmups_total", `result="ok"`)
		return int(ended) >= pairs
	})
	if err != nil {
		return fmt.Errorf("await the warm-up of %d pairs: %w: %v have ended", pairs, err, ended)
	}
	if err := l.awaitIdle(ctx); err != nil {
		l.t.fail("before the first request: %v", err)
	}
	return nil
}

// pairsOf counts the prefill and decode engines, or ranks of them, that xpyd may send one request to.
func pairsOf(engines []*engine) (n int) {
	for _, p := range engines {
		for _, d := range engines {
			if p.role == "prefill" && d.role == "decode" && p.kv == d.kv {
				n += max(1, p.ranks) * max(1, d.ranks)
			}
		}
	}
	return n
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
		for _, name := range l.t.fleet.opts.kv.figures() {
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

// figure is by how much a figure of all engines of a role must have grown.
type figure struct {
	role, name string
	want       float64
}

// close judges the span. There must be as many transfers as requests that took both legs, one token
// of a prefill engine for each, nothing left behind, and the same id in the logs of both engines.
func (l *ledger) close(ctx context.Context, disaggregated int) error {
	if err := l.awaitIdle(ctx); err != nil {
		l.t.fail("%v", err)
	} else {
		l.t.pass()
	}
	n, moves := float64(disaggregated), l.t.fleet.opts.kv.moves
	if err := l.generated(ctx, n); err != nil {
		return err
	}
	var all []figure
	if moves != "" {
		all = append(all, figure{moves, "vllm:nixl_xfer_time_seconds_count", n},
			figure{"prefill", metricExpired, 0}, figure{"decode", "vllm:nixl_num_failed_transfers_total", 0})
	}
	for _, f := range all {
		if err := l.want(ctx, f.role, f.name, f.want); err != nil {
			return err
		}
	}
	if err := l.handles(disaggregated); err != nil {
		return err
	}
	return l.ids(ctx)
}

// generated judges the tokens of prefill engines: one for each request of both legs. Where the legs start together xpyd cuts a
// prefill leg whose decode leg has ended first, so there may be fewer, but one for each leg that was answered.
func (l *ledger) generated(ctx context.Context, requests float64) error {
	const name = "vllm:generation_tokens_total"
	if !l.t.fleet.opts.kv.together {
		return l.want(ctx, "prefill", name, requests)
	}
	legs, err := l.prefillLegs(ctx)
	if err != nil {
		return err
	}
	answered, got := legs-l.legs, 0.0
	late := poll(ctx, settleTime, func() bool {
		got, err = l.grown(ctx, "prefill", name)
		return err != nil || got >= answered
	})
	if err = errors.Join(err, ctx.Err()); err != nil {
		return err
	}
	l.t.judge(late == nil && got <= requests, "prefill: %s grew by %v, want %v, or as few as the %v legs that xpyd has an answer of", name, got, requests, answered)
	return nil
}

// handleEnds reads xpyd's own accounts.
func (l *ledger) handleEnds() (map[string]float64, error) {
	ends := map[string]float64{}
	for _, end := range []string{"burnt", "released", "drained", "expired", "lost"} {
		n, err := l.xpyd.metric("xpyd_kv_handles_total", `end="`+end+`"`)
		if err != nil {
			return nil, err
		}
		ends[end] = n
	}
	issued, err := l.xpyd.metric("xpyd_kv_handles_issued_total")
	ends["issued"] = issued
	return ends, err
}

// handles judges that every handle was used, and that a connector without handles had none.
func (l *ledger) handles(disaggregated int) error {
	ends, err := l.handleEnds()
	if err != nil {
		return err
	}
	for end, n := range ends {
		want := 0.0
		if l.t.fleet.opts.kv.moves != "" && (end == "issued" || end == "burnt") {
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

// ids looks for the id of each leg in the logs of the engines that xpyd's line names. What decode took
// from elsewhere must be what a prompt of that length has there.
func (l *ledger) ids(ctx context.Context) error {
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
	want := 0
	for _, line := range l.ended(ctx) {
		id, _ := line["leg_id"].(string)
		if line["path"] != "disaggregated" || line["outcome"] != "ok" || !strings.HasPrefix(id, "e2e-") {
			continue
		}
		if tokens, _ := line["prompt_tokens"].(float64); l.t.fleet.opts.kv.stored != nil {
			want += l.t.fleet.opts.kv.stored(int(tokens))
		}
		for _, role := range []string{"prefill", "decode"} {
			url, _ := line[role].(string)
			url, _, _ = strings.Cut(url, "@") // the ranks of a server write one log
			if !bytes.Contains(logs[url], []byte(id)) {
				l.t.fail("the log of %s at %s does not name %s", role, url, id)
			} else {
				l.t.pass()
			}
		}
	}
	return l.taken(ctx, logs, want)
}

// ended returns the log lines of xpyd since the ledger was opened, once each completion that it has counted has one. A
// line is written after the answer has ended.
func (l *ledger) ended(ctx context.Context) (lines []map[string]any) {
	_ = poll(ctx, settleTime, func() bool { // what is missing is judged by who asks
		counted, err := l.xpyd.metric("xpyd_requests_total")
		lines = l.xpyd.lines()
		logged := 0
		for _, line := range lines {
			if line["message"] == "completion" {
				logged++
			}
		}
		return err == nil && logged >= int(counted)
	})
	return lines[l.lines:]
}

// taken judges how many tokens of their prompts the decode engines have taken from elsewhere.
func (l *ledger) taken(ctx context.Context, logs map[string][]byte, want int) error {
	kv := l.t.fleet.opts.kv
	if kv.stored == nil {
		return nil
	}
	if !kv.folder {
		return l.pulled(ctx, float64(want))
	}
	got := 0
	for _, e := range l.engines {
		if e.role == "decode" {
			got += injected(logs[e.url])
		}
	}
	l.t.say("decode took %d of their prompts' tokens from the folder", got)
	l.t.judge(got == want && got > 0, "decode took %d tokens from the folder, want %d", got, want)
	return nil
}

// pulled judges it by the engines' counters. Of a prompt that begins like an earlier one, decode has a
// part in its own cache, and so it has of requests that it got alone.
func (l *ledger) pulled(ctx context.Context, want float64) error {
	var external, local float64
	var failed error
	_ = poll(ctx, settleTime, func() bool { // a difference is judged below
		var of [2]error
		external, of[0] = l.grown(ctx, "decode", metricExternal)
		local, of[1] = l.grown(ctx, "decode", metricLocal)
		failed = errors.Join(of[:]...)
		return failed != nil || external+local >= want
	})
	if failed != nil {
		return failed
	}
	l.t.say("decode took %.0f of %.0f tokens of prompts from prefill, and had %.0f in its cache", external, want, local)
	l.t.judge(external > 0 && external <= want && external+local >= want, "decode took %v tokens from prefill and had %v, want %v", external, local, want)
	return nil
}

// injected is how many tokens an engine has loaded from a folder, by its log. Its counter of external
// hits leaves out those that its own cache had as well, as where prompts begin with the same tools.
func injected(log []byte) (tokens int) {
	for _, found := range injectLine.FindAllSubmatch(log, -1) {
		n, _ := strconv.Atoi(string(found[1]))
		tokens += n
	}
	return tokens
}

var injectLine = regexp.MustCompile(`Inject KV cache of (\d+) tokens`)

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
