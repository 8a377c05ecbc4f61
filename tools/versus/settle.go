package versus

import (
	"context"
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
	_, err := process.AwaitWarmed(ctx, p.admin, settleTick, settleLimit)
	return err
}
