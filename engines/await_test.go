package engines

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// A failed leg brings the next check forward, but not to less than the least time after the last one.
func TestChecksAfterFailedLegs(t *testing.T) {
	const usual, least = 5 * time.Second, time.Second
	for name, tc := range map[string]struct {
		failed, now time.Duration // when legs fail, and when a check is asked for at once; 0: never
		want        time.Duration
	}{
		"nothing happens":                    {0, 0, usual},
		"legs fail soon after a check":       {10 * time.Millisecond, 0, least},
		"legs fail long after a check":       {3 * time.Second, 0, 3 * time.Second},
		"legs fail just before the next one": {usual - time.Millisecond, 0, usual - time.Millisecond},
		"a check at once":                    {0, 10 * time.Millisecond, 10 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, e := &checker{ctx: t.Context()}, &engine{wake: make(chan struct{}, 1), failed: make(chan struct{}, 1)}
				began, took := time.Now(), make(chan time.Duration)
				go func() {
					if !c.await(e, usual, least) {
						t.Error("it ends")
					}
					took <- time.Since(began)
				}()
				if tc.failed > 0 {
					time.AfterFunc(tc.failed, func() {
						for range 100 {
							signal(e.failed)
							synctest.Wait()
						}
					})
				}
				if tc.now > 0 {
					time.AfterFunc(tc.now, func() { signal(e.wake) })
				}
				if got := <-took; got != tc.want {
					t.Errorf("the next check is after %v, want %v", got, tc.want)
				}
			})
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if c := (&checker{ctx: ctx}); c.await(&engine{}, usual, least) {
		t.Error("it goes on after its end")
	}
}
