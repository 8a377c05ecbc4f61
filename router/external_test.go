package router

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// byLoad are the policies that use what is in flight.
func byLoad() []string {
	return []string{"least_request", "least_tokens", "power_of_two", "power_of_two_tokens", "prefix"}
}

// newLoadRouter has n backends in each pool, chosen from by the policy, and no slow start.
func newLoadRouter(t testing.TB, policy string, n int) (*Router, *handClock) {
	return newRouterOf(t, n, n, func(c *Config) {
		c.PrefillPolicy, c.DecodePolicy = policy, policy
		c.Health.SlowStart = 0
	})
}

// holder takes leases for prompts of 640 tokens that all begin differently.
type holder struct {
	t    *testing.T
	r    *Router
	role Role
	next uint64
}

// hold takes n leases and returns how many each backend got.
func (h *holder) hold(n int) []int {
	h.t.Helper()
	all := h.r.Snapshot().Backends(h.role)
	got := make([]int, len(all))
	for range n {
		h.next++
		l, _ := take(h.t, h.r, want(h.role, text(h.next, 10)...))
		got[slices.Index(all, l.Backend)]++
	}
	return got
}

func (h *holder) wants(what string, got []int, want ...int) {
	h.t.Helper()
	if !slices.Equal(got, want) {
		h.t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// A backend with other clients' requests is passed over until all have as many, and then takes its
// part. It comes back as its last reading grows old.
func TestLoadFromElsewhere(t *testing.T) {
	for _, policy := range byLoad() {
		for _, role := range []Role{Prefill, Decode} {
			t.Run(fmt.Sprintf("%s/%s", policy, role), func(t *testing.T) {
				r, clock := newLoadRouter(t, policy, 2)
				h := holder{t: t, r: r, role: role}
				b := r.Snapshot().Backends(role)[0]
				h.wants("nothing known", h.hold(2), 1, 1)
				b.SetEngine(loaded(6, 3), 1, 3*time.Second)
				h.wants("8 of others", h.hold(8), 0, 8)
				h.wants("even", h.hold(4), 2, 2)
				clock.advance(2 * time.Second) // half of them is forgotten
				h.wants("half as many", h.hold(4), 4, 0)
				h.wants("even again", h.hold(4), 2, 2)
				clock.advance(time.Second)
				h.wants("forgotten", h.hold(4), 4, 0)
				if word := b.inflight.word.Load(); word >= marked {
					t.Errorf("choices look at all of %s for ever", name(b))
				}
				b.SetEngine(loaded(100, 0), 13, 3*time.Second)
				b.SetEngine(loaded(13, 0), 13, 3*time.Second)
				h.wants("the others have gone", h.hold(4), 2, 2)
			})
		}
	}
}

// engines are what the replicas share: each engine's requests, by URL.
type engines map[string]int64

// poll tells every replica about all requests, as a reading of each engine does.
func (e engines) poll(replicas []*Router) {
	for _, r := range replicas {
		for _, b := range r.Snapshot().Backends(Decode) {
			b.SetEngine(loaded(e[b.URL], 0), b.InFlight(), 3*time.Second)
		}
	}
}

// Replicas that never talk to each other keep the engines even by their metrics, however requests
// come and go.
func TestReplicasSpreadEvenly(t *testing.T) {
	for _, policy := range []string{"least_request", "least_tokens", "prefix"} {
		t.Run(policy, func(t *testing.T) {
			shared, rnd := engines{}, rand.New(rand.NewPCG(1, 2))
			var replicas []*Router
			for range 2 {
				r, _ := newLoadRouter(t, policy, 4)
				replicas = append(replicas, r)
			}
			var open []*Lease
			for i := range uint64(400) {
				shared.poll(replicas)
				if len(open) > 2+int(i)%9 {
					n := rnd.IntN(len(open))
					shared[open[n].Backend.URL]--
					open[n].Release(OK)
					open = slices.Delete(open, n, n+1)
					continue
				}
				least := int64(1 << 62)
				for _, b := range replicas[0].Snapshot().Backends(Decode) {
					least = min(least, shared[b.URL])
				}
				l, where := take(t, replicas[rnd.IntN(2)], want(Decode, text(i+1, 10)...))
				if n := shared[l.Backend.URL]; n > least {
					t.Fatalf("request %d goes to %s with %d in flight, the least is %d", i, where, n, least)
				}
				shared[l.Backend.URL]++
				open = append(open, l)
			}
		})
	}
}

func TestChoiceByLoadFromElsewhereAllocatesNothing(t *testing.T) {
	for _, policy := range byLoad() {
		r, _ := newLoadRouter(t, policy, 16)
		s, w := r.Snapshot(), want(Decode, text(1, 10)...)
		for i, b := range s.Backends(Decode) {
			b.SetEngine(loaded(int64(i), 0), 0, time.Hour)
		}
		var l Lease
		if n := testing.AllocsPerRun(200, func() {
			if s.AcquireFor(w, &l) != nil {
				t.Fatal("no lease")
			}
			l.Release(OK)
		}); n != 0 {
			t.Errorf("%s: %v allocations", policy, n)
		}
	}
}

// The time of a prefill next to other clients' requests is learned over their tokens too, so that
// the price of a token does not rise with their load.
func TestAheadCountsTheOthers(t *testing.T) {
	r, _ := newLoadRouter(t, "prefix", 1)
	h := holder{t: t, r: r, role: Prefill}
	h.hold(2)
	r.Snapshot().Backends(Prefill)[0].SetEngine(loaded(5, 0), 2, time.Hour)
	l, _ := take(t, r, want(Prefill, text(99, 10)...))
	if l.Ahead() != 5*640 {
		t.Errorf("%d tokens ahead, want those of 2 prompts from here and 3 from elsewhere, %d", l.Ahead(), 5*640)
	}
}

// Other clients' load on either engine is a part of the price of its way, for as long as it counts.
func TestDecideCountsTheOthers(t *testing.T) {
	for _, tc := range []struct {
		name     string
		streams  int64   // of this process on D
		onP, onD int64   // requests of others
		transfer float64 // µs a token
		split    bool
		stale    bool // the same once the readings count no more
	}{
		{"P has work of nobody", 20, 0, 0, 10, true, true},
		{"P has work of others", 20, 50, 0, 10, false, true},
		{"D has streams of nobody", 0, 0, 0, 50, false, false},
		{"D has streams of others", 0, 0, 40, 50, true, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			x := newPricer(t)
			x.learn(100, tc.transfer, 100)
			x.r.prompts[Prefill].Add(1000)
			x.d.inflight.Add(tc.streams + 1)
			x.p.SetEngine(loaded(tc.onP, 0), 0, 3*time.Second)
			x.d.SetEngine(loaded(tc.onD, 0), 0, 3*time.Second)
			for _, want := range []bool{tc.split, tc.stale} {
				if d := x.decide(PD{Mode: PDAuto, StallWeight: StallWeight}, x.p, x.d, Prompt{Tokens: 1000}); d.Split != want || d.Reason != ReasonPrice {
					t.Errorf("%+v, want a split: %v", d, want)
				}
				x.now = x.now.Add(3 * time.Second)
			}
		})
	}
}
