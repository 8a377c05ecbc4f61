package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// The check free: how soon the prefill engine's blocks are free after each thing that may
// happen to them. docs/results/engines.md has its table.

const (
	freeTokens = 1500             // of each prompt, so that P computes for a while
	freeBound  = 10 * time.Second // a block that is pinned for longer waits for its lease of 30 s
	freeSoon   = 4 * time.Second  // the same if a lease may have to be waited for
	freeTimes  = 4                // samples of a row
)

// freeRow is one line of the table.
type freeRow struct {
	name  string
	times int
	// lease says why blocks may wait for their lease. It is "" if none may.
	lease string
	// event gets blocks pinned and then does what the row is about. It returns when that was.
	event func(ctx context.Context, n int) (time.Time, error)
	took  []time.Duration // sorted; of samples that did not wait
	waits int
}

// freer measures on one pair, directly and through xpyd.
type freer struct {
	t       *trial
	p, d    *engine
	x       *proxy
	hasty   *proxy        // gives P up almost at once
	prefill time.Duration // what P takes for freeTokens
	asked   int
}

func free(ctx context.Context, t *trial) error {
	engines, err := t.fleet.all(ctx, prefillEngine(1), decodeEngine(1))
	if err != nil {
		return err
	}
	f := &freer{t: t, p: engines[0], d: engines[1]}
	if _, err := openBooks(ctx, f.p, f.d); err != nil {
		return err
	}
	if f.x, err = t.fleet.proxyOf(ctx, engines, "--timeouts-prefill-abort-grace", "20s"); err != nil {
		return err
	}
	if f.hasty, err = t.fleet.proxyOf(ctx, engines, "--timeouts-prefill-abort-grace", "10ms"); err != nil {
		return err
	}
	if err := f.timePrefill(ctx); err != nil {
		return err
	}
	rows := f.rows()
	for _, r := range rows {
		if err := f.measure(ctx, r); err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
	}
	printFree(rows)
	return xpydSettled(ctx, t, f.x)
}

// timePrefill measures how long P takes. It uses the last of a few.
func (f *freer) timePrefill(ctx context.Context) error {
	var took []time.Duration
	for range 5 {
		start := time.Now()
		h, err := f.pin(ctx)
		if err != nil {
			return err
		}
		took = append(took, time.Since(start))
		if _, err := f.post(ctx, f.d, h.reject()); err != nil {
			return err
		}
	}
	slices.Sort(took)
	f.prefill = took[len(took)/2]
	f.t.say("P takes %d ms for %d tokens", f.prefill.Milliseconds(), freeTokens)
	_, err := awaitUse(ctx, f.p, 0, time.Now().Add(freeBound))
	return err
}

// measure takes the samples of a row.
func (f *freer) measure(ctx context.Context, r *freeRow) error {
	for n := range r.times {
		base, err := f.p.metric(ctx, metricUse)
		if err != nil {
			return err
		}
		at, err := r.event(ctx, n)
		if err != nil {
			return err
		}
		bound := freeBound
		if r.lease != "" {
			bound = freeSoon
		}
		took, free, err := f.freed(ctx, base, at, bound)
		switch {
		case err != nil:
			return err
		case free:
			r.took = append(r.took, took)
		default:
			r.waits++
		}
		f.t.judge(free || r.lease != "", "%s: blocks are still pinned %v later", r.name, bound)
	}
	slices.Sort(r.took)
	return nil
}

// freed waits until no more of P's blocks are in use than base says. P reports its state after its
// last step, which may be before it had the request. So the answer counts only if it is the same
// after one more request to P, and xpyd has nothing under way.
func (f *freer) freed(ctx context.Context, base float64, at time.Time, bound time.Duration) (time.Duration, bool, error) {
	for time.Since(at) < bound {
		free, err := awaitUse(ctx, f.p, base, at.Add(bound))
		took := time.Since(at)
		if err != nil || !free {
			return 0, false, err
		}
		if err := f.xpydIdle(ctx); err != nil {
			return 0, false, err
		}
		if _, err := f.post(ctx, f.p, ask{prompt: randomPrompt(2), tokens: 1}.body(nil)); err != nil {
			return 0, false, err
		}
		if use, err := f.p.metric(ctx, metricUse); err != nil || use <= base {
			return took, err == nil, err
		}
	}
	return 0, false, nil
}

func (f *freer) xpydIdle(ctx context.Context) error {
	return poll(ctx, freeBound, func() bool {
		for _, x := range []*proxy{f.x, f.hasty} {
			if n, err := x.metric("xpyd_in_flight"); err != nil || n != 0 {
				return false
			}
		}
		return true
	})
}

// post sends a request to an engine and returns its answer.
func (f *freer) post(ctx context.Context, e *engine, body []byte) (int, error) {
	v, err := f.send(ctx, e.url, body)
	if err != nil {
		return 0, err
	}
	defer v.close()
	status, _, err := v.whole()
	return status, err
}

func (f *freer) send(ctx context.Context, url string, body []byte) (*visit, error) {
	f.asked++
	return call(ctx, url, "/v1/completions", fmt.Sprintf("free-%04d", f.asked), body)
}

// pinned is a prompt whose blocks P holds, and the handle to them.
type pinned struct {
	ask    ask
	handle json.RawMessage
}

// pin makes P compute a prompt and hold its blocks.
func (f *freer) pin(ctx context.Context) (h pinned, err error) {
	h.ask = ask{prompt: randomPrompt(freeTokens), tokens: 1}
	v, err := f.send(ctx, f.p.url, h.ask.body(map[string]any{"kv_transfer_params": prefillParams()}))
	if err != nil {
		return h, err
	}
	defer v.close()
	status, body, err := v.whole()
	if err != nil {
		return h, err
	}
	var answer struct {
		KV json.RawMessage `json:"kv_transfer_params"`
	}
	if err := json.Unmarshal(body, &answer); err != nil || status != http.StatusOK || len(answer.KV) < 10 {
		return h, errors.Join(fmt.Errorf("no handle from P, status %d", status), err)
	}
	h.handle, h.ask.tokens = answer.KV, 20
	return h, f.seesPinned(ctx)
}

// seesPinned waits until P's metrics show the blocks. Otherwise their absence would prove nothing.
func (f *freer) seesPinned(ctx context.Context) error {
	err := poll(ctx, freeSoon, func() bool {
		use, err := f.p.metric(ctx, metricUse)
		return err == nil && use > 0.1
	})
	if err != nil {
		return errors.New("no blocks in use on P, by its own metric")
	}
	return nil
}

func prefillParams() map[string]any {
	return map[string]any{"do_remote_decode": true, "do_remote_prefill": false}
}

// The requests to D that a handle may meet: the prompt's own, one for one token, and one that
// D refuses.
func (h pinned) decode() []byte {
	return h.ask.body(map[string]any{"kv_transfer_params": h.handle})
}

func (h pinned) drain() []byte {
	return h.ask.body(map[string]any{"kv_transfer_params": h.handle, "max_tokens": 1})
}

func (h pinned) reject() []byte {
	return ask{}.body(map[string]any{"kv_transfer_params": h.handle, "prompt": "a", "max_tokens": 0})
}
