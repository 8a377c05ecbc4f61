package load

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Turn is one request's time to be sent.
type Turn struct {
	Index int
	Due   time.Time // by the schedule
	Start time.Time // when it may be sent: due, and a place below the cap is free
}

// Run calls send for each request when its turn has come, on a goroutine of its own, and returns
// when all have ended. Dues count from start. When ctx ends, Run begins no more requests; send has to
// end with ctx by itself.
//
// Requests go in the order of the schedule. One that waits for a place holds up those after it, and
// their dues do not change.
func (p *Plan) Run(ctx context.Context, start time.Time, send func(context.Context, Turn)) {
	dues, count := p.Schedule(), p.Requests()
	places := newPlaces(p.Concurrency, start)
	var open sync.WaitGroup
	defer open.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for i := 0; count == 0 || i < count; i++ {
		turn := Turn{Index: i, Due: start}
		if dues != nil {
			turn.Due = start.Add(dues[i])
		}
		if !waitUntil(ctx, timer, turn.Due) {
			return
		}
		free, ok := places.take(ctx)
		if !ok {
			return
		}
		turn.Start = turn.Due
		if free.After(turn.Due) {
			turn.Start = free
		}
		if p.Duration > 0 && turn.Start.Sub(start) > p.Duration {
			return
		}
		open.Go(func() {
			defer places.free()
			send(ctx, turn)
		})
	}
}

// fine is the last part of a wait, and the kernel times it. The runtime's timers wake up with its
// poller in steps of a millisecond, which every latency would include.
const fine = 1500 * time.Microsecond

// waitUntil reports whether due came before the end of ctx.
func waitUntil(ctx context.Context, timer *time.Timer, due time.Time) bool {
	wait := func(d time.Duration) {
		if d > 0 {
			timer.Reset(d)
			select {
			case <-timer.C:
			case <-ctx.Done():
			}
		}
	}
	wait(time.Until(due) - fine)
	if rest := time.Until(due); rest > 0 && ctx.Err() == nil {
		ts := unix.NsecToTimespec(rest.Nanoseconds())
		_ = unix.Nanosleep(&ts, nil) // a signal may end it, and tests have a clock of their own
	}
	wait(time.Until(due))
	return ctx.Err() == nil
}

// places are the free places below the cap, each with the time at which it became free. Nil has no
// cap.
type places chan time.Time

func newPlaces(n int, start time.Time) places {
	if n == 0 {
		return nil
	}
	p := make(places, n)
	for range n {
		p <- start
	}
	return p
}

// take waits for a place and returns when it became free.
func (p places) take(ctx context.Context) (since time.Time, ok bool) {
	if p == nil {
		return time.Time{}, true
	}
	select {
	case since = <-p:
		return since, true
	case <-ctx.Done():
		return time.Time{}, false
	}
}

func (p places) free() {
	if p != nil {
		p <- time.Now()
	}
}
