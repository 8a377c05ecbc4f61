package router

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A request that finds the line full takes the place of the newest of the client that has most in it, unless that
// would be its own. The numbers are clients, each with the priority behind it.
func TestFullLineIsShared(t *testing.T) {
	for name, tc := range map[string]struct{ join, refused string }{
		"one client":                        {"1 1 1 1 1", "#4 #5"},
		"another has none":                  {"1 1 1 2", "#3"},
		"another has as many after it":      {"1 1 2 2", "#4"},
		"all have one":                      {"1 2 3 4", "#4"},
		"two of a flood go":                 {"1 1 1 2 3", "#3 #2"},
		"the one with most is in between":   {"1 2 2 3", "#3"},
		"priorities are of one client":      {"1:0 1:1 1:2 2:0", "#3"},
		"the urgent ones are no exception":  {"1:0 1:-1 1:-2 2:0", "#3"},
		"an urgent newcomer of one who has": {"1:0 1:0 2:0 1:-1", "#4"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, _ := newRouterOf(t, 0, 1, func(c *Config) { c.DecodeMaxInFlight = 1 })
				s := r.Snapshot()
				held := leaseOn(t, s, s.Backends(Decode)[0])
				var refused []string
				joined, served := strings.Fields(tc.join), 0
				for i, word := range joined {
					w := anyDecode
					_, _ = fmt.Sscanf(word, "%d:%d", &w.Flow, &w.Priority)
					go func() {
						var l Lease
						switch err := s.AcquireWait(w, &l, Line{3, time.Hour}, nil); err {
						case ErrQueueFull:
							refused = append(refused, fmt.Sprintf("#%d", i+1))
						case nil:
							served++
							l.Release(OK)
						default:
							t.Error(err)
						}
					}()
					synctest.Wait()
				}
				if got := strings.Join(refused, " "); got != tc.refused {
					t.Errorf("refused %s, want %s", got, tc.refused)
				}
				held.Release(OK)
				synctest.Wait()
				if served != 3 || r.Queued(Decode) != 0 {
					t.Errorf("%d served, %d wait", served, r.Queued(Decode))
				}
			})
		})
	}
}

// Whatever joins and leaves, the crowd knows who has most, and which of its waiters is the newest.
func TestCrowdKnowsWhoHasMost(t *testing.T) {
	var c crowd
	var all []*waiter // in the order in which they joined
	rng := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		if n := len(all); n > 0 && rng.IntN(60) < n {
			i := rng.IntN(n)
			c.remove(all[i])
			all = append(all[:i], all[i+1:]...)
		} else {
			all = append(all, &waiter{want: Want{Flow: rng.Uint64N(7)}})
			c.add(all[n])
		}
		count, newest := map[uint64]int{}, map[uint64]*waiter{}
		for _, wt := range all {
			count[wt.want.Flow]++
			newest[wt.want.Flow] = wt
		}
		most := 0
		for _, n := range count {
			most = max(most, n)
		}
		if len(c.clients) != len(count) || c.most != most {
			t.Fatalf("%d clients with up to %d, want %d with up to %d", len(c.clients), c.most, len(count), most)
		}
		if most == 0 {
			continue
		}
		if out := c.newest(); count[out.want.Flow] != most || newest[out.want.Flow] != out {
			t.Fatalf("the one to leave is of a client with %d of at most %d, or not its newest", count[out.want.Flow], most)
		}
	}
}

// What is remembered of flows without waiters is bounded while others wait, however many clients and priorities come
// and go.
func TestBusyLineForgets(t *testing.T) {
	const many = 50_000
	for name, want := range map[string]func(i int) Want{
		"clients":                func(i int) Want { return Want{Flow: uint64(i + 10), Tokens: 100} },
		"priorities":             func(i int) Want { return Want{Flow: 1, Priority: -i, Tokens: 100} },
		"clients and priorities": func(i int) Want { return Want{Flow: uint64(i + 10), Priority: -i % 300, Tokens: 100} },
	} {
		var l fairLine
		l.add(&waiter{want: Want{Flow: 1, Priority: 1}})
		l.add(&waiter{want: Want{Flow: 2}})
		for i := range many {
			wt := &waiter{want: want(i)}
			l.add(wt)
			l.charge(wt)
			l.remove(wt)
		}
		flows := 0
		for _, c := range l.classes {
			flows += len(c.flows)
		}
		if flows > 3*mostAhead || len(l.classes) > 2 {
			t.Errorf("%s: %d flows in %d classes after %d with two that wait", name, flows, len(l.classes), many)
		}
	}
}
