package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"
)

// These are the chats of the check, and the tokens of their first turns. They are far above a block
// of the router's table, so that most of a turn should be found again.
const (
	routedChats = 12
	firstTurn   = 700
	secondTurn  = 300 // more; the decode engine has the rest, and if fewer than the threshold are missing the turn goes there alone
)

// shortPrompts are below routedThreshold tokens.
const (
	shortPrompts    = 6
	routedThreshold = 100
)

// routing judges the choice of engines by what the engines count themselves. The second turn of a
// chat finds the blocks of its first on the prefill engine that has them. A prompt below the
// threshold never reaches a prefill engine.
func routing(ctx context.Context, t *trial) error {
	t.say("starting engines")
	engines, err := t.fleet.all(ctx, prefillEngine(1), prefillEngine(2), decodeEngine(1))
	if err != nil {
		return err
	}
	x, err := t.fleet.proxyOf(ctx, engines, "--prefill-policy", "prefix", "--pd-threshold-tokens", fmt.Sprint(routedThreshold))
	if err != nil {
		return err
	}
	l, err := openLedger(ctx, t, x, engines)
	if err != nil {
		return err
	}
	r := &routed{t: t, xpyd: x, prefill: engines[:2], ledger: l, prompts: newPrompts(uint64(time.Now().UnixNano()))}
	chats := make([]*chat, routedChats)
	var wg sync.WaitGroup
	for i := range chats {
		chats[i] = &chat{n: i, messages: []any{message("user", r.prompts.words(firstTurn))}}
		wg.Go(func() { chats[i].err = r.turn(ctx, chats[i], 1) })
	}
	wg.Wait()
	for _, c := range chats {
		if c.err != nil {
			return c.err
		}
	}
	for _, c := range chats {
		if err := r.second(ctx, c); err != nil {
			return err
		}
	}
	if err := r.bothUsed(ctx); err != nil {
		return err
	}
	for i := range shortPrompts {
		if err := r.short(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

// routed is a run of that check.
type routed struct {
	t       *trial
	xpyd    *proxy
	prefill []*engine
	ledger  *ledger
	prompts *prompts
}

// chat is one conversation.
type chat struct {
	n        int
	messages []any
	tokens   int64 // of the last turn's prompt
	err      error
}

// turn sends the chat and appends the answer to it.
func (r *routed) turn(ctx context.Context, c *chat, n int) error {
	a, err := r.send(ctx, fmt.Sprintf("e2e-route-%d-%d", c.n, n), chatPath, map[string]any{"messages": c.messages, "max_tokens": 8})
	if err != nil {
		return err
	}
	c.tokens = a.promptTokens()
	var reply struct {
		Choices []struct{ Message any }
	}
	if err := json.Unmarshal([]byte(asJSON(a.content)), &reply); err != nil || len(reply.Choices) == 0 {
		return fmt.Errorf("read turn %d of chat %d: %.200v", n, c.n, a.content)
	}
	c.messages = append(c.messages, reply.Choices[0].Message, message("user", r.prompts.words(secondTurn)))
	return nil
}

func asJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic("BUG: an answer that is no JSON: " + err.Error())
	}
	return string(text)
}

func (r *routed) send(ctx context.Context, id, path string, body map[string]any) (answer, error) {
	body["model"], body["temperature"] = "tiny", 0
	text, err := json.Marshal(body)
	if err != nil {
		panic("BUG: body that is no JSON: " + err.Error())
	}
	a, err := send(ctx, r.xpyd.url, request{path: path, id: id, body: text})
	switch {
	case err != nil:
		return a, fmt.Errorf("%s: %w", id, err)
	case a.status != 200 || len(a.problems) > 0:
		return a, fmt.Errorf("%s: status %d: %.300v %v", id, a.status, a.content, a.problems)
	}
	return a, nil
}

// count reads a counter of both prefill engines.
func (r *routed) count(ctx context.Context, name string) (all [2]float64, err error) {
	for i, e := range r.prefill {
		if all[i], err = e.metric(ctx, name); err != nil {
			return all, err
		}
	}
	return all, nil
}

// second sends the second turn, alone. One engine finds at least nine tenths of the first turn's
// whole blocks in its cache. The other one gets no request.
func (r *routed) second(ctx context.Context, c *chat) error {
	const queries, hits = "vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total"
	first := c.tokens
	asked, err := r.count(ctx, queries)
	if err != nil {
		return err
	}
	found, err := r.count(ctx, hits)
	if err != nil {
		return err
	}
	if err := r.turn(ctx, c, 2); err != nil {
		return err
	}
	want := 0.9 * float64(first/32*32)
	var nowAsked, nowFound [2]float64
	late := poll(ctx, settleTime, func() bool {
		if nowAsked, err = r.count(ctx, queries); err != nil {
			return true
		}
		nowFound, err = r.count(ctx, hits)
		return err != nil || nowAsked != asked
	})
	if err != nil {
		return err
	}
	if late != nil {
		r.t.fail("chat %d: no prefill engine counted its second turn", c.n)
		return ctx.Err()
	}
	for i := range r.prefill {
		switch q, h := nowAsked[i]-asked[i], nowFound[i]-found[i]; {
		case q == 0:
		case h < want:
			r.t.fail("chat %d: %s found %.0f of %.0f tokens of the second turn in its cache; the first had %d", c.n, r.prefill[i].name, h, q, first)
		default:
			r.t.pass()
		}
	}
	return nil
}

// bothUsed judges that chats without anything in common go to both engines.
func (r *routed) bothUsed(ctx context.Context) error {
	for _, e := range r.prefill {
		n, err := r.xpyd.metric("xpyd_leg_requests_total", `backend="`+e.url+`"`, `outcome="ok"`)
		if err != nil {
			return err
		}
		if n < routedChats/4*2 {
			r.t.fail("%s had %.0f of %d turns", e.name, n, 2*routedChats)
			continue
		}
		r.t.pass()
	}
	return nil
}

// short sends a prompt below the threshold.
func (r *routed) short(ctx context.Context, i int) error {
	if err := r.ledger.awaitIdle(ctx); err != nil {
		return err
	}
	before, err := r.count(ctx, "vllm:prompt_tokens_total")
	if err != nil {
		return err
	}
	a, err := r.send(ctx, fmt.Sprintf("e2e-route-short-%d", i), completionsPath,
		map[string]any{"prompt": r.prompts.ids(10 + 10*i), "max_tokens": 4, "stream": i%2 == 1})
	if err != nil {
		return err
	}
	if err := r.ledger.awaitIdle(ctx); err != nil {
		return err
	}
	after, err := r.count(ctx, "vllm:prompt_tokens_total")
	if err != nil {
		return err
	}
	path, reason := a.header.Get("X-Xpyd-Path"), a.header.Get("X-Xpyd-Reason")
	if path != "decode_only" || reason != "short_prompt" || before != after {
		r.t.fail("a prompt of %d tokens: %s, %s; the prefill engines' prompt tokens went from %v to %v", 10+10*i, path, reason, before, after)
		return nil
	}
	r.t.pass()
	return nil
}
