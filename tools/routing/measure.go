package routing

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"xpyd/tools/process"
)

// measure sends a scenario through a contender. It returns the first errors of requests with the
// figures.
func (o *Options) measure(ctx context.Context, s *scenario, c contender) (f figures, problems []string, err error) {
	dir, err := os.MkdirTemp(o.Out, "run-")
	if err != nil {
		return nil, nil, fmt.Errorf("make a directory for %s: %w", c.name, err)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, nil, fmt.Errorf("find the directory of %s: %w", c.name, err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	plan := enginePlan{Prefill: s.on.prefill, Decode: s.on.decode, Each: s.engines}
	if c.onePool {
		plan.Prefill, plan.Decode = 0, plan.Prefill+plan.Decode
	}
	engines, pools, err := startEngines(ctx, o.Self, dir, plan)
	if err != nil {
		return nil, nil, err
	}
	defer engines.Stop()
	proxy, addr, err := c.start(ctx, dir, pools)
	if err != nil {
		return nil, nil, err
	}
	defer proxy.Stop()
	begin, err := takeCensus(ctx, pools)
	if err != nil {
		return nil, nil, err
	}
	start := time.Now().Add(200 * time.Millisecond)
	beside, end := context.WithCancel(ctx)
	defer end()
	events := make(chan error, 1)
	var then census
	go func() { events <- s.accompany(beside, pools, start, &then) }()
	answers := drive(ctx, addr, s.requests, start, c.sessions)
	if err := errors.Join(<-events, ctx.Err()); err != nil {
		return nil, nil, err
	}
	now, err := takeCensus(ctx, pools)
	if err != nil {
		return nil, nil, err
	}
	f, problems = s.figures(answers, start)
	f.count(then, now)
	whole := figures{}
	whole.count(begin, now)
	return f, append(problems, s.doubt(answers, whole[computedTokens])...), nil
}

// accompany does what happens beside a scenario's requests: the census when the caches are warm,
// and slower transfers.
func (s *scenario) accompany(ctx context.Context, pools process.Pools, start time.Time, then *census) (err error) {
	if !process.SleepUntil(ctx, start.Add(s.warm)) {
		return ctx.Err()
	}
	if *then, err = takeCensus(ctx, pools); err != nil || s.slower == 0 {
		return err
	}
	if !process.SleepUntil(ctx, start.Add(s.slower)) {
		return ctx.Err()
	}
	for _, addr := range slices.Concat(pools.Prefill, pools.Decode) {
		if err := setTransfer(ctx, addr, 10*s.engines.Transfer); err != nil {
			return err
		}
	}
	return nil
}

// setTransfer changes how long pulling a block takes on a running engine.
func setTransfer(ctx context.Context, addr string, each time.Duration) error {
	if _, err := process.Post(ctx, "http://"+addr+"/sim/speed", fmt.Appendf(nil, `{"transfer_per_block":%q}`, each)); err != nil {
		return fmt.Errorf("slow the transfers of an engine down: %w", err)
	}
	return nil
}

// doubt compares what all answers say about cached tokens with the engines' counters. They differ
// if prompts were computed twice, and by what a proxy sends by itself.
func (s *scenario) doubt(answers []answer, counted float64) []string {
	told := 0
	for i := range answers {
		if answers[i].err != nil {
			return nil // its prompt may have been computed
		}
		told += s.requests[i].tokens - answers[i].cached
	}
	own := ownPrompts * s.on.prefill * s.on.decode
	if off := math.Abs(counted - float64(told)); off > 0.02*float64(told)+float64(own) {
		return []string{fmt.Sprintf("the engines have computed %.0f prompt tokens by their counters, %d by their answers", counted, told)}
	}
	return nil
}

// figures returns what the clients have seen of requests that came after the caches were warm. TTFT
// counts from when a request was due, so a client that is late itself does not make it shorter.
func (s *scenario) figures(answers []answer, start time.Time) (figures, []string) {
	f := figures{failed: 0}
	var problems []string
	var ttft, tpot, delay []time.Duration
	var tokens, counted, alone, prompts, cached int
	var end time.Time
	for i := range answers {
		a, q := &answers[i], &s.requests[i]
		if q.at < s.warm {
			continue
		}
		if a.err != nil {
			f[failed]++
			problems = append(problems, a.err.Error())
			continue
		}
		counted++
		ttft = append(ttft, a.first.Sub(start.Add(q.at)))
		tpot = append(tpot, a.last.Sub(a.first)/time.Duration(max(1, q.output-1)))
		delay = append(delay, a.sent.Sub(start.Add(q.at)))
		tokens += a.tokens
		prompts += q.tokens
		cached += a.cached
		if a.path == pathDecodeOnly {
			alone++
		}
		if a.last.After(end) {
			end = a.last
		}
	}
	f.putTTFT(ttft)
	slices.Sort(tpot)
	slices.Sort(delay)
	f[tpot90], f[late] = percentile(tpot, 90), percentile(delay, 99)
	f[hits] = 100 * ratio(float64(cached), float64(prompts))
	f[tokensS] = ratio(float64(tokens), end.Sub(start.Add(s.warm)).Seconds())
	if counted > 0 && answers[len(answers)-1].path != "" {
		f[direct] = 100 * float64(alone) / float64(counted)
	}
	if s.slower > 0 {
		f.follow(s, answers, start)
	}
	slices.Sort(problems)
	return f, slices.Compact(problems)
}

// ownPrompts is how many tokens a proxy may have computed for each pair of engines, to warm it up
// and to check it.
const ownPrompts = 150

// pathDecodeOnly is what X-Xpyd-Path says of a request that passed no prefill engine.
const pathDecodeOnly = "decode_only"
