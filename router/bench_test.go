package router

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"xpyd/router/prefix"
)

// Both choices of a request, over pools in which every backend is busy and none or some are marked.
func BenchmarkBothChoices(b *testing.B) {
	for _, n := range []int{2, 16, 512} {
		for _, policy := range Policies() {
			b.Run(fmt.Sprintf("%s/%d", policy, n), func(b *testing.B) { benchChoices(b, n, policy, 0, nil) })
		}
		b.Run(fmt.Sprintf("one_ejected/%d", n), func(b *testing.B) {
			benchChoices(b, n, "least_request", 0, func(c *Config) { c.Health.EjectFor = 1000 * time.Hour })
		})
		b.Run(fmt.Sprintf("affinity/%d", n), func(b *testing.B) { benchChoices(b, n, "least_request", 7, nil) })
		b.Run(fmt.Sprintf("weighted/%d", n), func(b *testing.B) {
			benchChoices(b, n, "least_request", 0, func(c *Config) {
				for i := range c.Decode {
					c.Prefill[i].Weight = float64(1 + i%3)
					c.Decode[i].Weight = float64(1 + i%3)
				}
			})
		})
	}
}

func benchChoices(b *testing.B, n int, policy string, key uint64, change func(*Config)) {
	r, _ := newRouterOf(b, n, n, func(c *Config) {
		c.PrefillPolicy, c.DecodePolicy = policy, policy
		if change != nil {
			change(c)
		}
	})
	s := r.Snapshot()
	if s.health.EjectFor > time.Hour {
		r.Eject(s.Backends(Prefill)[0], EjectFailures)
		r.Eject(s.Backends(Decode)[0], EjectFailures)
	}
	for _, role := range []Role{Prefill, Decode} { // no backend is idle, which would end the search
		for _, x := range s.Backends(role) {
			x.inflight.Add(3)
			x.tokens.Add(3000)
		}
	}
	prefix := []uint64{42}
	b.ReportAllocs()
	var d, p Lease
	for b.Loop() {
		prefix[0]++
		if s.AcquireFor(Want{Role: Decode, Tokens: 1000, Key: key, Prefix: prefix}, &d) != nil ||
			s.AcquireFor(Want{Role: Prefill, Tokens: 1000, Key: key, Prefix: prefix, Peer: d.Backend}, &p) != nil {
			b.Fatal("no lease")
		}
		p.Release(OK)
		d.Release(OK)
	}
}

// Both choices as under pd.mode auto, with prefix in both pools. All backends are busy, the prices
// are known, and some backends have half of the prompt.
func BenchmarkAutoChoices(b *testing.B) {
	weighted := func(c *Config) {
		for i := range c.Decode {
			c.Prefill[i].Weight = float64(1 + i%3)
			c.Decode[i].Weight = float64(1 + i%3)
		}
	}
	for _, n := range []int{2, 16, 512} {
		for _, tc := range []struct {
			name    string
			known   int // blocks
			holders int // of them
			change  func(*Config)
			busy    func(*Backend)
		}{
			{"unknown", 0, 0, nil, nil},
			{"known", 20, 3, nil, nil},
			{"shared", 20, prefix.MaxHolders, nil, nil},
			{"weighted", 20, 3, weighted, nil},
			{"weighted_unknown", 0, 0, weighted, nil},
			{"others", 20, 3, nil, func(x *Backend) { setExternal(x, 2) }},
			{"others_unknown", 0, 0, nil, func(x *Backend) { setExternal(x, 2) }},
			{"computing", 20, 3, nil, func(x *Backend) {
				if x.Role == Decode {
					computes(x, 2000)
				}
			}},
		} {
			b.Run(fmt.Sprintf("%s/%d", tc.name, n), func(b *testing.B) { benchAuto(b, n, tc.known, tc.holders, tc.change, tc.busy) })
		}
	}
}

// setExternal makes the engine report n requests that are not from here, for a long time.
func setExternal(x *Backend, n int64) {
	e := UnknownEngine()
	e.Running, e.Waiting = x.InFlight()+n, 0
	x.SetEngine(e, x.InFlight(), 1000*time.Hour)
}

func benchAuto(b *testing.B, n, known, holders int, change func(*Config), busy func(*Backend)) {
	r, _ := newRouterOf(b, n, n, func(c *Config) {
		c.PrefillPolicy, c.DecodePolicy, c.PD.Mode = "prefix", "", PDAuto
		if change != nil {
			change(c)
		}
	})
	s := r.Snapshot()
	for range 20 {
		for _, n := range []int{200, 8000} {
			r.Prefilled(0, n, time.Duration(n)*100*time.Microsecond)
			r.Computed(s.Backends(Decode)[0], 0, n, time.Duration(n)*100*time.Microsecond)
		}
	}
	for _, p := range []*pool{s.prefill, s.decode} {
		for i, x := range p.backends {
			x.inflight.Add(3)
			x.tokens.Add(3000)
			x.free.Store(r.now() + int64(250*time.Millisecond))
			if busy != nil {
				busy(x)
			}
			if i < holders {
				p.prefix.Insert(chains(text(9, known)...), prefix.Match{Cache: &x.cache}, 0)
			}
		}
	}
	w := want(Decode, slices.Concat(text(9, known), text(8, 40-known))...)
	b.ReportAllocs()
	var d, p Lease
	for b.Loop() {
		w.Role, w.Peer, w.Alone = Decode, nil, false
		if s.AcquireFor(w, &d) != nil {
			b.Fatal("no lease")
		}
		w.Role, w.Peer = Prefill, d.Backend
		if s.AcquireFor(w, &p) != nil {
			b.Fatal("no lease")
		}
		p.Release(OK)
		d.Release(OK)
	}
}
