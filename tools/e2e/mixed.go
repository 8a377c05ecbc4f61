package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// In the check mixed, two models are served behind one xpyd, each by a prefill and a decode engine of a connector of
// its own.

const (
	mixedConnector = "nixl-push"
	mixedModel     = "other"
	mixedStep      = 12 // every twelfth request of each kind
)

// party are the engines of one model.
type party struct {
	*exactness
	model string
	seed  uint64
	p, d  *engine
	calm  map[string]float64 // its figures before the first request
}

func mixed(ctx context.Context, t *trial) error {
	if err := newEngine(t.fleet, plainEngine()).stop(ctx); err != nil { // no more than four may run
		return err
	}
	specs := []spec{prefillEngine(1), decodeEngine(1), prefillEngine(2), decodeEngine(2)}
	for i := range specs[2:] {
		specs[2+i].kv, specs[2+i].model = mixedConnector, mixedModel
	}
	t.say("starting engines")
	engines, err := t.fleet.all(ctx, specs...)
	if err != nil {
		return err
	}
	mixedPairs(ctx, t, engines)
	x, err := t.fleet.proxyOf(ctx, engines)
	if err != nil {
		return err
	}
	l, err := openLedger(ctx, t, x, engines)
	if err != nil {
		return err
	}
	// The prefill engine of a model is asked for the right answers too. Its own cache does not matter.
	parties := []*party{
		{exactness: newExactness(t, engines[0], x), model: "tiny", seed: 5, p: engines[0], d: engines[1]},
		{exactness: newExactness(t, engines[2], x), model: mixedModel, seed: 6, p: engines[2], d: engines[3]},
	}
	if err := sendMixed(ctx, parties); err != nil {
		return err
	}
	sum := 0
	for _, p := range parties {
		if err := p.judge(ctx); err != nil {
			return err
		}
		sum += p.disaggregate
	}
	if err := l.awaitIdle(ctx); err != nil {
		t.fail("%v", err)
	}
	return errors.Join(l.handles(sum), l.ids(ctx))
}

// mixedPairs judges that xpyd check takes these pools, sends a token through each of their two pairs, and refuses the
// prefill engine of one connector with the decode engine of the other.
func mixedPairs(ctx context.Context, t *trial, engines []*engine) {
	check := func(prefill, decode []string, more ...string) (string, error) {
		args := []string{"check", "--listen", "127.0.0.1:8080", "--prefill", strings.Join(prefill, ","), "--decode", strings.Join(decode, ",")}
		return t.fleet.command(ctx, append(args, more...)...)
	}
	p1, d1, p2, d2 := engines[0].entry(), engines[1].entry(), engines[2].entry(), engines[3].entry()
	out, err := check([]string{p1, p2}, []string{d1, d2}, "--probe")
	t.judge(err == nil, "xpyd check --probe of both pairs: %v\n%s", err, out)
	for _, pair := range [][2]string{{p1, d2}, {p2, d1}} {
		out, err := check(pair[:1], pair[1:])
		t.judge(err != nil && strings.Contains(out, "could never make a pair"), "xpyd check of prefill %s with decode %s: %v\n%s", pair[0], pair[1], err, out)
	}
}

// sendMixed sends the requests of all models at the same time.
func sendMixed(ctx context.Context, parties []*party) error {
	errs := make([]error, len(parties))
	var group sync.WaitGroup
	for i, p := range parties {
		var err error
		if p.calm, err = p.figures(ctx); err != nil {
			return err
		}
		list := slices.DeleteFunc(cases(p.seed, mixedStep, p.t.fleet.opts.kv), func(c testCase) bool {
			return c.name == "unknown model" // nobody's
		})
		for j := range list {
			list[j].request.body = bytes.Replace(list[j].request.body, []byte(`"model":"tiny"`), fmt.Appendf(nil, `"model":%q`, p.model), 1)
		}
		p.t.say("%d requests for %s", len(list), p.model)
		group.Go(func() { errs[i] = p.all(ctx, list) })
	}
	group.Wait()
	return errors.Join(errs...)
}

// figures are what tells that blocks have moved between the engines of the party.
func (p *party) figures(ctx context.Context) (map[string]float64, error) {
	mover := p.d
	if p.p.connector().moves == "prefill" {
		mover = p.p
	}
	all := map[string]float64{}
	for _, f := range []struct {
		of   *engine
		name string
	}{
		{mover, metricTransfers}, {p.d, metricExternal}, {p.p, metricExpired},
		{p.d, "vllm:nixl_num_failed_transfers_total"}, {p.d, "vllm:nixl_num_failed_notifications_total"},
	} {
		n, err := f.of.metric(ctx, f.name)
		if err != nil {
			return nil, err
		}
		all[f.name] = n
	}
	return all, nil
}

const metricTransfers = "vllm:nixl_xfer_time_seconds_count"

// judge judges that each request of two legs moved blocks between the party's engines, and that its legs were theirs.
func (p *party) judge(ctx context.Context) error {
	var moved map[string]float64
	var err error
	_ = poll(ctx, settleTime, func() bool { // a difference is judged below
		moved, err = p.figures(ctx)
		for name, n := range p.calm {
			if err == nil {
				moved[name] -= n
			}
		}
		return err != nil || moved[metricTransfers] >= float64(p.disaggregate)
	})
	if err != nil {
		return err
	}
	p.t.say("%s: %d requests took both legs, %.0f transfers, %.0f tokens of prompts from the prefill engine", p.model, p.disaggregate, moved[metricTransfers], moved[metricExternal])
	p.t.judge(p.disaggregate > 0 && moved[metricTransfers] == float64(p.disaggregate) && moved[metricExternal] > 0, "%s: %d requests took both legs, and its engines count %v", p.model, p.disaggregate, moved)
	delete(moved, metricTransfers)
	delete(moved, metricExternal)
	for name, n := range moved {
		p.t.judge(n == 0, "%s: %s grew by %v", p.model, name, n)
	}
	for _, line := range p.xpyd.lines() {
		id, _ := line["request_id"].(string)
		if line["message"] != "completion" || line["path"] != "disaggregated" || !strings.HasPrefix(id, fmt.Sprintf("e2e-%d-", p.seed)) {
			continue
		}
		p.t.judge(line["prefill"] == p.p.url && line["decode"] == p.d.url, "%s for %s went to %v and %v", id, p.model, line["prefill"], line["decode"])
	}
	return nil
}
