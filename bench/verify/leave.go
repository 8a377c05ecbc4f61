package verify

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"
)

// longAnswer is the length in tokens of an answer whose client leaves. An engine takes longer to
// generate it than the client stays.
const longAnswer = 4096

// clientLeaves makes clients leave in the middle of a stream and before any answer. Both pools must
// stop working for them, and free their blocks.
func (r *run) clientLeaves(ctx context.Context) Row {
	var bodies []map[string]any
	total, tokens := 0, 0
	for _, stream := range []bool{true, true, false} {
		said := r.prompt(longPrompt)
		a, err := r.alone(ctx, completions, r.greedy(completions, said, 1)) // counts the prompt's tokens
		if err != nil {
			return failed(err)
		}
		total, tokens = total+a.usage.Prompt, longAnswer
		if r.room > 0 {
			tokens = min(longAnswer, r.room-a.usage.Prompt-1)
		}
		bodies = append(bodies, with(with(r.greedy(completions, said, tokens), "ignore_eos", true), "stream", stream))
	}
	before, err := r.quiet(ctx)
	if err != nil {
		return failed(err)
	}
	var stayed time.Duration
	for i, body := range bodies {
		came := time.Now()
		if err := r.leave(ctx, body, i == 0); err != nil {
			return failed(err)
		}
		stayed = max(stayed, time.Since(came))
	}
	start := time.Now()
	now, err := r.await(ctx, r.Settle, func(now reading) bool { return now.idle() && now.free(before) })
	if err != nil {
		return failed(err)
	}
	row := r.judgeLeave(now, before, float64(len(bodies)), float64(total), time.Since(start))
	if row.State != Fail || !now.idle() || !now.free(before) || !ranOutOf(now, before) {
		return row
	}
	if whole, err := r.wholeAnswer(ctx, tokens); err == nil && whole < stayed+noticed {
		return open("decode makes an answer of %d tokens in %v, before it can hear that a client left after %v", tokens, whole.Round(time.Millisecond), stayed.Round(time.Millisecond))
	}
	return row
}

// noticed is how long it may take until decode aborts the request of a client that has left.
const noticed = 500 * time.Millisecond

// ranOutOf reports that decode went on to the last token of some answer.
func ranOutOf(now, before reading) bool {
	return since(now.decode, before.decode).value[ranOut] > 0
}

// wholeAnswer measures how long decode takes for an answer of that many tokens.
func (r *run) wholeAnswer(ctx context.Context, tokens int) (time.Duration, error) {
	start := time.Now()
	_, err := r.alone(ctx, completions, with(r.greedy(completions, r.prompt(longPrompt), tokens), "ignore_eos", true))
	return time.Since(start), err
}

// leave sends a request and leaves: after three events, or at once.
func (r *run) leave(ctx context.Context, body map[string]any, stays bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req, err := r.request(ctx, call{base: r.URL, path: completions, key: r.Key, id: "xpyd-verify-leaves-" + rand.Text(), body: text(body)})
	if err != nil {
		return err
	}
	if !stays {
		time.AfterFunc(30*time.Millisecond, cancel)
	}
	resp, err := r.http.Do(req)
	if errors.Is(err, context.Canceled) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	in := bufio.NewReader(resp.Body)
	for range 3 {
		if _, err := nextEvent(in); err != nil && stays {
			return fmt.Errorf("the stream of a client that is about to leave: %w", err)
		}
	}
	return nil
}

// free reports that the engines hold no more blocks than before.
func (n reading) free(before reading) bool {
	const hair = 1e-6
	p, d := since(n.prefill, before.prefill), since(n.decode, before.decode)
	return p.value[usedKV] < hair && d.value[usedKV] < hair
}

func (r *run) judgeLeave(now, before reading, clients, tokens float64, took time.Duration) Row {
	p, d := since(now.prefill, before.prefill), since(now.decode, before.decode)
	foreign := func(x page) bool {
		return x.value[prompt] > tokens || x.value[finished] > clients || x.value[running]+x.value[waiting] > clients
	}
	switch {
	case foreign(p) || foreign(d):
		return failed(busy("%v requests were sent, and the engines had more", clients))
	case !now.idle():
		return bad("%.0f s after their clients left prefill still works on %v requests and decode on %v",
			took.Seconds(), p.value[running]+p.value[waiting], d.value[running]+d.value[waiting])
	case ranOutOf(now, before):
		return bad("decode went on to the last token for %v clients that had left", d.value[ranOut])
	case !now.free(before):
		return bad("%.0f s after their clients left prefill holds %.2f %% more of its KV blocks than before, decode %.2f %%",
			took.Seconds(), 100*p.value[usedKV], 100*d.value[usedKV])
	}
	return good("%v clients left; %.1f s later nothing ran, and no block was held", clients, took.Seconds())
}

// rejected sends a limit of tokens that only decode refuses, because a prefill leg has a limit of one
// token. The client must get decode's own error, and the prefill's blocks must be given back.
func (r *run) rejected(ctx context.Context) Row {
	before, err := r.quiet(ctx)
	if err != nil {
		return failed(err)
	}
	for _, stream := range []bool{false, true} {
		body := r.greedy(completions, r.prompt(longPrompt), 100_000_000)
		if stream {
			body = streamed(body)
		}
		want, row := r.same(ctx, completions, body)
		switch {
		case row != nil:
			return *row
		case want.status/100 != 4:
			return open("decode alone answers %d to a limit of 100,000,000 tokens, want a 4xx", want.status)
		}
	}
	start := time.Now()
	now, err := r.await(ctx, r.Settle, func(now reading) bool { return now.idle() && now.free(before) })
	if err != nil {
		return failed(err)
	}
	p, d := since(now.prefill, before.prefill), since(now.decode, before.decode)
	switch {
	case p.value[finished] > 2 || d.value[finished] > 0:
		return failed(busy("while 2 requests were refused, prefill finished %v and decode %v", p.value[finished], d.value[finished]))
	case !now.free(before):
		return bad("%.0f s after the answers prefill holds %.2f %% more of its KV blocks than before", time.Since(start).Seconds(), 100*p.value[usedKV])
	}
	return good("the error is decode's own, whole and streamed; no block was held %.1f s later", time.Since(start).Seconds())
}
