package router

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// The backlog of a prefill engine grows with each prompt, shrinks with time, and is 0 when nothing
// is in flight.
func TestBacklogShrinksWithTime(t *testing.T) {
	x := newPricer(t)
	lease := func(tokens int) *Lease {
		l := new(Lease)
		if err := x.s.AcquireFor(Want{Role: Prefill, Tokens: tokens, Alone: true}, l); err != nil {
			t.Fatal(err)
		}
		return l
	}
	backlog := func() float64 { return x.p.backlog(x.r.now(), rateOf(x.r.prices.Pace())) }
	first := lease(500)
	if first.Ahead() != 0 || backlog() != 500 {
		t.Errorf("%d ahead, backlog %g: all that is in flight counts while no pace is known", first.Ahead(), backlog())
	}
	first.Release(OK)
	x.learn(100, 1, 100) // 0.1 ms a token
	first = lease(1000)
	near(t, "at once", backlog(), 1000, 0.02)
	x.now = x.now.Add(60 * time.Millisecond)
	near(t, "after 60 of 100 ms", backlog(), 400, 0.02)
	second := lease(1000)
	near(t, "ahead of the second", float64(second.Ahead()), 400, 0.02)
	near(t, "both", backlog(), 1400, 0.02)
	first.Release(OK)
	if got := backlog(); got > 1000 {
		t.Errorf("%g, more than is in flight", got)
	}
	x.now = x.now.Add(time.Second)
	if got := backlog(); got != 0 {
		t.Errorf("%g of a prompt that should be done", got)
	}
	second.Release(OK)
	if x.p.free.Load() != 0 || backlog() != 0 {
		t.Error("an idle engine has a backlog")
	}
}

// A prompt counts even if others end at the moment when it comes.
func TestBacklogWhileAnotherEnds(t *testing.T) {
	x := newPricer(t)
	x.learn(100, 1, 100)
	var ticks atomic.Int64
	x.r.clock = func() time.Time { return x.now.Add(time.Duration(ticks.Add(1))) } // no two moments are the same
	var stop atomic.Bool
	var other sync.WaitGroup
	other.Go(func() {
		for !stop.Load() {
			x.p.inflight.Add(1)
			x.p.enqueue(1)
			x.p.dequeue(1, OK)
			x.p.inflight.Add(-1)
		}
	})
	for range 20_000 {
		x.p.inflight.Add(1)
		x.p.enqueue(1000)
		if todo := float64(x.p.free.Load()-x.r.now()) / x.r.prices.Pace(); todo < 990 {
			t.Errorf("%g tokens to be done", todo)
			break
		}
		x.p.dequeue(1000, OK)
		x.p.inflight.Add(-1)
	}
	stop.Store(true)
	other.Wait()
}

// A chat returns to its blocks if the prompts before it are nearly done. It goes elsewhere while
// waiting would take longer than computing the chat again.
func TestPrefixWaitsForWhatIsNearlyDone(t *testing.T) {
	for name, c := range map[string]struct {
		ran  time.Duration // the long prompt, of 384 ms
		stay bool
	}{"just begun": {10 * time.Millisecond, false}, "nearly done": {350 * time.Millisecond, true}} {
		t.Run(name, func(t *testing.T) {
			r, clock := newRouterOf(t, 2, 1, func(c *Config) { c.PrefillPolicy, c.Health.SlowStart = "prefix", 0 })
			for range 40 {
				for _, n := range []int{200, 8000} {
					r.Prefilled(0, n, time.Duration(n)*100*time.Microsecond)
				}
			}
			chat := want(Prefill, text(7, 40)...)
			home := serveNow(t, r, chat)
			long, at := new(Lease), ""
			for n := uint64(100); at != home; n++ {
				if at != "" {
					long.Release(OK)
				}
				long, at = take(t, r, want(Prefill, text(n, 60)...))
			}
			clock.advance(c.ran)
			if got := serveNow(t, r, chat); (got == home) != c.stay {
				t.Errorf("the chat of %s goes to %s", home, got)
			}
			long.Release(OK)
		})
	}
}

// lineUp is prefill engines that compute one prompt after the other.
type lineUp struct {
	r     *Router
	clock *handClock
	at    time.Duration
	free  []time.Duration
	jobs  []lineUpJob
}

type lineUpJob struct {
	l            *Lease
	begun, ended time.Duration
}

// finish ends the prompts that are done by now, in their order.
func (x *lineUp) finish(now time.Duration) {
	for {
		next := -1
		for i, j := range x.jobs {
			if j.ended <= now && (next < 0 || j.ended < x.jobs[next].ended) {
				next = i
			}
		}
		to := now
		if next >= 0 {
			to = x.jobs[next].ended
		}
		x.clock.advance(to - x.at)
		x.at = to
		if next < 0 {
			return
		}
		j := x.jobs[next]
		x.jobs = slices.Delete(x.jobs, next, next+1)
		x.r.Prefilled(j.l.Ahead(), j.l.Tokens(), j.ended-j.begun)
		j.l.Release(OK)
	}
}

// An engine that is slower than its pool gets less, so that its queue does not grow for ever while
// the others are idle half of the time.
func TestSlowPrefillEngineIsNotBuried(t *testing.T) {
	for _, slow := range []float64{1, 2, 4, 10} {
		t.Run(fmt.Sprint(slow), func(t *testing.T) {
			x := lineUp{free: make([]time.Duration, 4)}
			x.r, x.clock = newRouterOf(t, 4, 1, func(c *Config) { c.PrefillPolicy, c.Health.SlowStart = "prefix", 0 })
			rnd, sizes := rand.New(rand.NewPCG(1, 9)), []int{500, 500, 500, 1000, 2000, 4000, 8000}
			backends, now, longest := x.r.Snapshot().Backends(Prefill), time.Duration(0), time.Duration(0)
			for range 4000 {
				now += time.Duration(rnd.ExpFloat64() / (3 + 1/slow) * 470 * float64(time.Millisecond)) // half of what they can do
				x.finish(now)
				w := Want{Role: Prefill, Tokens: sizes[rnd.IntN(len(sizes))], Prefix: []uint64{rnd.Uint64()}, Conversation: rnd.Uint64(), Alone: true}
				l := new(Lease)
				if err := x.r.Snapshot().AcquireFor(w, l); err != nil {
					t.Fatal(err)
				}
				i, each := slices.Index(backends, l.Backend), 100*time.Microsecond
				if i == 0 {
					each = time.Duration(slow * float64(each))
				}
				x.free[i] = max(x.free[i], now) + time.Duration(w.Tokens)*each
				longest = max(longest, x.free[i]-now)
				x.jobs = append(x.jobs, lineUpJob{l, now, x.free[i]})
			}
			x.finish(now + time.Hour)
			if most := time.Duration((1 + 2*slow) * 1600 * float64(time.Millisecond)); longest > most {
				t.Errorf("a prompt took %v, want no more than %v", longest, most)
			}
		})
	}
}
