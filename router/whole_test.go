package router

import (
	"testing"
	"time"

	"xpyd/router/price"
)

// An answer that comes whole holds its lease long after its prompt was computed. No other prompt
// waits for that.
func TestWholeAnswersDoNotComputeForever(t *testing.T) {
	x := newPricer(t)
	x.learn(100, 50, 100)
	leases := [2]Lease{}
	for i := range leases {
		if err := x.s.AcquireFor(Want{Role: Decode, Tokens: 8000}, &leases[i]); err != nil {
			t.Fatal(err)
		}
	}
	streams, whole := &leases[0], &leases[1]
	if n := streams.Compute(1000, true); n != 0 {
		t.Errorf("%d tokens ahead of the first", n)
	}
	near(t, "ahead of the second", float64(whole.Compute(8000, false)), 1000, 0.02)
	wait := func() float64 { return x.d.local(x.r.now(), rateOf(x.r.prices.LocalPace())) }
	near(t, "both", wait(), 9000, 0.02)
	x.now = x.now.Add(400 * time.Millisecond)
	near(t, "half of the whole answer's", wait(), 5000, 0.02)
	streams.Computed()
	x.now = x.now.Add(10 * time.Second)
	if wait() != 0 || !whole.Held() {
		t.Errorf("%g tokens under way, 10 s after a prompt of 0.8 s", wait())
	}
	whole.Release(OK)
	streams.Release(OK)
}

// Estimates that are too high, as of prompts whose cached part is not known, do not add up to more than is in flight.
func TestWholeAnswersComputeNoMoreThanIsInFlight(t *testing.T) {
	x := newPricer(t)
	x.learn(100, 50, 100)
	before := new(Lease)
	for range 200 { // answers that overlap, each of 2.4 s by the estimate and 0.2 s in truth
		l := new(Lease)
		if err := x.s.AcquireFor(Want{Role: Decode, Tokens: 24000}, l); err != nil {
			t.Fatal(err)
		}
		l.Compute(24000, false)
		x.now = x.now.Add(100 * time.Millisecond)
		if before.Held() {
			before.Release(OK)
		}
		before = l
	}
	if n := x.d.local(x.r.now(), rateOf(x.r.prices.LocalPace())); n > 24000 {
		t.Errorf("%.0f tokens to compute, with 24000 in flight", n)
	}
	before.Release(OK)
}

// An answer that comes whole has no time to its first token, so its request is not spent, and what
// decode computed for it counts at the price of such work.
func TestWholeAnswersExploreNothing(t *testing.T) {
	x := newPricer(t)
	x.learn(100, 60, 50)
	for range 600 {
		x.now = x.now.Add(100 * time.Millisecond)
		if d := x.decide(PD{Mode: PDAuto, StallWeight: StallWeight}, x.p, x.d, Prompt{Tokens: 1000, Whole: true}); d.Reason == ReasonExplore {
			t.Fatalf("%+v", d)
		}
		x.r.Prefilled(0, 1000, 100*time.Millisecond) // others'
	}
	fresh := newPricer(t)
	fresh.r.Prefilled(0, 1000, 100*time.Millisecond)
	before := fresh.d.LocalTime()
	fresh.r.Computed(fresh.d, 0, 1000, -1)
	near(t, "seconds of decode", (fresh.d.LocalTime() - before).Seconds(), 0.1, 0.02)
	if p := fresh.r.Prices(); p[price.Local.String()] != (price.Price{}) {
		t.Errorf("learned from an answer without a time: %+v", p)
	}
}

// Where most answers come whole, they count among the requests of which one in a hundred is spent, so that the few
// streams soon tell.
func TestFewStreamsExploreForAllRequests(t *testing.T) {
	x := newPricer(t)
	x.learn(100, 60, 50)
	auto := PD{Mode: PDAuto, StallWeight: StallWeight}
	for range 60 {
		for range 20 {
			x.now = x.now.Add(50 * time.Millisecond)
			x.decide(auto, x.p, x.d, Prompt{Tokens: 1000, Whole: true})
		}
		if d := x.decide(auto, x.p, x.d, Prompt{Tokens: 1000}); d.Reason == ReasonExplore {
			return
		}
		x.r.Computed(x.d, 0, 1000, 50*time.Millisecond)
	}
	t.Error("in a minute with 60 streams and 1,200 whole answers, no request tried the split")
}

// The only stream, a try by hand, had a slow transfer. Answers that come whole cannot correct its price.
func TestASlowTransferDoesNotKeepWholeAnswersOnDecode(t *testing.T) {
	x := newPricer(t)
	x.r.Prefilled(0, 500, 50*time.Millisecond)
	x.r.Pulled(0, 500, 2*time.Second)
	x.d.inflight.Add(20)
	split := func() bool {
		d := x.decide(PD{Mode: PDAuto, StallWeight: StallWeight}, x.p, x.d, Prompt{Tokens: 1500, Whole: true})
		if d.Split {
			x.r.Prefilled(0, 1500, 150*time.Millisecond)
		}
		return d.Split
	}
	if split() {
		t.Error("a transfer of 6 s is expected, and the request is split")
	}
	for range 600 {
		x.now = x.now.Add(time.Second)
		split()
	}
	if !split() {
		t.Error("ten minutes later, requests still go to decode because of one transfer")
	}
}
