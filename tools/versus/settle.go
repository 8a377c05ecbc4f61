package versus

import (
	"context"
	"fmt"
	"maps"
	"time"

	"xpyd/tools/process"
)

const (
	manyBackends = 64               // from here on warm-ups take longer than the load runs before its window
	settleTick   = time.Second      // two of the ticks by which xpyd looks for pairs to warm
	settleLimit  = 30 * time.Second // then the window begins in any case
)

// settle waits until xpyd has sent its own requests over the pairs of a large pool. xpyd does that
// once, and it is no part of what a request costs. With other contenders there is nothing to wait
// for.
func settle(ctx context.Context, s shape, p *running) error {
	if p.admin == "" || s.prefills == 0 || s.prefills+s.decodes < manyBackends {
		return nil
	}
	var before map[string]float64
	for end := time.Now().Add(settleLimit); time.Now().Before(end); {
		now, err := warmUpsOf(ctx, p.admin)
		if err != nil {
			return err
		}
		if maps.Equal(now, before) {
			return nil
		}
		before = now
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(settleTick):
		}
	}
	return nil
}

// warmUpsOf returns how many there were, by result.
func warmUpsOf(ctx context.Context, admin string) (map[string]float64, error) {
	page, err := process.PageOf(ctx, "http://"+admin)
	if err != nil {
		return nil, fmt.Errorf("count warm-ups: %w", err)
	}
	return page.By("xpyd_warmups_total", "result"), nil
}
