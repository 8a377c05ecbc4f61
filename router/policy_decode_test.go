package router

import (
	"slices"
	"sync"
	"testing"
	"time"
)

// computes makes b begin with a prompt of its own.
func computes(b *Backend, tokens int) { (&Lease{Backend: b}).Compute(tokens, true) }

// What a decode engine has in flight is decoded, not computed, so long prompts there cause no wait.
// Prompts that it computes itself do, and streams slow each other down.
func TestDecodeByPrefix(t *testing.T) {
	for _, tc := range []struct {
		name  string
		busy  func(*Backend) // the one that has the conversation
		stays bool
	}{
		{"idle", func(*Backend) {}, true},
		{"one stream of a long prompt", func(b *Backend) { b.inflight.Add(1); b.tokens.Add(50_000) }, true},
		{"ten streams", func(b *Backend) { b.inflight.Add(10) }, true},
		{"a hundred streams", func(b *Backend) { b.inflight.Add(100) }, false},
		{"it computes a long prompt", func(b *Backend) { b.inflight.Add(1); computes(b, 50_000) }, false},
		{"it computes a short one", func(b *Backend) { b.inflight.Add(1); computes(b, 500) }, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newPrefixRouter(t, 1, 4)
			turn := text(1, 20) // 1280 tokens
			l, first := take(t, r, want(Decode, turn...))
			l.Release(OK)
			tc.busy(l.Backend)
			if _, second := take(t, r, want(Decode, slices.Concat(turn, text(2, 2))...)); (second == first) != tc.stays {
				t.Errorf("first %s, then %s", first, second)
			}
		})
	}
}

// On average a prompt that decode computes itself is half done, too.
func TestLocalPromptIsNearlyDone(t *testing.T) {
	x := newPricer(t)
	x.learn(100, 50, 100)
	wait := func() float64 { return x.d.local(x.r.now(), rateOf(x.r.prices.LocalPace())) }
	first, second := Lease{Backend: x.d}, Lease{Backend: x.d}
	first.Compute(1000, true)
	x.now = x.now.Add(60 * time.Millisecond)
	near(t, "at 60 %", wait(), 400, 0.02)
	near(t, "ahead of the second", float64(second.Compute(2000, true)), 400, 0.02)
	near(t, "both", wait(), 2400, 0.02)
	x.now = x.now.Add(time.Minute)
	near(t, "all but one, of an engine that is slower than thought", wait(), 1500, 0.02)
	first.Computed()
	second.Computed()
	if wait() != 0 {
		t.Errorf("%g tokens wait for nobody", wait())
	}
	for range 9 { // prompts too short to count
		empty := Lease{Backend: x.d}
		empty.Compute(0, true)
		empty.Computed()
	}
	first.Compute(1000, true)
	x.now = x.now.Add(60 * time.Millisecond)
	near(t, "at 60 %, behind empty ones", wait(), 400, 0.02)
}

// What waits for a prompt that takes longer than expected starts when that is done. A prompt that
// fails leaves at once.
func TestLocalPromptBehindASlowOne(t *testing.T) {
	x := newPricer(t)
	x.learn(100, 50, 100)
	wait := func() float64 { return x.d.local(x.r.now(), rateOf(x.r.prices.LocalPace())) }
	slow, next, last := Lease{Backend: x.d}, Lease{Backend: x.d}, Lease{Backend: x.d}
	slow.Compute(1000, true)
	next.Compute(2000, true)
	x.now = x.now.Add(time.Minute)
	slow.Computed()
	near(t, "behind the slow one", wait(), 2000, 0.02)
	x.now = x.now.Add(50 * time.Millisecond)
	near(t, "50 ms later", wait(), 1500, 0.02)
	near(t, "ahead of the last", float64(last.Compute(300, true)), 1500, 0.02)
	next.endLocal()
	near(t, "without the one before", wait(), 300, 0.02)
}

// Prompts that come at the same time all count.
func TestLocalPromptsAtOnce(t *testing.T) {
	x := newPricer(t)
	x.learn(100, 50, 100)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 5000 {
				x.d.tokens.Add(1) // as with a lease that is held
				(&Lease{Backend: x.d}).Compute(1, false)
			}
		})
	}
	all.Wait()
	near(t, "all", x.d.local(x.r.now(), rateOf(x.r.prices.LocalPace())), 20_000, 0.01)
}

// Without a policy of its own, decode uses prefix if it computes prompts itself.
func TestDecodePolicyOfNoName(t *testing.T) {
	for _, tc := range []struct {
		name, want string
		change     func(*Config)
	}{
		{"always", "least_request", func(*Config) {}},
		{"auto", "prefix", func(c *Config) { c.PD.Mode = PDAuto }},
		{"never", "prefix", func(c *Config) { c.PD.Mode = PDNever }},
		{"threshold", "prefix", func(c *Config) { c.PD.ThresholdTokens = 1 }},
		{"no prefill", "prefix", func(c *Config) { c.Prefill = nil }},
		{"named", "random", func(c *Config) { c.PD.Mode, c.DecodePolicy = PDAuto, "random" }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, _ := newRouterOf(t, 1, 1, func(c *Config) { c.DecodePolicy = ""; tc.change(c) })
			if got := r.Snapshot().decode.policyName; got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
}
