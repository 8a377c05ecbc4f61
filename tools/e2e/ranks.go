package main

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"time"
)

// In the check ranks, the prefill engine is one server with two data-parallel ranks. xpyd is not told how many
// it has. The server is killed, and comes back with one rank.

const (
	rankCount  = 2
	rankedStep = 6                // every sixth request of each kind
	goneStep   = 24               // while the server is down, and after it is back
	rankWait   = 30 * time.Second // for xpyd to see the server go and come
)

// ranked is a run of that check.
type ranked struct {
	*exactness
	server, decode *engine
	seed           uint64 // of the last requests
}

func ranks(ctx context.Context, t *trial) error {
	for _, s := range []spec{prefillEngine(2), decodeEngine(1)} { // rank 1 has the second one's side channel
		if err := newEngine(t.fleet, s).stop(ctx); err != nil {
			return err
		}
	}
	server := prefillEngine(1)
	server.ranks = rankCount
	t.say("starting engines")
	engines, err := t.fleet.all(ctx, plainEngine(), server, decodeEngine(2))
	if err != nil {
		return err
	}
	r := &ranked{exactness: newExactness(t, engines[0], nil), server: engines[1], decode: engines[2], seed: 2}
	for _, step := range []func(context.Context) error{r.probed, r.both, r.down, r.back} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// probed judges that xpyd finds the ranks of a server that has had no request, and sends a token through each.
func (r *ranked) probed(ctx context.Context) (err error) {
	out, err := r.t.fleet.command(ctx, "check", "--probe", "--listen", "127.0.0.1:8080", "--prefill", r.server.entry(), "--decode", r.decode.entry())
	for rank := range rankCount {
		r.t.judge(err == nil && strings.Contains(out, r.rank(rank)), "xpyd check --probe does not find %s: %v\n%s", r.rank(rank), err, out)
	}
	if err := r.server.warm(ctx); err != nil {
		return fmt.Errorf("first requests to %s: %w", r.server.name, err)
	}
	// Three engines that compute on a few cores answer a health check late, and their ranks are what this check is about.
	r.xpyd, err = r.t.fleet.proxyOf(ctx, []*engine{r.server, r.decode}, "--health-interval", "1s", "--health-timeout", "30s")
	return err
}

// rank is the URL of a rank, as xpyd shows it.
func (r *ranked) rank(n int) string { return fmt.Sprintf("%s@%d", r.server.url, n) }

// both judges the answers, and that each rank has computed the prefill legs that xpyd has given it.
func (r *ranked) both(ctx context.Context) error {
	before, err := r.legs(ctx)
	if err != nil {
		return err
	}
	if err := r.span(ctx, rankedStep, func() error { before, err = r.legs(ctx); return err }); err != nil {
		return err
	}
	for rank := range rankCount {
		var legs, computed float64
		_ = poll(ctx, settleTime, func() bool { // a difference is judged below
			var now []rankLegs
			now, err = r.legs(ctx)
			if err != nil {
				return true
			}
			legs, computed = now[rank].sent-before[rank].sent, now[rank].computed-before[rank].computed
			return legs == computed
		})
		if err != nil {
			return err
		}
		r.t.say("rank %d: %.0f prefill legs", rank, legs)
		r.t.judge(legs > 0 && legs == computed, "rank %d: xpyd counts %v prefill legs, and the engine %v", rank, legs, computed)
		r.shown(ctx, rank)
	}
	return ctx.Err()
}

// rankLegs are the prefill legs of one rank: those that xpyd has sent, and those that the engine has answered with
// its one token.
type rankLegs struct{ sent, computed float64 }

func (r *ranked) legs(ctx context.Context) (all []rankLegs, err error) {
	for rank := range rankCount {
		var n rankLegs
		if n.sent, err = r.sent(ctx, r.rank(rank)); err != nil {
			return nil, err
		}
		if n.computed, err = r.server.metric(ctx, "vllm:generation_tokens_total", engineLabel(rank)); err != nil {
			return nil, err
		}
		all = append(all, n)
	}
	return all, nil
}

// engineLabel is how a server's metrics name one of its ranks.
func engineLabel(rank int) string { return fmt.Sprintf("engine=%q", fmt.Sprint(rank)) }

// sent is how many prefill legs xpyd has had from a backend. Before the first leg of all it counts none.
func (r *ranked) sent(ctx context.Context, backend string) (float64, error) {
	page, err := r.xpyd.page(ctx)
	if err != nil || len(page.By("xpyd_leg_requests_total", "backend")) == 0 {
		return 0, err
	}
	return page.Sum("xpyd_leg_requests_total", fmt.Sprintf("backend=%q", backend), `leg="prefill"`, `outcome="ok"`)
}

// shown judges that xpyd shows the rank's own figures as those of the rank.
func (r *ranked) shown(ctx context.Context, rank int) {
	var own, shown float64
	err := poll(ctx, settleTime, func() bool {
		own, _ = r.server.metric(ctx, "vllm:prefix_cache_queries_total", engineLabel(rank))
		shown, _ = r.xpyd.metric("xpyd_engine_prefix_cache_queries_total", fmt.Sprintf("backend=%q", r.rank(rank)))
		return own > 0 && own == shown
	})
	r.t.judge(err == nil, "rank %d has looked up %v tokens, and xpyd shows %v", rank, own, shown)
}

// span sends requests, judges each answer, and then what engines and xpyd have counted meanwhile. begun is called
// before the first one.
func (r *ranked) span(ctx context.Context, step int, begun func() error) error {
	l, err := openLedger(ctx, r.t, r.xpyd, []*engine{r.server, r.decode})
	if err != nil {
		return err
	}
	if err := begun(); err != nil {
		return err
	}
	before := r.disaggregate
	if err := r.all(ctx, r.next(step)); err != nil {
		return err
	}
	r.t.say("%d requests took both legs", r.disaggregate-before)
	return l.close(ctx, r.disaggregate-before)
}

// next makes requests that no engine has had.
func (r *ranked) next(step int) []testCase {
	r.seed++
	return cases(r.seed, step, r.t.fleet.opts.kv)
}

// down kills the server. Without it decode answers alone.
func (r *ranked) down(ctx context.Context) error {
	if err := r.server.signal(syscall.SIGKILL); err != nil {
		return err
	}
	if err := r.awaitUp(ctx, map[string]float64{r.rank(0): 0, r.rank(1): 0}); err != nil {
		return err
	}
	list := r.next(goneStep)
	for i := range list {
		if list[i].reason == split {
			list[i].reason = "prefill_unavailable"
		}
	}
	return r.all(ctx, list)
}

// awaitUp waits until xpyd has just these prefill backends, each up or not.
func (r *ranked) awaitUp(ctx context.Context, want map[string]float64) error {
	var got map[string]float64
	err := poll(ctx, rankWait, func() bool {
		page, err := r.xpyd.page(ctx)
		if err != nil {
			return false
		}
		got = page.By("xpyd_backend_up", "backend")
		delete(got, r.decode.url)
		return fmt.Sprint(got) == fmt.Sprint(want)
	})
	if err != nil {
		return fmt.Errorf("await the prefill backends %v: %w: they are %v", want, err, got)
	}
	r.t.pass()
	return nil
}

// back starts the server with one rank. xpyd takes both ranks out, and the server as one backend in.
func (r *ranked) back(ctx context.Context) error {
	warm, err := r.xpyd.metric("xpyd_warmups_total", `result="ok"`)
	if err != nil {
		return err
	}
	if r.server, err = r.t.fleet.engine(ctx, prefillEngine(1)); err != nil {
		return err
	}
	if err := r.awaitUp(ctx, map[string]float64{r.server.url: 1}); err != nil {
		return err
	}
	if err := poll(ctx, time.Minute, func() bool {
		now, _ := r.xpyd.metric("xpyd_warmups_total", `result="ok"`)
		return now > warm
	}); err != nil {
		return fmt.Errorf("await the warm-up of the server with one rank: %w", err)
	}
	if err := r.span(ctx, goneStep, func() error { return nil }); err != nil {
		return err
	}
	legs, err := r.sent(ctx, r.server.url)
	r.t.judge(err == nil && legs > 0, "the server with one rank had %v prefill legs: %v", legs, err)
	return ctx.Err()
}
