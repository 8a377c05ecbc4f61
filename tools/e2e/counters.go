package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"xpyd/tools/process"
)

// counters sends requests one after the other. After each it reads what the engines count. The
// prefill engine must have computed the prompt. The decode engine must have pulled it and computed
// nothing of it, or the rest of what lies in a connector's folder. No block may stay, and cached_tokens
// must be the prefill engine's.
func counters(ctx context.Context, t *trial) error {
	engines, err := t.fleet.all(ctx, prefillEngine(1), decodeEngine(1))
	if err != nil {
		return err
	}
	x, err := t.fleet.proxyOf(ctx, engines)
	if err != nil {
		return err
	}
	// Each run has prompts of its own. Engines that were kept have those of the last run in their
	// caches.
	c := &counting{t: t, prefill: engines[0], decode: engines[1], xpyd: x, prompts: newPrompts(uint64(time.Now().UnixNano()))}
	if c.ledger, err = openLedger(ctx, t, x, engines); err != nil {
		return err
	}
	for i, tokens := range c.lengths(1, 2, 31, 32, 33, 64, 65, 200, 540, 1024, 1500) {
		for _, api := range []string{completionsPath, chatPath} {
			if err := c.fresh(ctx, api, tokens, i%2 == 1); err != nil {
				return err
			}
		}
	}
	for i, tokens := range c.lengths(1, 32, 33, 64, 65, 300, 1000) {
		if err := c.knownToPrefill(ctx, tokens, i%2 == 0); err != nil {
			return err
		}
	}
	if t.fleet.opts.kv.together {
		t.say("%d of %d answers ended before the prefill engine's, so they had the decode engine's cached_tokens, or the prefill engine counted nothing", c.early, c.judged)
		t.judge(c.early*4 <= c.judged, "%d of %d answers ended before the prefill engine's", c.early, c.judged)
	}
	return c.ledger.ids(ctx)
}

// counting is a run of that check.
type counting struct {
	t               *trial
	prefill, decode *engine
	xpyd            *proxy
	ledger          *ledger
	prompts         *prompts
	sent            int
	judged          int // answers
	early           int // of these, those that ended before the prefill engine's; see compare
}

// lengths leaves out those that end an engine.
func (c *counting) lengths(all ...int) []int {
	return slices.DeleteFunc(all, func(n int) bool { return slices.Contains(c.t.fleet.opts.kv.lethal, n) })
}

// The sources of a prompt's tokens, as an engine counts them.
const (
	byPull    = `source="external_kv_transfer"`
	byCompute = `source="local_compute"`
)

// moves are what one request moves in the figures of both engines.
type moves struct {
	prompt, generated, hits       float64 // of the prefill engine; hits of its own prefix cache
	transfers                     float64 // of the engine that moves the blocks
	external                      float64 // of the decode engine
	pulled, computed              float64 // tokens of the prompt by source, of the decode engine
	expired, failed, failedNotice float64 // of both
}

func (c *counting) read(ctx context.Context) (m moves, err error) {
	p, err := c.prefill.page(ctx)
	if err != nil {
		return m, err
	}
	d, err := c.decode.page(ctx)
	if err != nil {
		return m, err
	}
	type source struct {
		into *float64
		page process.Page
		name string
		more []string
	}
	all := []source{
		{&m.prompt, p, "vllm:prompt_tokens_total", nil},
		{&m.generated, p, "vllm:generation_tokens_total", nil},
		{&m.hits, p, "vllm:prefix_cache_hits_total", nil},
		{&m.external, d, "vllm:external_prefix_cache_hits_total", nil},
		{&m.pulled, d, "vllm:prompt_tokens_by_source_total", []string{byPull}},
		{&m.computed, d, "vllm:prompt_tokens_by_source_total", []string{byCompute}},
	}
	if mover, ok := map[string]process.Page{"prefill": p, "decode": d}[c.t.fleet.opts.kv.moves]; ok {
		all = append(all, source{&m.transfers, mover, "vllm:nixl_xfer_time_seconds_count", nil},
			source{&m.expired, p, metricExpired, nil},
			source{&m.failed, d, "vllm:nixl_num_failed_transfers_total", nil},
			source{&m.failedNotice, d, "vllm:nixl_num_failed_notifications_total", nil})
	}
	for _, f := range all {
		if *f.into, err = f.page.Sum(f.name, f.more...); err != nil {
			return m, err
		}
	}
	return m, nil
}

func (m moves) since(b moves) moves {
	return moves{
		prompt: m.prompt - b.prompt, generated: m.generated - b.generated, hits: m.hits - b.hits,
		transfers: m.transfers - b.transfers, external: m.external - b.external, pulled: m.pulled - b.pulled, computed: m.computed - b.computed,
		expired: m.expired - b.expired, failed: m.failed - b.failed, failedNotice: m.failedNotice - b.failedNotice,
	}
}

// request is one of the two APIs with a prompt of about that many tokens.
func (c *counting) request(api string, tokens int, stream bool) request {
	body := map[string]any{"model": "tiny", "temperature": 0, "max_tokens": 4, "stream": stream}
	if stream {
		body["stream_options"] = map[string]any{"include_usage": true}
	}
	if api == chatPath {
		body["messages"] = []any{message("user", c.prompts.words(tokens))}
	} else {
		body["prompt"] = c.prompts.ids(tokens)
	}
	return c.numbered(api, body)
}

func (c *counting) numbered(api string, body map[string]any) request {
	text, err := json.Marshal(body)
	if err != nil {
		panic("BUG: body that is no JSON: " + err.Error())
	}
	c.sent++
	return request{path: api, id: fmt.Sprintf("e2e-3-%d", c.sent), body: text}
}

// pull returns what a request moves. Its prompt has n tokens, of which cached were in the prefill
// engine's cache. The decode engine has no output without a step for the last token. So it counts a
// prompt of one token as computed, although it has pulled the block. Of a folder it computes what does
// not lie there.
func (c *counting) pull(n, cached float64) moves {
	m := moves{prompt: n, generated: 1, hits: cached, transfers: 1, external: n, pulled: n}
	if kv := c.t.fleet.opts.kv; kv.moves == "" {
		found := float64(kv.stored(int(n)))
		m.transfers, m.external, m.pulled, m.computed = 0, found, found, n-found
	}
	if n == 1 {
		m.pulled, m.computed = 0, 1
	}
	return m
}

// fresh sends a prompt that no engine knows.
func (c *counting) fresh(ctx context.Context, api string, tokens int, stream bool) error {
	return c.judge(ctx, c.request(api, tokens, stream), func(n float64) moves { return c.pull(n, 0) }, 0)
}

// knownToPrefill sends a prompt that the prefill engine has in its cache and the decode engine does
// not. The answer must say so, whole or streamed.
func (c *counting) knownToPrefill(ctx context.Context, tokens int, stream bool) error {
	r := c.request(completionsPath, tokens, stream)
	var body map[string]any
	if err := json.Unmarshal(r.body, &body); err != nil {
		panic("BUG: " + err.Error())
	}
	first := c.numbered(completionsPath, map[string]any{"model": "tiny", "prompt": body["prompt"], "max_tokens": 1})
	if _, err := send(ctx, c.prefill.url, first); err != nil {
		return fmt.Errorf("send a prompt to %s: %w", c.prefill.name, err)
	}
	// The cache has whole blocks of 32, and never the last token, which must be computed to have an
	// output.
	cached := float64((tokens - 1) / 32 * 32)
	known := cached
	if kv := c.t.fleet.opts.kv; kv.store { // where the prefill engine looks too
		known = max(cached, float64(kv.stored(tokens)))
	}
	return c.judge(ctx, r, func(n float64) moves { return c.pull(n, cached) }, known)
}

// judge sends a request through xpyd. want returns what it must move, given its prompt's tokens, of which the prefill engine
// knew that many.
func (c *counting) judge(ctx context.Context, r request, want func(prompt float64) moves, known float64) error {
	if c.t.enough() {
		return errors.New("the rest is left out after so many failures")
	}
	if err := c.ledger.awaitIdle(ctx); err != nil {
		return err
	}
	before, err := c.settled(ctx)
	if err != nil {
		return err
	}
	a, err := send(ctx, c.xpyd.url, r)
	if err != nil {
		return fmt.Errorf("%s: %w", r.id, err)
	}
	if a.status != 200 || len(a.problems) > 0 {
		c.t.fail("%s: status %d: %.300v %v", r.id, a.status, a.content, a.problems)
		return nil
	}
	target := want(float64(a.promptTokens()))
	var got moves
	_ = poll(ctx, settleTime, func() bool { // a difference is judged below
		now, failed := c.read(ctx)
		got, err = now.since(before), failed
		return err != nil || got == target
	})
	if err != nil {
		return err
	}
	c.compare(r, a, got, target, known)
	if err := c.ledger.awaitIdle(ctx); err != nil {
		c.t.fail("%s: %v", r.id, err)
	}
	return ctx.Err()
}

// compare judges an answer. Where the legs start together, it may come before the prefill engine's, and then it has what the
// decode engine calls cached: the whole prompt. xpyd cuts the prefill leg at the end of the answer. An engine that is cut before
// it has answered counts nothing of the request. Both must be rare.
func (c *counting) compare(r request, a answer, got, want moves, known float64) {
	c.judged++
	cut := want
	cut.prompt, cut.generated, cut.hits = 0, 0, 0
	switch {
	case a.header.Get("X-Xpyd-Path") != "disaggregated":
		c.t.fail("%s: X-Xpyd-Path is %q", r.id, a.header.Get("X-Xpyd-Path"))
	case c.t.fleet.opts.kv.together && got == cut:
		c.early++
		c.t.pass()
	case got != want:
		c.t.fail("%s: the engines' figures moved by %+v, want %+v", r.id, got, want)
	case c.t.fleet.opts.kv.together && a.cached == json.Number(fmt.Sprint(a.promptTokens())) && a.cached != json.Number(fmt.Sprint(known)):
		c.early++
		c.t.pass()
	case a.cached != json.Number(fmt.Sprint(known)):
		c.t.fail("%s: cached_tokens is %v, want %v, which the prefill engine did not have to compute", r.id, a.cached, known)
	default:
		c.t.pass()
	}
}

// settled reads the figures when those of the request before have arrived. It waits for two
// readings that are equal.
func (c *counting) settled(ctx context.Context) (m moves, err error) {
	last := moves{prompt: -1}
	late := poll(ctx, settleTime, func() bool {
		if m, err = c.read(ctx); err != nil || m == last {
			return true
		}
		last = m
		return false
	})
	if err == nil {
		err = late
	}
	return m, err
}
