package router

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"xpyd/internal/racetest"
)

// seed gives the random policies of r fixed sequences of their own.
func seed(r *Router, n uint64) {
	s := r.Snapshot()
	for _, p := range []*pool{s.prefill, s.decode} {
		var mu sync.Mutex
		rnd := rand.New(rand.NewPCG(n, uint64(p.role)))
		source := func() uint64 { mu.Lock(); defer mu.Unlock(); return rnd.Uint64() }
		switch x := p.policy.(type) {
		case randomly:
			p.policy = randomly{source}
		case powerOfTwo:
			p.policy = powerOfTwo{source, x.tokens}
		}
	}
}

// even are the policies that are not random.
func even() []string {
	return slices.DeleteFunc(Policies(), func(p string) bool { return p == "random" || strings.HasPrefix(p, "power_") })
}

// counts are how many of n requests each decode backend gets, if they stay open (held) or end at
// once. For a policy that balances held tokens, it counts these. Each prompt has the next of 7
// lengths and the next of 5000 beginnings.
func counts(t *testing.T, s *Snapshot, n int, held bool) []int {
	t.Helper()
	got := make([]int, len(s.Backends(Decode)))
	leases := make([]Lease, n)
	for i := range leases {
		l := &leases[i]
		w := Want{Role: Decode, Tokens: 10 * (1 + i%7), Alone: true, Prefix: []uint64{mix(uint64(i % 5000))}}
		if err := s.AcquireFor(w, l); err != nil {
			t.Fatal(err)
		}
		got[slices.Index(s.Backends(Decode), l.Backend)]++
		if !held {
			l.Release(ClientGone)
		}
	}
	for i, b := range s.Backends(Decode) {
		if _, aware := s.decode.policy.(prefixed); held && (aware || strings.Contains(s.decode.policyName, "tokens")) {
			got[i] = int(b.tokens.Load())
		}
	}
	for i := range leases {
		leases[i].Release(ClientGone)
	}
	return got
}

// shares wants got to be in proportion to want, each within the part tolerance of it.
func shares(t *testing.T, what string, got []int, want []float64, tolerance float64) {
	t.Helper()
	sum, all := 0.0, 0
	for i := range want {
		sum, all = sum+want[i], all+got[i]
	}
	for i := range want {
		if e := float64(all) * want[i] / sum; math.Abs(float64(got[i])-e) > tolerance*e+1 {
			t.Errorf("%s: %v of %d, want them as %v", what, got, all, want)
			return
		}
	}
}

// A backend that is only named, for example for its price, is the one that the next request gets,
// and no turn is lost.
func TestPickTakesNoTurn(t *testing.T) {
	for _, policy := range even() {
		for _, entries := range [][]string{{"http://a", "http://b"}, {"http://a weight=2", "http://b"}} {
			r, _ := newRouterOf(t, 0, 0, func(c *Config) { c.Decode, c.DecodePolicy = MustEntries(entries...), policy })
			s, got := r.Snapshot(), [2]int{}
			for i := range 300 {
				w := Want{Role: Decode, Tokens: 100, Alone: true, Prefix: []uint64{mix(uint64(i))}}
				named := s.Pick(w)
				var l Lease
				if err := s.AcquireFor(w, &l); err != nil {
					t.Fatal(err)
				}
				if named != l.Backend {
					t.Fatalf("%s: %s was named, %s taken", policy, named.URL, l.Backend.URL)
				}
				got[slices.Index(s.Backends(Decode), l.Backend)]++
				l.Release(ClientGone)
			}
			if got[0] < 110 || got[1] < 80 {
				t.Errorf("%s of %v: %v", policy, entries, got)
			}
		}
	}
}

func TestPoliciesShareByWeight(t *testing.T) {
	racetest.SkipPure(t)
	for _, tc := range []struct {
		name    string
		entries []string
		want    []float64
	}{
		{"equal", []string{"http://a", "http://b", "http://c"}, []float64{1, 1, 1}},
		{"one of two has twice", []string{"http://a weight=2", "http://b"}, []float64{2, 1}},
		{"one has a quarter", []string{"http://a", "http://b weight=0.25", "http://c"}, []float64{4, 1, 4}},
		{"all the same but not 1", []string{"http://a weight=3", "http://b weight=3"}, []float64{1, 1}},
		{"three kinds", []string{"http://a weight=1", "http://b weight=2", "http://c weight=4"}, []float64{1, 2, 4}},
	} {
		for _, policy := range Policies() {
			for _, held := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s/%s/held_%v", tc.name, policy, held), func(t *testing.T) {
					r, _ := newRouterOf(t, 0, 0, func(c *Config) { c.Decode, c.DecodePolicy = MustEntries(tc.entries...), policy })
					got, tolerance := counts(t, r.Snapshot(), 4200, held), 0.1
					if strings.HasPrefix(policy, "power_") && !held {
						tolerance = 0.35 // two of three are always two different ones
					}
					shares(t, tc.name, got, tc.want, tolerance)
				})
			}
		}
	}
}

func TestPoliciesLeaveOutWhoIsNotFit(t *testing.T) {
	for _, tc := range []struct {
		name string
		by   func(r *Router, b *Backend)
	}{
		{"down", func(r *Router, b *Backend) { b.force(Down) }},
		{"ejected", func(r *Router, b *Backend) { r.Eject(b, EjectFailures) }},
		{"asked to be left alone", func(r *Router, b *Backend) { b.Defer(time.Minute) }},
	} {
		for _, policy := range Policies() {
			t.Run(tc.name+"/"+policy, func(t *testing.T) {
				r, _ := newRouterOf(t, 0, 4, func(c *Config) { c.DecodePolicy = policy })
				s := r.Snapshot()
				counts(t, s, 50, true) // now none of them is marked
				tc.by(r, s.Backends(Decode)[2])
				shares(t, tc.name, counts(t, s, 4000, true), []float64{1, 1, 0, 1}, 0.15)
			})
		}
	}
}

// A backend that is fit again gets requests again.
func TestPoliciesTakeWhoIsFitAgain(t *testing.T) {
	for _, policy := range Policies() {
		t.Run(policy, func(t *testing.T) {
			r, clock := newRouterOf(t, 0, 3, func(c *Config) { c.DecodePolicy = policy })
			s := r.Snapshot()
			b := s.Backends(Decode)[1]
			r.Eject(b, EjectFailures)
			b.Defer(time.Minute)
			if got := counts(t, s, 60, true); got[1] != 0 {
				t.Fatalf("%v with an ejected one", got)
			}
			clock.advance(2 * time.Minute)
			shares(t, "after its ramp", counts(t, s, 3000, true), []float64{1, 1, 1}, 0.1)
			if b.inflight.word.Load() != 0 {
				t.Error("it is still looked at more closely than the others")
			}
		})
	}
}

func TestCapsHoldWithEachPolicy(t *testing.T) {
	for _, policy := range Policies() {
		t.Run(policy, func(t *testing.T) {
			r, _ := newRouterOf(t, 0, 0, func(c *Config) {
				c.Decode, c.DecodePolicy, c.DecodeMaxInFlight = MustEntries("http://a weight=5", "http://b", "http://c"), policy, 4
			})
			s := r.Snapshot()
			var leases [12]Lease
			for i := range leases {
				if err := s.AcquireFor(Want{Role: Decode, Key: 7, Alone: true}, &leases[i]); err != nil {
					t.Fatalf("request %d of 12 in room for 12: %v", i, err)
				}
			}
			var l Lease
			if err := s.Acquire(Decode, 1, nil, &l); err != ErrBusy {
				t.Errorf("one more: %v, want %v", err, ErrBusy)
			}
			if s.Pick(Want{Role: Decode}) == nil {
				t.Error("a call that takes no slot needs none")
			}
		})
	}
}

// Counted in tokens, a long prompt weighs more than several short ones.
func TestTokensAreTheLoad(t *testing.T) {
	for _, policy := range []string{"least_tokens", "power_of_two_tokens"} {
		s, _ := newTestRouter(t, policy, nil, three[:2])
		var long, l Lease
		if err := s.Acquire(Decode, 10_000, nil, &long); err != nil {
			t.Fatal(err)
		}
		for i := range 9 {
			l = Lease{}
			if err := s.Acquire(Decode, 1000, nil, &l); err != nil || l.Backend == long.Backend {
				t.Fatalf("%s: short prompt %d goes to the long one's backend (%v)", policy, i, err)
			}
		}
		long.Release(OK)
		if err := s.Acquire(Decode, 1, nil, &long); err != nil || long.Backend == l.Backend {
			t.Errorf("%s: the idle one is not taken (%v)", policy, err)
		}
	}
}

// Of two that are drawn, the idle one is taken. If one of three backends is idle, it gets the two
// thirds of the requests for which it is drawn.
func TestPowerOfTwoComparesTwo(t *testing.T) {
	r, _ := newRouterOf(t, 0, 3, func(c *Config) { c.DecodePolicy = "power_of_two" })
	s := r.Snapshot()
	for _, b := range s.Backends(Decode)[:2] {
		b.inflight.Add(5)
	}
	shares(t, "idle, two busy", counts(t, s, 6000, false), []float64{1, 1, 4}, 0.1)
}

func TestRampWithWeight(t *testing.T) {
	for _, policy := range Policies() {
		r, clock := newRouterOf(t, 0, 0, func(c *Config) { c.Decode, c.DecodePolicy = MustEntries("http://a", "http://b weight=0.5"), policy })
		s := r.Snapshot()
		s.Backends(Decode)[1].force(Down)
		s.Backends(Decode)[1].force(Up)
		clock.advance(s.Health().SlowStart / 2)
		shares(t, policy+": half a weight, half a ramp", counts(t, s, 5000, true), []float64{4, 1}, 0.12)
	}
}

func TestReloadChangesWeights(t *testing.T) {
	racetest.SkipPure(t)
	for _, policy := range Policies() {
		r, _ := newRouterOf(t, 0, 0, func(c *Config) { c.Decode, c.DecodePolicy = MustEntries("http://a", "http://b"), policy })
		b := slices.Clone(r.Snapshot().Backends(Decode))
		for _, tc := range []struct {
			entries []string
			want    []float64
		}{
			{[]string{"http://a weight=3", "http://b"}, []float64{3, 1}},
			{[]string{"http://a weight=3", "http://b weight=3"}, []float64{1, 1}},
			{[]string{"http://a", "http://b weight=4"}, []float64{1, 4}},
			{[]string{"http://a", "http://b"}, []float64{1, 1}},
		} {
			cfg := DefaultConfig()
			cfg.Decode, cfg.DecodePolicy = MustEntries(tc.entries...), policy
			if _, err := r.Reload(cfg, 0.25, nil); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(r.Snapshot().Backends(Decode), b) {
				t.Fatal("another weight makes another backend")
			}
			shares(t, policy, counts(t, r.Snapshot(), 5000, true), tc.want, 0.12)
		}
	}
}

func TestParseEntry(t *testing.T) {
	for text, want := range map[string]Entry{
		"http://a:1":                    {URL: "http://a:1", Weight: 1, State: Ready},
		"http://a:1 weight=2":           {URL: "http://a:1", Weight: 2, State: Ready},
		"  http://a:1   weight=0.25 ":   {URL: "http://a:1", Weight: 0.25, State: Ready},
		"http://a:1 weight=100":         {URL: "http://a:1", Weight: 100, State: Ready},
		"http://a:1 gpus=4":             {URL: "http://a:1", Weight: 4, GPUs: 4, State: Ready},
		"http://a:1 gpus=256":           {URL: "http://a:1", Weight: 100, GPUs: 256, State: Ready},
		"http://a:1 weight=1.5 gpus=4":  {URL: "http://a:1", Weight: 1.5, GPUs: 4, State: Ready},
		"http://a:1 weight=1 gpus=0.25": {URL: "http://a:1", Weight: 1, GPUs: 0.25, State: Ready},
		"http://a:1 bootstrap=8998":     {URL: "http://a:1", Weight: 1, Bootstrap: 8998, State: Ready},
	} {
		e, err := ParseEntry(text)
		if e != want || err != nil {
			t.Errorf("%q: %+v, %v", text, e, err)
		}
		if again := e.String(); again != strings.Join(strings.Fields(text), " ") {
			t.Errorf("%q is written %q", text, again)
		}
	}
	if e, err := ParseEntry("http://a:1 gpus=2 weight=2"); err != nil || e.String() != "http://a:1 gpus=2" {
		t.Errorf("%s, %v", e, err)
	}
	const (
		weight = "must have one weight from 0.01 to 100; try http://a:1 weight=2"
		gpus   = "must have one number of GPUs from 0.01 to 4096; try http://a:1 gpus=4"
		port   = "must have one port of a bootstrap server from 1 to 65535; try http://a:1 bootstrap=8998"
		state  = "must have one of the states ready, drain and disabled; try http://a:1 state=drain"
	)
	unknown := func(word string) string {
		return `has an unknown option "` + word + `"; allowed: weight=NUMBER, gpus=NUMBER, bootstrap=PORT, connector=NAME, kv_events=ADDRESS, kv_replay=ADDRESS, state=STATE`
	}
	for text, want := range map[string]string{
		"weight=0": weight, "weight=-1": weight, "weight=NaN": weight, "weight=Inf": weight, "weight=": weight, "weight": weight, "weight=1 weight=2": weight,
		"gpus=0": gpus, "gpus=x": gpus, "gpus=4 gpus=4": gpus, "gpus=NaN": gpus, "bootstrap=0": port, "bootstrap=65536": port, "bootstrap=1.5": port, "bootstrap=": port, "bootstrap=1 bootstrap=2": port, "state=off": state, "state=drain state=ready": state,
		"wieght=2": unknown("wieght=2"), "2": unknown("2"), "weight=2 3": unknown("3"), "Weight=2": unknown("Weight=2"),
		"api_key=sesame": unknown("api_key=…"), "http://me:sesame@b:1": unknown("http://b:1"), "x=me:sesame@b:1": unknown("b:1"), "http://b:1?key=sesame": unknown("http://b:1=…"),
	} {
		if e, err := ParseEntry("http://a:1 " + text); err == nil || err.Error() != want || e.URL != "http://a:1" {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}
