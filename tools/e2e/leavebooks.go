package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// books is what engines say about blocks that waited for their lease, before a check.
type books struct {
	engines []*engine
	expired []float64
}

// These are metrics of an engine: the share of its blocks in use, including what is pinned, and
// requests whose lease ran out.
const (
	metricUse     = "vllm:kv_cache_usage_perc"
	metricExpired = "vllm:nixl_num_kv_expired_reqs_total"
)

func openBooks(ctx context.Context, engines ...*engine) (b books, err error) {
	b = books{engines: engines, expired: make([]float64, len(engines))}
	if err := idle(ctx, engines...); err != nil {
		return b, err
	}
	for i, e := range engines {
		if b.expired[i], err = e.expired(ctx); err != nil {
			return b, err
		}
	}
	return b, nil
}

// expired counts requests whose lease ran out. Where nothing is pinned there are no leases.
func (e *engine) expired(ctx context.Context) (float64, error) {
	if e.fleet.opts.kv.moves == "" {
		return 0, nil
	}
	return e.metric(ctx, metricExpired)
}

// leaseWait is vLLM's default, and a little more.
const leaseWait = 35 * time.Second

// idle waits until no engine has blocks in use, because an earlier check may have left some to
// their lease on purpose.
func idle(ctx context.Context, engines ...*engine) error {
	until := time.Now().Add(leaseWait)
	for _, e := range engines {
		if free, err := awaitUse(ctx, e, 0, until); err != nil {
			return err
		} else if !free {
			return fmt.Errorf("%s has blocks in use before the check begins", e.name)
		}
	}
	return nil
}

// close judges that no engine has blocks in use by the time given, and that none has waited
// for a lease since the books were opened.
func (b books) close(ctx context.Context, t *trial, since time.Time, within time.Duration) error {
	for i, e := range b.engines {
		free, err := awaitUse(ctx, e, 0, since.Add(within))
		if err != nil {
			return err
		}
		if took := time.Since(since); free {
			t.say("%s has no block in use %.2f s after the last client", e.name, took.Seconds())
			t.pass()
		} else {
			t.fail("%s has blocks in use %.2f s after the last client", e.name, took.Seconds())
		}
		expired, err := e.expired(ctx)
		if err != nil {
			return err
		}
		t.judge(expired == b.expired[i], "leases that ran out on %s: %v, before %v", e.name, expired, b.expired[i])
	}
	return nil
}

// awaitUse asks until at most that share of the blocks is in use, or the time is over.
func awaitUse(ctx context.Context, e *engine, most float64, until time.Time) (bool, error) {
	for {
		use, err := e.metric(ctx, metricUse)
		if err != nil || use <= most {
			return use <= most, err
		}
		if time.Now().After(until) {
			return false, nil
		}
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// judge counts a case, and prints what is wrong if it did not hold.
func (t *trial) judge(held bool, format string, args ...any) {
	if held {
		t.pass()
	} else {
		t.fail(format, args...)
	}
}

// settle waits until xpyd is done with all clients, and judges what is left.
func (l *leaver) settle(ctx context.Context, b books) error {
	if err := b.close(ctx, l.t, l.last, leaveFree); err != nil {
		return err
	}
	if err := xpydSettled(ctx, l.t, l.x); err != nil {
		return err
	}
	if err := nothingRuns(ctx, l.t, l.p, l.d); err != nil {
		return err
	}
	twice, all := usedTwice(l.rd[:]...)
	l.t.judge(len(twice) == 0 && all > 0 == l.t.fleet.opts.kv.names(), "of %d handles these went to a decode engine twice: %v", all, twice)
	l.t.judge(len(l.left) >= departures, "%d clients left, not %d", len(l.left), departures)
	return l.report()
}

// nothingRuns judges that engines work for nobody, and have no request in a queue.
func nothingRuns(ctx context.Context, t *trial, engines ...*engine) error {
	for _, e := range engines {
		var running, waiting float64
		var failed error
		err := poll(ctx, leaveFree, func() bool {
			var of [2]error
			running, of[0] = e.metric(ctx, "vllm:num_requests_running")
			waiting, of[1] = e.metric(ctx, "vllm:num_requests_waiting")
			failed = errors.Join(of[:]...)
			return failed != nil || running+waiting == 0
		})
		if failed != nil {
			return failed
		}
		t.judge(err == nil, "%s runs %v requests, and %v wait, after the last client has left", e.name, running, waiting)
	}
	return nil
}

// xpydSettled judges xpyd's own accounts. Each handle that it was given has ended in a way that
// frees the blocks, and nothing is under way. A connector without handles has given it none. Where the legs
// start together, xpyd makes one only to give blocks back, which need not happen.
func xpydSettled(ctx context.Context, t *trial, x *proxy) error {
	count := map[string]float64{}
	read := func() (err error) {
		for _, name := range []string{"xpyd_in_flight", "xpyd_kv_blocks_pinned", "xpyd_kv_blocks_stranded", "xpyd_kv_orphans_total", "xpyd_request_bytes_buffered", "xpyd_panics_total"} {
			if count[name], err = x.metric(name); err != nil {
				return err
			}
		}
		for _, end := range []string{"burnt", "released", "drained", "expired", "lost"} {
			if count[end], err = x.metric("xpyd_kv_handles_total", `end="`+end+`"`); err != nil {
				return err
			}
		}
		count["issued"], err = x.metric("xpyd_kv_handles_issued_total")
		return err
	}
	// The values judged are those of one look, because an answer of P for a client that left may come
	// between two, and its handle is then given back.
	var failed error
	err := poll(ctx, 10*time.Second, func() bool {
		failed = read()
		return failed == nil && count["xpyd_in_flight"] == 0 && count["xpyd_kv_blocks_pinned"] == 0 &&
			count["issued"] == count["burnt"]+count["released"]+count["drained"]
	})
	if failed != nil {
		return failed
	}
	t.say("handles: %v issued, %v burnt, %v released, %v drained", count["issued"], count["burnt"], count["released"], count["drained"])
	kv := t.fleet.opts.kv
	t.judge(err == nil && (kv.together || count["issued"] > 0 == (kv.moves != "")) && count["issued"] == count["burnt"]+count["released"]+count["drained"], "handles do not add up: %v", count)
	for _, name := range slices.Sorted(maps.Keys(count)) {
		if name == "expired" || name == "lost" || strings.HasPrefix(name, "xpyd_") {
			t.judge(count[name] == 0, "%s is %v", name, count[name])
		}
	}
	return nil
}

// report prints where the clients left, and judges that each phase was met often enough.
func (l *leaver) report() error {
	said := map[string]string{}
	for _, line := range l.x.lines() {
		if phase, ok := line["phase"].(string); ok {
			said[fmt.Sprint(line["request_id"])] = phase
		}
	}
	here, words, total := map[phase]int{}, map[phase]map[string]int{}, map[string]int{}
	for _, d := range l.left {
		word := said[d.id]
		if word == "" {
			word = "none"
		}
		if words[d.in] == nil {
			words[d.in] = map[string]int{}
		}
		words[d.in][word]++
		total[word]++
		if d.here {
			here[d.in]++
		}
	}
	tw := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(tw, "THE CLIENT LEAVES WHEN\tREALLY THEN\tXPYD'S WORD FOR THE PHASE")
	for _, in := range l.t.fleet.opts.kv.leavePhases() {
		_, _ = fmt.Fprintf(tw, "%s\t%d\t%v\n", in, here[in], words[in])
		l.t.judge(here[in] >= leaveLeast, "only %d clients left when %s: that proves nothing", here[in], in)
	}
	if err := tw.Flush(); err != nil {
		return fmt.Errorf("print the phases: %w", err)
	}
	for _, word := range l.t.fleet.opts.kv.leaveWords() {
		counted, err := l.x.metric("xpyd_client_gone_total", `phase="`+word+`"`)
		if err != nil {
			return err
		}
		l.t.judge(counted >= leaveLeast, "xpyd counts only %v clients that left in phase %s: that proves nothing", counted, word)
		l.t.judge(counted == float64(total[word]), "xpyd counts %v clients that left in phase %s, its log %d", counted, word, total[word])
	}
	return nil
}

// leaveWords are xpyd's words for the phases in which clients leave.
func (c connector) leaveWords() []string {
	switch {
	case c.together:
		return []string{"decode", "stream"} // the decode leg begins with the prefill
	case c.moves == "":
		return []string{"prefill", "decode", "stream"} // xpyd never holds a handle
	}
	return []string{"prefill", "handoff", "decode", "stream"}
}
