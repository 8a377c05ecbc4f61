package router

import (
	"fmt"
	"testing"
	"time"
)

// Both choices of a request over pools in which each backend is busy, and of which some are
// marked, or none.
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
					c.Prefill[i] += fmt.Sprintf(" weight=%d", 1+i%3)
					c.Decode[i] += fmt.Sprintf(" weight=%d", 1+i%3)
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
	for _, role := range []Role{Prefill, Decode} { // nobody idle, who would end the search
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
