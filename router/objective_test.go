package router

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// steady is a window of 100 s with 4 requests a second, of 100 ms of prefill each, and answers of 100 tokens that take 10 ms
// and 0.5 ms more for each answer beside them.
func steady(x, y int) *Advice {
	return &Advice{
		WindowSeconds: 100,
		Prefill:       PoolAdvice{Backends: x, Load: 0.4 / float64(x), Requests: 400, BusySeconds: 40, BusySquares: 4},
		Decode:        PoolAdvice{Backends: y, Load: 0.1, KVUsage: 0.1},
		Answers:       Answers{Tokens: 100, Token: 0.010, PerStream: 0.0005, First: 0.02},
	}
}

func TestObjectivesOfSplits(t *testing.T) {
	for name, c := range map[string]struct {
		o     Objective
		x, y  int
		best  [2]int
		limit string
		low   float64
		high  float64
	}{
		"tokens alone":               {Objective{TPOT: 0.020}, 1, 1, [2]int{1, 1}, "tpot", 9.99, 10.01}, // 20 at a time, 2 s each
		"first tokens alone":         {Objective{TTFT: 10}, 1, 1, [2]int{1, 1}, "ttft", 9.5, 10},        // as many as it can
		"strict first tokens":        {Objective{TTFT: 0.121}, 1, 1, [2]int{1, 1}, "ttft", 0.5, 1.5},    // hardly a wait
		"more decode":                {Objective{TTFT: 1, TPOT: 0.011}, 3, 1, [2]int{1, 3}, "tpot", 5.4, 5.5},
		"more prefill":               {Objective{TTFT: 0.5, TPOT: 0.1}, 1, 5, [2]int{3, 3}, "kv_cache", 21, 22},
		"no first token is so early": {Objective{TTFT: 0.1}, 1, 1, [2]int{}, "ttft", 0, 0},
		"no token is so quick":       {Objective{TPOT: 0.009}, 1, 1, [2]int{}, "tpot", 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := steady(c.x, c.y).Within(c.o)
			if c.high == 0 {
				if r.Best != nil || !strings.Contains(r.Words, "no split keeps "+c.limit) {
					t.Errorf("%+v", r)
				}
				return
			}
			if r.Best == nil || r.Best.Prefill != c.best[0] || r.Best.Decode != c.best[1] || r.Best.Limit != c.limit || r.Best.Requests < c.low || r.Best.Requests > c.high {
				t.Errorf("%+v, best %+v, now %+v", r, r.Best, r.Now)
			}
		})
	}
}

// What is not known is not made up.
func TestObjectivesWithoutFigures(t *testing.T) {
	a := steady(1, 1)
	a.Answers = Answers{}
	if r := a.Within(Objective{TPOT: 0.02}); r.Best != nil || !strings.Contains(r.Words, "not known yet") {
		t.Errorf("%+v", r)
	}
	x := newPricer(t)
	if r := x.s.Advice(); r.Within(Objective{TTFT: 1}).Best != nil || !strings.Contains(r.Within(Objective{TTFT: 1}).Words, "not known yet") {
		t.Errorf("%+v", r.Within(Objective{TTFT: 1}))
	}
}

// The formula agrees with a simulated queue within a fifth.
func TestServersAgreeWithASimulatedQueue(t *testing.T) {
	for _, c := range []struct {
		n         int
		rate      float64
		deviation float64
	}{{1, 6, 0}, {2, 15, 0.05}, {4, 35, 0.05}, {3, 27, 0}} {
		rnd := rand.New(rand.NewPCG(1, 2))
		free := make([]float64, c.n)
		now, took := 0.0, []float64(nil)
		for range 50000 {
			now += rnd.ExpFloat64() / c.rate
			at := slices.Index(free, slices.Min(free))
			free[at] = max(now, free[at]) + max(0, 0.1+c.deviation*rnd.NormFloat64())
			took = append(took, free[at]-now)
		}
		slices.Sort(took)
		want, got := took[len(took)*9/10], servers{0.1, c.deviation}.p90(c.rate, c.n)
		if got < 0.8*want || got > 1.35*want {
			t.Errorf("%+v: %.3f s, simulated %.3f", c, got, want)
		}
	}
}

// An engine without a role is a backend of both pools, so no split of the backends is one of the engines.
func TestNoSplitOfEnginesWithoutARole(t *testing.T) {
	r, _ := roleless(t, 3, nil)
	r.Prefilled(0, 1000, 1e9)
	for _, d := range r.Snapshot().Backends(Decode) {
		d.SetEngine(EngineState{KVUsage: 0.5}, 0, 1e9)
	}
	a := r.Snapshot().Advice()
	if a.Prefill.Load < 0 || a.Decode.Load < 0 {
		t.Fatalf("the loads are %v and %v", a.Prefill.Load, a.Decode.Load)
	}
	if reach := a.Within(Objective{TTFT: 10}); reach.Best != nil || reach.Now != nil || !strings.Contains(reach.Words, "no split") {
		t.Errorf("%+v", reach)
	}
}
