package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// waiting makes clients leave while xpyd holds their handles and no decode engine has room. Both
// engines are reserved up to their caps while the prefills run. Then one is taken down, so that
// half of the requests must queue for the other.
func (l *leaver) waiting(ctx context.Context) error {
	all := make([]*departure, 2*leaveWaiting)
	answers, requests := make([]*hold, len(all)), make([]*hold, len(all))
	for i := range all {
		d := newDeparture(departures-len(all)+i, phaseWaits)
		d.ask.prompt = d.ask.prompt[:50] // the blocks of all prompts are pinned at the same time
		all[i], answers[i], requests[i] = d, l.rp.hold(stepAnswer, d.id), l.rd[1].hold(stepRequest, d.id)
		defer answers[i].let()
		defer requests[i].let()
	}
	visits, err := l.callAll(ctx, all)
	defer func() {
		for _, v := range visits {
			v.close()
		}
	}()
	if err != nil {
		return err
	}
	for i, h := range answers {
		if err := awaitAny(ctx, h, h); err != nil {
			return fmt.Errorf("prefill %s: %w", all[i].id, err)
		}
	}
	if err := l.takeDown(ctx); err != nil {
		return err
	}
	defer l.rd[0].setAway(false)
	for _, h := range answers {
		h.let()
	}
	return l.leaveQueue(ctx, all, visits)
}

func (l *leaver) callAll(ctx context.Context, all []*departure) (visits []*visit, err error) {
	for _, d := range all {
		v, err := call(ctx, l.x.url, d.ask.path(), d.id, d.ask.body(nil))
		if err != nil {
			return visits, err
		}
		visits = append(visits, v)
	}
	return visits, nil
}

// leaveQueue makes all leave: first those that wait, then those whose request the second decode
// engine's relay holds. In the other order their places would be taken.
func (l *leaver) leaveQueue(ctx context.Context, all []*departure, visits []*visit) error {
	if err := l.awaitQueue(ctx, leaveWaiting); err != nil {
		return err
	}
	placed := func(d *departure) bool { return len(l.rd[1].times(stepRequest, d.id)) > 0 }
	if err := poll(ctx, stepTime, func() bool { return countOf(all, placed) == leaveWaiting }); err != nil {
		return fmt.Errorf("%d requests have got a decode engine, not %d", countOf(all, placed), leaveWaiting)
	}
	for i, d := range all {
		d.here = true
		if placed(d) {
			d.in = phaseDecodes // it has a place
			defer waysToLeave()[d.how](visits[i])
			continue
		}
		waysToLeave()[d.how](visits[i])
	}
	err := l.awaitQueue(ctx, 0)
	l.gone(time.Now(), all...)
	return err
}

func countOf(all []*departure, is func(*departure) bool) (n int) {
	for _, d := range all {
		if is(d) {
			n++
		}
	}
	return n
}

// takeDown makes xpyd find that the first decode engine is gone.
func (l *leaver) takeDown(ctx context.Context) error {
	l.rd[0].setAway(true)
	err := poll(ctx, stepTime, func() bool {
		up, err := l.x.metric("xpyd_backend_up", `backend="`+l.rd[0].url+`"`)
		return err == nil && up == 0
	})
	if err != nil {
		return errors.New("xpyd does not notice that a decode engine is gone")
	}
	return nil
}

// awaitQueue waits until that many requests wait for a decode engine.
func (l *leaver) awaitQueue(ctx context.Context, want float64) error {
	var got float64
	err := poll(ctx, stepTime, func() bool {
		var err error
		got, err = l.x.metric("xpyd_queued", `role="decode"`)
		return err == nil && got == want
	})
	if err != nil {
		return fmt.Errorf("%v requests wait for a decode engine, not %v", got, want)
	}
	return nil
}
