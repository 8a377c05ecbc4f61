package router

import (
	"strings"
	"testing"
	"time"
)

func TestAdviceBalances(t *testing.T) {
	for name, c := range map[string]struct {
		x, y     int
		p, d     float64
		want     [2]int
		short    string
		balanced float64
	}{
		"prefill is short":   {2, 6, 0.9, 0.2, [2]int{5, 3}, "prefill", 0.4},
		"decode is short":    {6, 2, 0.1, 0.95, [2]int{2, 6}, "decode", 0.3167},
		"in balance":         {4, 4, 0.6, 0.62, [2]int{4, 4}, "none", 0.62},
		"two of them":        {1, 1, 0.9, 0.1, [2]int{1, 1}, "none", 0.9},
		"nobody feels it":    {2, 6, 0.4, 0.02, [2]int{7, 1}, "none", 0.12},
		"no reason to move":  {2, 2, 0.5, 0.45, [2]int{2, 2}, "none", 0.5},
		"nothing to be done": {4, 4, 0, 0, [2]int{4, 4}, "none", 0},
	} {
		t.Run(name, func(t *testing.T) {
			a := Advice{Prefill: PoolAdvice{Backends: c.x, Load: c.p}, Decode: PoolAdvice{Backends: c.y, Load: c.d}}
			a.balance()
			if a.BalancedPrefill != c.want[0] || a.BalancedDecode != c.want[1] || a.Short != c.short {
				t.Errorf("%d:%d, short %s; want %v, %s", a.BalancedPrefill, a.BalancedDecode, a.Short, c.want, c.short)
			}
			near(t, "load", a.BalancedLoad, c.balanced, 0.01)
		})
	}
}

// Engines of different GPUs change places by GPUs: four decode engines' worth of one is one.
func TestAdviceCountsGPUs(t *testing.T) {
	a := Advice{Prefill: PoolAdvice{Backends: 4, GPUs: 4, Load: 0.9}, Decode: PoolAdvice{Backends: 2, GPUs: 8, Load: 0.2}}
	a.balance()
	if a.BalancedPrefill != 8 || a.BalancedDecode != 1 || a.Short != "prefill" || !strings.HasSuffix(a.Arithmetic, "; of 12 GPUs, with 1 for a prefill engine and 4 for a decode engine") {
		t.Errorf("%+v", a)
	}
	near(t, "load", a.BalancedLoad, 0.45, 0.01)
	a = Advice{Prefill: PoolAdvice{Backends: 1, GPUs: 4, Load: 0.1}, Decode: PoolAdvice{Backends: 3, GPUs: 3, Load: 0.9}}
	a.balance() // the one prefill engine can become nothing else
	if a.BalancedPrefill != 1 || a.BalancedDecode != 3 || a.Short != "none" {
		t.Errorf("%+v", a)
	}
	for entry, want := range map[string][2]float64{"http://c gpus=4": {2, 4}, "http://c": {0, 0}} {
		r, _ := newRouterOf(t, 0, 0, func(c *Config) { c.Prefill, c.Decode = MustEntries("http://a", "http://b"), MustEntries(entry) })
		if a := r.Snapshot().Advice(); a.Prefill.GPUs != want[0] || a.Decode.GPUs != want[1] {
			t.Errorf("%s: %v and %v GPUs", entry, a.Prefill.GPUs, a.Decode.GPUs)
		}
	}
}

// The figures come only from the traffic of the last quarter of an hour.
func TestAdviceWindow(t *testing.T) {
	x := newPricer(t)
	if a := x.s.Advice(); a.Short != ShortUnknown || !strings.Contains(a.Arithmetic, "not known yet") {
		t.Errorf("%+v before any request", a)
	}
	minute := func(tokens int, usage float64) {
		for range 60 {
			x.now = x.now.Add(time.Second)
			x.r.Prefilled(0, tokens, time.Duration(tokens)*100*time.Microsecond)
			x.r.traffic.polled(x.r.now(), usage, false)
		}
	}
	for range 20 {
		minute(9000, 0.9) // 0.9 s of work a second
	}
	a := x.s.Advice()
	near(t, "prefill load", a.Prefill.Load, 0.9, 0.05)
	near(t, "decode load", a.Decode.Load, 0.9, 0.05)
	for range 15 {
		minute(1000, 0.3)
	}
	a = x.s.Advice()
	near(t, "prefill load", a.Prefill.Load, 0.1, 0.05)
	near(t, "decode load", a.Decode.Load, 0.3, 0.05)
	near(t, "window", a.WindowSeconds, 14*60, 0.1)
	if a.Prefill.Requests < 14*60 || a.Prefill.Requests > 15*60 {
		t.Errorf("%d requests", a.Prefill.Requests)
	}
	x.now = x.now.Add(time.Hour)
	if a = x.s.Advice(); a.Prefill.Requests != 0 || a.Short != ShortUnknown {
		t.Errorf("%+v after an idle hour", a)
	}
}

// A decode engine with waiting requests is full, whatever its cache says.
func TestAdviceCountsWaitingRequests(t *testing.T) {
	x := newPricer(t)
	for i := range 10 {
		x.r.Prefilled(0, 100, 10*time.Millisecond)
		x.r.traffic.polled(x.r.now(), 0.2, i < 8)
	}
	if a := x.s.Advice(); a.Decode.Load != 0.8 {
		t.Errorf("%+v", a.Decode)
	}
}
