package main

import (
	"context"
	"fmt"
	"sync"
)

// logprobTolerance allows for the last bits of a float32 sum, which depend on its order. A
// processor's kernels may choose the order by what else is in an engine's batch. Where this was
// written not a bit differed. Texts, token ids and the rest must be the same anywhere.
const logprobTolerance = 1e-4

// exactWorkers is the number of requests under way at a time, so that engines have batches.
const exactWorkers = 8

// exactOneOne compares more than 300 requests through one prefill and one decode engine
// with one engine that works alone.
func exactOneOne(ctx context.Context, t *trial) error {
	return exact(ctx, t, cases(1, 1, t.fleet.opts.kv), prefillEngine(1), decodeEngine(1))
}

// exactTwoOne compares a part with two prefill engines.
func exactTwoOne(ctx context.Context, t *trial) error {
	return exact(ctx, t, cases(2, 2, t.fleet.opts.kv), prefillEngine(1), prefillEngine(2), decodeEngine(1))
}

// exactness is one such comparison.
type exactness struct {
	t            *trial
	plain        *engine
	xpyd         *proxy
	mu           sync.Mutex
	worst        float64 // difference of logprobs
	least, most  int64   // tokens of a prompt
	disaggregate int     // requests that took both legs
}

func exact(ctx context.Context, t *trial, list []testCase, specs ...spec) error {
	t.say("starting engines")
	engines, err := t.fleet.all(ctx, append([]spec{plainEngine()}, specs...)...)
	if err != nil {
		return err
	}
	proxy, err := t.fleet.proxyOf(ctx, engines[1:], "--health-timeout", "1m") // answers are compared, and engines without a core of their own may stand still
	if err != nil {
		return err
	}
	x := newExactness(t, engines[0], proxy)
	s, err := openLedger(ctx, t, x.xpyd, engines[1:])
	if err != nil {
		return err
	}
	t.say("%d requests through xpyd and to %s, %d at a time", len(list), x.plain.name, exactWorkers)
	if err := x.all(ctx, list); err != nil {
		return err
	}
	t.say("prompts of %d to %d tokens, %d requests took both legs; logprobs differ by at most %.1e", x.least, x.most, x.disaggregate, x.worst)
	if least := t.fleet.opts.kv.shortest(); len(list) > 300 && (x.least > least || x.most < 1500) {
		t.fail("prompts were %d to %d tokens long, want %d to 1,500", x.least, x.most, least)
	}
	return s.close(ctx, x.disaggregate)
}

func newExactness(t *trial, plain *engine, x *proxy) *exactness {
	return &exactness{t: t, plain: plain, xpyd: x, least: 1 << 30}
}

func (x *exactness) all(ctx context.Context, list []testCase) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	next := make(chan testCase)
	var wg sync.WaitGroup
	for range exactWorkers {
		wg.Go(func() {
			for c := range next {
				if ctx.Err() != nil {
					continue // nothing can be compared any more
				}
				if err := x.one(ctx, c); err != nil {
					stop(err)
				}
			}
		})
	}
	for i, c := range list {
		if i%100 == 99 {
			x.t.say("%d of %d", i+1, len(list))
		}
		next <- c
	}
	close(next)
	wg.Wait()
	return context.Cause(ctx)
}

// one judges a case. An error comes from the engine that works alone, and nothing can then be
// compared.
func (x *exactness) one(ctx context.Context, c testCase) error {
	want, err := send(ctx, x.plain.url, c.request)
	if err != nil {
		return fmt.Errorf("%v: %s: %w", c, x.plain.name, err)
	}
	if want.status >= 500 {
		return fmt.Errorf("%v: %s answers %d: %.300v", c, x.plain.name, want.status, want.content)
	}
	if want.status != c.status || len(want.problems) > 0 {
		x.t.fail("%v: %s answers %d, want %d: %.300v %v", c, x.plain.name, want.status, c.status, want.content, want.problems)
		return nil
	}
	got, err := send(ctx, x.xpyd.url, c.request)
	if err != nil {
		x.t.fail("%v: %v", c, err)
		return nil
	}
	if diffs := x.diffs(c, want, got); len(diffs) > 0 {
		for _, d := range diffs {
			x.t.say("  %s", d)
		}
		x.t.fail("%v: %d differences", c, len(diffs))
		return nil
	}
	x.note(want, got)
	x.t.pass()
	return nil
}

// diffs returns what is wrong with an answer of xpyd's.
func (x *exactness) diffs(c testCase, want, got answer) []string {
	cmp := &comparison{tolerance: logprobTolerance}
	if got.status != want.status {
		cmp.diffs = append(cmp.diffs, fmt.Sprintf("status %d, want %d: %.300v", got.status, want.status, got.content))
		return cmp.diffs
	}
	cmp.diffs = append(cmp.diffs, got.problems...)
	cmp.compare("answer", want.content, got.content)
	for name, value := range map[string]string{"X-Request-Id": c.id, "X-Xpyd-Path": c.takes(), "X-Xpyd-Reason": c.reason, "Content-Type": want.header.Get("Content-Type")} {
		if is := got.header.Get(name); is != value {
			cmp.diffs = append(cmp.diffs, fmt.Sprintf("%s: %q, want %q", name, is, value))
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.worst = max(x.worst, cmp.worst)
	return cmp.diffs
}

// takes returns the path of the case's requests.
func (c testCase) takes() string {
	if c.reason == split {
		return "disaggregated"
	}
	return "decode_only"
}

func (x *exactness) note(want, got answer) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if n := want.promptTokens(); n > 0 {
		x.least, x.most = min(x.least, n), max(x.most, n)
	}
	if got.status == 200 && got.header.Get("X-Xpyd-Path") == "disaggregated" {
		x.disaggregate++
	}
}
