package progress

import (
	"context"
	"fmt"
	"testing"
	"time"

	"xpyd/router"
)

var limits = Limits{Floor: 4500 * time.Millisecond, Ceiling: 2 * time.Minute, Patience: 15 * time.Second}

// play looks at one engine four times a second, and notes when each step other than Wait came. see says what a look shows of
// the engine after so long; it may also send canaries back.
func play(r *Row, from, to time.Duration, see func(after time.Duration) Sight) (steps []string) {
	for at := from; at <= to; at += lookEvery {
		s := see(at)
		s.At = moment(at)
		if step := r.Look(s, limits); step != Wait {
			steps = append(steps, fmt.Sprint([...]string{Ask: "ask", Name: "name", Drop: "drop", Clear: "clear"}[step], "@", at))
		}
	}
	return steps
}

func moment(after time.Duration) time.Time { return time.Unix(1_000_000, 0).Add(after) }

func TestSilence(t *testing.T) {
	owes := func(since, expect time.Duration) Sight {
		return Sight{Owed: 3, Since: moment(since), Expect: expect, Priced: true}
	}
	every := func(gap, expect time.Duration) func(*Row) func(time.Duration) Sight {
		return func(*Row) func(time.Duration) Sight {
			return func(at time.Duration) Sight { return owes(at/gap*gap, expect) }
		}
	}
	for _, tc := range []struct {
		name string
		last time.Duration
		see  func(r *Row) func(time.Duration) Sight
		want string
	}{
		{"it owes nothing", time.Minute, func(*Row) func(time.Duration) Sight {
			return func(time.Duration) Sight { return Sight{Priced: true} }
		}, "[]"},
		{"it hangs", 21 * time.Second, func(*Row) func(time.Duration) Sight {
			return func(time.Duration) Sight { return owes(0, 100*time.Millisecond) }
		}, "[ask@2.25s name@4.5s ask@6.75s ask@11.25s ask@15.75s drop@19.5s ask@20.25s]"},
		{"it hangs, and all clients have given up", 5 * time.Second, func(*Row) func(time.Duration) Sight {
			return func(time.Duration) Sight { return Sight{Since: moment(0), Priced: true} }
		}, "[ask@2.25s name@4.5s]"},
		{"its queue moves", time.Hour, every(1250*time.Millisecond, time.Second), "[]"},
		{"it computes prompts of a minute", 5 * time.Minute, every(time.Minute, time.Minute), "[]"},
		{"it computes prompts of 5 minutes", time.Hour, every(5*time.Minute, 5*time.Minute), "[]"},
		{"it computes a prompt of a minute, and no price is known", 59 * time.Second, func(*Row) func(time.Duration) Sight {
			return func(at time.Duration) Sight { return Sight{Owed: 1, Since: moment(0)} }
		}, "[]"},
		{"it stands still for 4 s", 4 * time.Second, func(*Row) func(time.Duration) Sight {
			return func(time.Duration) Sight { return owes(0, 0) }
		}, "[ask@2.25s]"},
		{"answers come whole and slowly, but canaries come back", 10 * time.Second, func(r *Row) func(time.Duration) Sight {
			return func(at time.Duration) Sight {
				if at%(2*time.Second) == 0 && !r.asked.IsZero() {
					r.CameBack(moment(at), time.Second)
				}
				return owes(0, 0)
			}
		}, "[ask@2.25s ask@8.5s]"},
		{"its counters show work", time.Minute, func(r *Row) func(time.Duration) Sight {
			return func(at time.Duration) Sight {
				if at%time.Second == 0 {
					r.Shown(moment(at))
				}
				return owes(0, 0)
			}
		}, "[]"},
		{"it hangs, and then its canary comes back", 9 * time.Second, func(r *Row) func(time.Duration) Sight {
			return func(at time.Duration) Sight {
				if at == 8*time.Second {
					r.CameBack(moment(at), 6500*time.Millisecond)
				}
				return Sight{Since: moment(0), Priced: true}
			}
		}, "[ask@2.25s name@4.5s ask@6.75s clear@8s]"},
		{"it hangs, and then goes on", 9 * time.Second, func(*Row) func(time.Duration) Sight {
			return func(at time.Duration) Sight { return owes(at/(8*time.Second)*(8*time.Second), 0) }
		}, "[ask@2.25s name@4.5s ask@6.75s clear@8s]"},
		{"its answers come whole, and nothing shows its work", time.Minute, func(*Row) func(time.Duration) Sight {
			return func(time.Duration) Sight { return Sight{Owed: 1, Since: moment(0), Priced: true, Blind: true} }
		}, "[ask@1m0s]"},
	} {
		r := new(Row)
		if got := fmt.Sprint(play(r, 0, tc.last, tc.see(r))); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
}

// However long a silence is, an engine is wedged only once a canary has had its time.
func TestNoEngineIsWedgedUnasked(t *testing.T) {
	silent := func(time.Duration) Sight { return Sight{Owed: 1, Since: moment(0), Priced: true} }
	if got := fmt.Sprint(play(new(Row), 5*time.Second, 8*time.Second, silent)); got != "[ask@5.125s name@7.375s]" {
		t.Errorf("first seen after 5 s: %s", got)
	}
}

// What an engine usually takes raises its limit for a while. A wait that ended its engine does not.
func TestUsualWaitsRaiseTheLimit(t *testing.T) {
	r := new(Row)
	slow := func(at time.Duration) Sight {
		return Sight{Owed: 1, Since: moment(at / (4 * time.Second) * (4 * time.Second)), Priced: true}
	}
	if got := fmt.Sprint(play(r, 0, 20*time.Second, slow)); got != "[ask@2.25s]" {
		t.Errorf("an engine that takes 4 s: %s, want no canary once that is known", got)
	}
	if got := r.limit(Sight{At: moment(20 * time.Second)}, limits); got != 12*time.Second {
		t.Errorf("the limit is %v, want 12 s, three times what is usual", got)
	}
	if got := r.limit(Sight{At: moment(3 * time.Minute)}, limits); got != limits.Floor {
		t.Errorf("minutes later the limit is %v, want the floor", got)
	}
}

func TestWorkShows(t *testing.T) {
	page := func(change func(*router.EngineState)) *router.EngineState {
		e := router.UnknownEngine()
		e.PromptTokens, e.GenerationTokens, e.ComputedTokens, e.KVUsage, e.BlockSize, e.Blocks = 1000, 1000, 1000, 0.1, 16, 1000
		change(&e)
		return &e
	}
	was := page(func(*router.EngineState) {})
	for _, tc := range []struct {
		name            string
		change          func(*router.EngineState)
		prefill, decode bool
	}{
		{"nothing", func(*router.EngineState) {}, false, false},
		{"a token", func(e *router.EngineState) { e.GenerationTokens++ }, true, true},
		{"more requests wait", func(e *router.EngineState) { e.Waiting = 10 }, false, false},
		{"the prompt of a canary", func(e *router.EngineState) { e.PromptTokens += 136; e.ComputedTokens += 136; e.KVUsage += 0.009 }, false, false},
		{"blocks that fill", func(e *router.EngineState) { e.KVUsage += 0.1 }, true, false},
		{"blocks that are freed", func(e *router.EngineState) { e.KVUsage -= 0.1 }, false, false},
		{"prompts that may only wait", func(e *router.EngineState) { e.PromptTokens += 5000 }, true, false},
		{"prompts that it computed", func(e *router.EngineState) { e.ComputedTokens += 5000 }, true, true},
		{"a page that says nothing", func(e *router.EngineState) { *e = router.UnknownEngine() }, false, false},
	} {
		for prefills, want := range map[bool]bool{true: tc.prefill, false: tc.decode} {
			if got := worked(prefills, was, page(tc.change)); got != want {
				t.Errorf("%s, of a prefill engine %v: %v", tc.name, prefills, got)
			}
		}
	}
	if unknown := router.UnknownEngine(); worked(true, &unknown, was) || worked(true, nil, was) {
		t.Error("a first page shows work")
	}
}

// An engine that was wedged when it got another role is watched anew. Its checks bring it back.
func TestWedgedEngineWithAnotherRoleIsWatchedAnew(t *testing.T) {
	cfg := router.DefaultConfig()
	cfg.Engines = router.MustEntries("http://a:1", "http://b:1")
	rt, err := router.New(cfg, 1, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	w := &Watcher{rows: map[*router.Backend]*Row{}, cfg: Config{
		Engines: func() (all []*router.Backend) {
			for _, role := range router.Roles() {
				all = append(all, rt.Snapshot().Backends(role)...)
			}
			return all
		},
		Limits: func() Limits { return limits },
		See:    func(*router.Backend) Sight { return Sight{Priced: true} },
		Told:   func(*router.Backend, Step, Finding) { t.Error("told of a step") },
	}}
	d := rt.Snapshot().Backends(router.Decode)[0]
	router.Wedge(d, router.Wedged{Down: true})
	w.rows[process(d)] = &Row{since: moment(0), flew: moment(0), named: moment(0), down: true}
	w.look(moment(0), false)
	if d.Trouble.Wedged() == nil {
		t.Fatal("no longer wedged, although nothing has come")
	}
	cfg.Engines, cfg.Decode = cfg.Engines[1:], router.MustEntries("http://a:1")
	if _, err := rt.Reload(cfg, 1, nil); err != nil {
		t.Fatal(err)
	}
	w.look(moment(time.Second), false)
	if d.Trouble.Wedged() != nil || d.State() != router.Down {
		t.Errorf("with another role it is wedged: %v, state %s", d.Trouble.Wedged() != nil, d.State())
	}
	d.Observe(true)
	if d.Observe(true); d.State() != router.Up {
		t.Error("its checks do not bring it back")
	}
}

// A canary may take what is left of the limit, however long that is: an engine that is busy for minutes comes to it late.
func TestCanaryHasTheRestOfTheLimit(t *testing.T) {
	cfg := router.DefaultConfig()
	cfg.Decode = router.MustEntries("http://d:1")
	rt, err := router.New(cfg, 1, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	d := rt.Snapshot().Backends(router.Decode)[0]
	waits := make(chan time.Duration, 1)
	w := &Watcher{ctx: t.Context(), rows: map[*router.Backend]*Row{}, cfg: Config{
		See: func(*router.Backend) Sight { return Sight{Owed: 1, Since: moment(0)} }, // nothing is priced
		Canary: func(ctx context.Context, _ *router.Backend) Answer {
			end, _ := ctx.Deadline()
			waits <- time.Until(end)
			return Silent
		},
		Guard: func(f func()) bool { f(); return true },
	}}
	r := w.row(d)
	w.visit(d, r, moment(0), limits, false)
	w.visit(d, r, moment(limits.Ceiling/doubtAfter), limits, false)
	if wait, half := <-waits, limits.Ceiling/2; wait > half || wait < half-10*time.Second {
		t.Errorf("a canary may take %v, want half of the limit of %v", wait, limits.Ceiling)
	}
	w.wg.Wait()
}
