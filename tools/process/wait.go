package process

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// AwaitReady waits until the proxy would serve a completion. It asks the data port, so that what
// the server starts with its first answer belongs to the baseline.
func AwaitReady(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		_, err := Get(ctx, "http://"+addr+"/readyz")
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(errors.New("the proxy did not become ready within 30 s"), err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// AwaitPolled waits until each engine has been polled twice, because the connection that the proxy
// keeps for that belongs to the baseline. It gives up after 15 s, which is no error: polling may be off.
func AwaitPolled(ctx context.Context, admin string, engines int) error {
	const bound = 15 * time.Second
	for end := time.Now().Add(bound); time.Now().Before(end); {
		series, err := Series(ctx, admin)
		if err != nil {
			return err
		}
		if series[`xpyd_engine_polls_total{result="ok"}`]+series[`xpyd_engine_polls_total{result="failed"}`] >= float64(2*engines) {
			return nil
		}
		SleepUntil(ctx, time.Now().Add(50*time.Millisecond))
	}
	return ctx.Err()
}

// AwaitWarmed waits until the proxy has sent no request of its own over a pair of engines from one tick to the
// next. warmed is false if that did not happen within bound.
func AwaitWarmed(ctx context.Context, admin string, tick, bound time.Duration) (warmed bool, err error) {
	last := -1.0
	for end := time.Now().Add(bound); time.Now().Before(end); {
		page, err := PageOf(ctx, "http://"+admin)
		if err != nil {
			return false, fmt.Errorf("count warm-ups: %w", err)
		}
		sum, _ := page.Sum("xpyd_warmups_total") // before the first there is no series
		if sum == last {
			return true, nil
		}
		last = sum
		if err := Sleep(ctx, tick); err != nil {
			return false, err
		}
	}
	return false, nil
}

// Sleep waits for d, or returns why ctx ended.
func Sleep(ctx context.Context, d time.Duration) error {
	if !SleepUntil(ctx, time.Now().Add(d)) {
		return ctx.Err()
	}
	return nil
}

// SleepUntil returns false if ctx ended before t.
func SleepUntil(ctx context.Context, t time.Time) bool {
	timer := time.NewTimer(time.Until(t))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
