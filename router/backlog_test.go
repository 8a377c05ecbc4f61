package router

import (
	"testing"
	"time"
)

// What a prefill engine has to do grows with each prompt, shrinks as time goes by, and is
// nothing when nothing is in flight.
func TestBacklogShrinksWithTime(t *testing.T) {
	x := newPricer(t)
	lease := func(tokens int) *Lease {
		l := new(Lease)
		if err := x.s.AcquireFor(Want{Role: Prefill, Tokens: tokens, Alone: true}, l); err != nil {
			t.Fatal(err)
		}
		return l
	}
	backlog := func() float64 { return x.p.backlog(x.r.now(), x.r.prices.pace()) }
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

// A chat goes back to its blocks where what stands before it is nearly done, and elsewhere
// while that would take longer than to compute the chat again.
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
