package router

import (
	"math"
	"runtime"
	"testing"
	"time"
)

// pricer is a 1P1D router with a clock that is moved by hand.
type pricer struct {
	r    *Router
	s    *Snapshot
	p, d *Backend
	now  time.Time
}

func newPricer(t *testing.T) *pricer {
	t.Helper()
	x := &pricer{now: time.Unix(1000, 0)}
	cfg := DefaultConfig()
	cfg.Prefill, cfg.Decode = MustEntries("http://p:1"), MustEntries("http://d:1")
	r, err := New(cfg, 0.5, func() time.Time { return x.now })
	if err != nil {
		t.Fatal(err)
	}
	x.r, x.s = r, r.Snapshot()
	x.p, x.d = x.s.Backends(Prefill)[0], x.s.Backends(Decode)[0]
	return x
}

// learn makes each work cost that many microseconds a token, from prompts of two lengths.
func (x *pricer) learn(prefill, transfer, local float64) {
	for range 40 {
		for _, n := range []int{200, 8000} {
			at := func(each float64) time.Duration { return time.Duration(float64(n) * each * 1e3) }
			x.r.Prefilled(0, n, at(prefill))
			x.r.Pulled(0, n, at(transfer))
			x.r.Computed(x.d, 0, n, at(local))
		}
		x.now = x.now.Add(100 * time.Millisecond)
	}
}

func (x *pricer) decide(pd PD, p, d *Backend, prompt Prompt) Decision {
	x.s.pd = pd
	return x.s.Decide(p, d, prompt)
}

func TestDecideModes(t *testing.T) {
	x := newPricer(t)
	for name, c := range map[string]struct {
		pd     PD
		prompt Prompt
		split  bool
		reason Reason
	}{
		"always":                   {PD{Mode: PDAlways}, Prompt{Tokens: 1}, true, ReasonAlways},
		"never":                    {PD{Mode: PDNever}, Prompt{Tokens: 100000}, false, ReasonNever},
		"below the threshold":      {PD{Mode: PDAlways, ThresholdTokens: 512}, Prompt{Tokens: 511}, false, ReasonShort},
		"at the threshold":         {PD{Mode: PDAlways, ThresholdTokens: 512}, Prompt{Tokens: 512}, true, ReasonAlways},
		"D has most of it":         {PD{Mode: PDAlways, ThresholdTokens: 512}, Prompt{Tokens: 9000, CachedDecode: 8600}, false, ReasonShort},
		"P has it, D has not":      {PD{Mode: PDAlways, ThresholdTokens: 512}, Prompt{Tokens: 9000, CachedPrefill: 8600}, true, ReasonAlways},
		"legs at once, auto":       {PD{Mode: PDAuto, StallWeight: StallWeight}, Prompt{Tokens: 9, AtOnce: true}, true, ReasonAlways},
		"legs at once, never":      {PD{Mode: PDNever}, Prompt{Tokens: 9000, AtOnce: true}, false, ReasonNever},
		"legs at once, short":      {PD{Mode: PDAuto, StallWeight: StallWeight, ThresholdTokens: 512}, Prompt{Tokens: 9, AtOnce: true}, false, ReasonShort},
		"auto keeps the threshold": {PD{Mode: PDAuto, StallWeight: StallWeight, ThresholdTokens: 512}, Prompt{Tokens: 100}, false, ReasonShort},
	} {
		t.Run(name, func(t *testing.T) {
			if d := x.decide(c.pd, x.p, x.d, c.prompt); d.Split != c.split || d.Reason != c.reason {
				t.Errorf("%+v", d)
			}
		})
	}
	if d := x.decide(PD{Mode: PDAuto, StallWeight: StallWeight}, nil, x.d, Prompt{Tokens: 10}); !d.Split {
		t.Error("no prefill backend: the request is not disaggregated, which is for others to degrade")
	}
}

func TestAutoTakesTheCheaperWay(t *testing.T) {
	auto := PD{Mode: PDAuto, StallWeight: StallWeight}
	for name, c := range map[string]struct {
		prefill, transfer, local float64 // µs a token
		streams                  int     // that run on D
		queued                   int64   // tokens on P
		computing                int64   // tokens that D computes by itself
		prompt                   Prompt
		split                    bool
	}{
		"transfer costs more than it saves": {100, 50, 100, 0, 0, 0, Prompt{Tokens: 1000}, false},
		"D's streams are worth a transfer":  {100, 50, 100, 40, 0, 0, Prompt{Tokens: 1000}, true},
		"P is saturated":                    {100, 1, 100, 10, 50000, 0, Prompt{Tokens: 1000}, false},
		"D computes for others already":     {100, 50, 100, 0, 0, 50000, Prompt{Tokens: 1000}, true},
		"P has the prefix":                  {100, 10, 100, 0, 0, 0, Prompt{Tokens: 8000, CachedPrefill: 7900}, true},
		"D has the prefix":                  {100, 10, 100, 10, 0, 0, Prompt{Tokens: 8000, CachedDecode: 7900}, false},
	} {
		t.Run(name, func(t *testing.T) {
			x := newPricer(t)
			x.learn(c.prefill, c.transfer, c.local)
			x.p.enqueue(c.queued)
			(&Lease{Backend: x.d}).Compute(int(c.computing), true)
			x.d.inflight.Add(int64(c.streams) + 1)
			if d := x.decide(auto, x.p, x.d, c.prompt); d.Split != c.split || d.Reason != ReasonPrice {
				t.Errorf("%+v", d)
			}
		})
	}
}

// Short prompts say little of the price of long ones, so the first of these goes to P, where decode alone
// seems cheaper. The others do not wait for it there.
func TestAutoTriesTheFirstLongPrompt(t *testing.T) {
	auto := PD{Mode: PDAuto, StallWeight: StallWeight}
	start := func() *pricer {
		x := newPricer(t)
		for range 9 {
			x.r.Prefilled(0, 200, 90*time.Millisecond) // behind others
			x.r.Computed(x.d, 0, 200, 10*time.Millisecond)
		}
		return x
	}
	long := Prompt{Tokens: 5000}
	for name, c := range map[string]struct {
		before func(x *pricer)
		prompt Prompt
		want   Decision
	}{
		"the first":                       {func(*pricer) {}, long, Decision{Split: true, Reason: ReasonExplore}},
		"one of a known length":           {func(*pricer) {}, Prompt{Tokens: 700}, Decision{Reason: ReasonPrice}},
		"P has all but a known length":    {func(*pricer) {}, Prompt{Tokens: 5000, CachedPrefill: 4500}, Decision{Split: true, Reason: ReasonPrice}},
		"another is on its way":           {func(x *pricer) { x.p.enqueue(5000) }, long, Decision{Reason: ReasonPrice}},
		"one has come":                    {func(x *pricer) { x.r.Prefilled(0, 5000, 2*time.Second) }, long, Decision{Reason: ReasonPrice}},
		"a transfer has waited 5 seconds": {func(x *pricer) { x.d.pulling.begin(1000, x.r.now()); x.now = x.now.Add(exploreAfter) }, long, Decision{Reason: ReasonPrice}},
	} {
		t.Run(name, func(t *testing.T) {
			x := start()
			c.before(x)
			if d := x.decide(auto, x.p, x.d, c.prompt); d.Split != c.want.Split || d.Reason != c.want.Reason {
				t.Errorf("%+v, want %+v", d, c.want)
			}
		})
	}
}

// If the prefills of long prompts fail, no price of them comes. Most of these prompts go to D all the same.
func TestAutoTriesOneLongPromptASecond(t *testing.T) {
	auto := PD{Mode: PDAuto, StallWeight: StallWeight}
	x := newPricer(t)
	for range 9 {
		x.r.Prefilled(0, 200, 90*time.Millisecond)
		x.r.Computed(x.d, 0, 200, 10*time.Millisecond)
	}
	tried := 0
	for range 50 {
		if d := x.decide(auto, x.p, x.d, Prompt{Tokens: 5000}); d.Reason == ReasonExplore {
			tried++
		}
		x.now = x.now.Add(50 * time.Millisecond)
	}
	if tried != 3 {
		t.Errorf("%d of 50 prompts in 2.5 seconds were split to learn their price", tried)
	}
}

// An operator who gives pauses of running answers a higher weight has more requests split.
func TestAutoWeighsStalls(t *testing.T) {
	for weight, split := range map[float64]bool{0: false, 1: false, 4: true} {
		x := newPricer(t)
		x.learn(100, 150, 100) // the split costs 250 ms, decode alone 100 ms and a pause of 100 ms
		x.d.inflight.Add(2)    // one stream runs beside this request
		d := x.decide(PD{Mode: PDAuto, StallWeight: weight}, x.p, x.d, Prompt{Tokens: 1000})
		if d.Split != split || d.Reason != ReasonPrice {
			t.Errorf("weight %g: %+v", weight, d)
		}
	}
}

// Transfers under way are dear at least as long as one of them has waited. Once one has ended, its own
// price counts again, and so do the others from then on.
func TestAutoCountsTransfersUnderWay(t *testing.T) {
	x := newPricer(t)
	auto := PD{Mode: PDAuto, StallWeight: StallWeight}
	for range 40 {
		x.r.Prefilled(0, 1000, 100*time.Millisecond) // decode alone is taken to cost as much
	}
	split := func() bool { return x.decide(auto, x.p, x.d, Prompt{Tokens: 1000}).Split }
	x.d.inflight.Add(3) // two streams run, which makes decode alone cost 300 ms
	legs := make([]Lease, 3)
	for i := range legs {
		if err := x.s.AcquireFor(Want{Role: Decode, Tokens: 1000}, &legs[i]); err != nil {
			t.Fatal(err)
		}
	}
	whole, slow, quick := &legs[0], &legs[1], &legs[2]
	whole.Pull(1000, false)
	x.now = x.now.Add(time.Minute)
	if !split() {
		t.Error("an answer that comes whole counts as one that waits for blocks")
	}
	slow.Pull(1000, true)
	if !split() {
		t.Error("a transfer that has just begun is dear")
	}
	x.now = x.now.Add(time.Second)
	quick.Pull(1000, true)
	if split() {
		t.Error("a transfer has taken a second so far, and decode alone costs less")
	}
	quick.Computed()
	if !split() {
		t.Error("a transfer has just ended, and a slow one still outweighs it")
	}
	x.now = x.now.Add(time.Second)
	if split() {
		t.Error("nothing has come for a second")
	}
	for i := range legs {
		legs[i].Release(ClientGone)
	}
	if !split() {
		t.Error("transfers that have ended still count")
	}
}

// Transfers share D's network. Those that wait and those that will come count before a further one, and what
// begins or ends meanwhile counts in the price of one.
func TestAutoPricesTransfersTogether(t *testing.T) {
	x := newPricer(t)
	x.learn(100, 100, 100) // a prefill, a transfer and decode alone of 1,000 tokens
	take := func() *Lease {
		l := &Lease{}
		if err := x.s.AcquireFor(Want{Role: Decode, Tokens: 1000}, l); err != nil {
			t.Fatal(err)
		}
		return l
	}
	cost := func() float64 {
		return x.decide(PD{Mode: PDAuto, StallWeight: StallWeight}, x.p, x.d, Prompt{Tokens: 1000}).SplitCost
	}
	near(t, "one alone", cost(), 0.2, 0.01)
	first, second := take(), take()
	expect := func(l *Lease, tokens int) { l.Expect(Decision{Split: true}, Prompt{Tokens: tokens}) }
	first.Expect(Decision{}, Prompt{Tokens: 9000})
	first.Expect(Decision{Split: true}, Prompt{Tokens: 9000, Whole: true})
	first.Expect(Decision{Split: true}, Prompt{Tokens: 9000, AtOnce: true})
	near(t, "beside those that do not count", cost(), 0.2, 0.01)
	first.Expect(Decision{Split: true}, Prompt{Tokens: 1500, CachedDecode: 500})
	near(t, "behind one that ends during the prefill", cost(), 0.2, 0.01)
	expect(second, 1000)
	near(t, "behind two", cost(), 0.3, 0.01)
	first.Pull(1000, true)
	near(t, "one of which has begun", cost(), 0.3, 0.01)
	second.Compute(1000, true)
	near(t, "the other is computed after all", cost(), 0.2, 0.01)
	x.now = x.now.Add(50 * time.Millisecond)
	second.Pull(1000, true)
	x.now = x.now.Add(50 * time.Millisecond)
	first.Computed()
	if b := first.Beside(); b != 500 {
		t.Errorf("%d tokens beside the first, want those of the second for half of the time", b)
	}
	x.now = x.now.Add(150 * time.Millisecond)
	second.Release(OK)
	if b := second.Beside(); b != 250 {
		t.Errorf("%d tokens beside the second, want those of the first for a quarter of the time", b)
	}
	near(t, "all have come", cost(), 0.2, 0.01)
	expect(take(), 1000)
	third := take()
	expect(third, 1000)
	expect(third, 3000)
	near(t, "expected anew", cost(), 0.5, 0.01)
	third.Release(ClientGone)
	near(t, "and given up", cost(), 0.2, 0.01)
}

// The prefill of a client that has left is not aborted at about the time at which it should end.
func TestAnAbortDoesNotComeAsThePromptEnds(t *testing.T) {
	x := newPricer(t)
	take := func(tokens int) *Lease {
		l := &Lease{}
		if err := x.s.AcquireFor(Want{Role: Prefill, Tokens: tokens}, l); err != nil {
			t.Fatal(err)
		}
		return l
	}
	after := func(l *Lease) time.Duration { return x.r.AbortAt(l, x.now, time.Second).Sub(x.now) }
	if d := after(take(1000)); d != time.Second {
		t.Errorf("%v with no price, want the grace", d)
	}
	x = newPricer(t)
	x.learn(1000, 1, 1) // a second for 1,000 tokens
	next := take(1500)
	if d := after(next); d.Round(10*time.Millisecond) != 2500*time.Millisecond {
		t.Errorf("%v for a prompt that should end after 1.5 s, want the grace from then on", d)
	}
	if d := after(take(3000)); d != time.Second {
		t.Errorf("%v for one that waits and ends after 4.5 s, want the grace", d)
	}
	x.now = x.now.Add(time.Second)
	if d := after(next); d.Round(10*time.Millisecond) != 1500*time.Millisecond {
		t.Errorf("%v a second later", d)
	}
	x.now = x.now.Add(time.Second)
	if d := after(next); d != time.Second {
		t.Errorf("%v for one that should have ended, want the grace", d)
	}
}

// Prompts do not line up after slow transfers to spare running answers their pauses.
func TestAutoDoesNotQueueForTransfers(t *testing.T) {
	for name, tc := range map[string]struct {
		transfer, local float64 // milliseconds of 1,000 tokens, whose prefill takes 100
		others          int
		split           bool
	}{
		"all come during the prefill":          {10, 100, 10, true},
		"a wait of three times the own time":   {100, 100, 4, true},
		"a wait of five times the own time":    {100, 100, 6, false},
		"a transfer that is long by itself":    {900, 100, 0, true},
		"a wait of ten times, which is 200 ms": {50, 20, 6, true},
		"a wait of 15 times, which is 300 ms":  {50, 20, 8, false},
	} {
		t.Run(name, func(t *testing.T) {
			x := newPricer(t)
			x.learn(100, tc.transfer, tc.local)
			x.d.inflight.Add(100)
			for range tc.others {
				l := Lease{Backend: x.d}
				l.Expect(Decision{Split: true}, Prompt{Tokens: 1000})
			}
			if d := x.decide(PD{Mode: PDAuto, StallWeight: StallWeight}, x.p, x.d, Prompt{Tokens: 1000}); d.Split != tc.split {
				t.Errorf("split: %v, at %v s and %v s alone", d.Split, d.SplitCost, d.LocalCost)
			}
		})
	}
}

// Before a transfer has ended, what others have waited is all that is known.
func TestAutoDoesNotQueueForTheFirstTransfers(t *testing.T) {
	x := newPricer(t)
	for range 40 {
		x.r.Prefilled(0, 1000, 100*time.Millisecond) // decode alone is taken to cost as much
	}
	x.d.inflight.Add(100)
	split := func() bool {
		return x.decide(PD{Mode: PDAuto, StallWeight: StallWeight}, x.p, x.d, Prompt{Tokens: 1000}).Split
	}
	first := Lease{Backend: x.d}
	first.Pull(1000, true)
	x.now = x.now.Add(300 * time.Millisecond)
	if !split() {
		t.Error("a wait of 0.3 s so far is not worth a hundred pauses")
	}
	x.now = x.now.Add(200 * time.Millisecond)
	if split() {
		t.Error("one prompt after the other joins a transfer that has taken five times as long as decode alone")
	}
}

// A request that waits for its prefill has no answer that would pause, unless it comes to D while the prompt is computed.
func TestAutoCountsPausesOfRequestsThatComeMeanwhile(t *testing.T) {
	x := newPricer(t)
	x.learn(100, 10, 100) // 1,000 tokens take 100 ms on either engine, and their blocks 10 ms
	cost := func() float64 {
		return x.decide(PD{Mode: PDAuto, StallWeight: StallWeight}, x.p, x.d, Prompt{Tokens: 1000}).LocalCost
	}
	take := func(role Role) *Lease {
		l := &Lease{}
		if err := x.s.AcquireFor(Want{Role: role, Tokens: 1000}, l); err != nil {
			t.Fatal(err)
		}
		return l
	}
	for n := range 10 {
		take(Prefill)
		take(Decode).Expect(Decision{Split: true}, Prompt{Tokens: 1000, Whole: n%2 == 0})
	}
	take(Decode) // the request's own
	near(t, "beside ten, the first of which comes after 110 ms", cost(), 0.1, 0.01)
	x.now = x.now.Add(50 * time.Millisecond)
	near(t, "beside one that comes after 105 ms, of ten that come within 960 ms", cost(), 0.1, 0.01)
	take(Decode).Compute(1000, true)
	near(t, "D computes another prompt first, whose stream loses all, and one of the ten half", cost(), 0.2+0.1+10/0.855*0.095*0.0475, 0.01)
}

func TestWhatArrivalsLose(t *testing.T) {
	for _, c := range []struct {
		a                arrivals
		busy, work, want float64
	}{
		{arrivals{0, 0, 1}, 0.2, 0.1, 0},
		{arrivals{3, 0, 0}, 0.2, 0.1, 0.3},           // they are about to come
		{arrivals{1, 0.06, 0.06}, 0.1, 0.1, 0.04},    // it comes after the prompt has begun
		{arrivals{1, 0.2, 0.2}, 0.1, 0.1, 0},         // or after it has ended
		{arrivals{3, 0, 0.1}, 0.5, 0.2, 0.6},         // they come before it begins
		{arrivals{10, 0, 1}, 0.2, 0.2, 0.2},          // two come meanwhile, and lose half
		{arrivals{10, 0, 1}, 0.3, 0.2, 0.4},          // one more comes before
		{arrivals{10, 0, 0.2}, 0.3, 0.2, 1 + 5*0.15}, // five come before, and five while all to half of it is left
		{arrivals{10, 0.2, 0.4}, 0.3, 0.2, 5 * 0.05}, // half of them come meanwhile
		{arrivals{4, 0.5, 0.9}, 0.3, 0.2, 0},         // none does
		{arrivals{1000, 0, 100}, 0.1, 0.1, 0.05},
	} {
		if got := c.a.lose(c.busy, c.work); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%v lose %v beside %v of %v, want %v", c.a, got, c.work, c.busy, c.want)
		}
	}
}

// Until the last of those that wait has come, each P has to compute its part of them, and D has to read all.
func TestWhenArrivalsCome(t *testing.T) {
	for name, tc := range map[string]struct {
		transfer float64
		at       int // tokens that P has in flight
		want     arrivals
	}{
		"P has them":                      {10, 3000, arrivals{3, 0.11, 0.31}},
		"P has one more of another D":     {10, 4000, arrivals{3, 0.41 - 0.4*2/3, 0.41}},
		"P is idle, and others have them": {10, 0, arrivals{3, 0.21 - 0.2*2/3, 0.21}},
		"D needs longer to read all":      {1000, 3000, arrivals{3, 3 - 0.2, 3}},
	} {
		x := newPricer(t)
		x.learn(100, tc.transfer, 100)
		for range 3 {
			l := Lease{Backend: x.d}
			l.Expect(Decision{Split: true}, Prompt{Tokens: 1000})
		}
		if tc.at > 0 {
			var l Lease
			if err := x.s.AcquireFor(Want{Role: Prefill, Tokens: tc.at}, &l); err != nil {
				t.Fatal(err)
			}
		}
		now := x.r.now()
		_, _, got := x.s.splitCost(x.p, Prompt{Tokens: 1000}, x.d.pulling.look(now), now)
		near(t, name+": n", got.n, tc.want.n, 0)
		near(t, name+": first", got.first, tc.want.first, 0.02)
		near(t, name+": last", got.last, tc.want.last, 0.02)
	}
}

// One transfer that is stuck must not keep all others from being tried for as long as it is.
func TestAutoTriesAgainBesideAStuckTransfer(t *testing.T) {
	x := newPricer(t)
	x.learn(100, 1, 100)
	var stuck Lease
	if err := x.s.AcquireFor(Want{Role: Decode, Tokens: 1000}, &stuck); err != nil {
		t.Fatal(err)
	}
	stuck.Pull(1000, true)
	for after := time.Duration(0); after < 2*exploreAnyway; after += time.Second {
		x.now = x.now.Add(time.Second)
		for range exploreShare {
			x.r.Computed(x.d, 0, 1000, 100*time.Millisecond)
			if d := x.decide(PD{Mode: PDAuto, StallWeight: StallWeight}, x.p, x.d, Prompt{Tokens: 1000}); d.Split && d.Reason == ReasonExplore {
				return
			}
		}
	}
	t.Error("no request was split any more")
}

// A prompt that D computes holds up no stream that waits for its blocks. Otherwise the more requests wait
// for slow transfers, the more would join them.
func TestAutoCountsNoPauseOfStreamsThatWaitForBlocks(t *testing.T) {
	x := newPricer(t)
	x.learn(100, 150, 100) // the split costs 250 ms, decode alone 100 ms and as much for each running stream
	var legs [5]Lease
	for i := range legs {
		if err := x.s.AcquireFor(Want{Role: Decode, Tokens: 1000}, &legs[i]); err != nil {
			t.Fatal(err)
		}
		legs[i].Pull(1000, true)
	}
	split := func() bool {
		return x.decide(PD{Mode: PDAuto, StallWeight: StallWeight}, x.p, x.d, Prompt{Tokens: 1000}).Split
	}
	if split() {
		t.Error("streams that wait for blocks count as streams that would stand still")
	}
	for i := range legs {
		legs[i].Computed()
	}
	if !split() {
		t.Error("four streams run, and a prompt on decode counts as no pause of theirs")
	}
}

// While no prefill backend can be had, what goes to decode alone anyway still does.
func TestAutoWithoutPrefillBackend(t *testing.T) {
	x := newPricer(t)
	x.learn(100, 60, 50) // local is cheaper
	auto := PD{Mode: PDAuto, StallWeight: StallWeight, ThresholdTokens: 100}
	x.decide(auto, x.p, x.d, Prompt{Tokens: 1000})
	for tokens, want := range map[int]Decision{
		50:   {Reason: ReasonShort},
		1000: {Reason: ReasonPrice},
		8000: {Split: true, Reason: ReasonAlways}, // was never priced
	} {
		if d := x.decide(auto, nil, x.d, Prompt{Tokens: tokens}); d != want {
			t.Errorf("%d tokens: %+v, want %+v", tokens, d, want)
		}
	}
}

// Requests that wait for their prefill or their blocks are in no batch, however many there are.
func TestBatchHasNoRequestThatWaits(t *testing.T) {
	x := newPricer(t)
	x.d.inflight.Add(10)
	(&Lease{Backend: x.d}).Expect(Decision{Split: true}, Prompt{Tokens: 1000})
	(&Lease{Backend: x.d}).Pull(1000, true)
	if got := x.d.Streams().batch; got != 8 {
		t.Errorf("a batch of %d, want 8", got)
	}
}

// If P has a cap, requests for it wait here.
func TestAutoPricesTheQueueOfThePool(t *testing.T) {
	x := newPricer(t)
	x.learn(100, 10, 300)
	x.s.prefill.limit = 1
	w := Want{Role: Prefill, Tokens: 1000, Alone: true}
	var running Lease
	if err := x.s.AcquireFor(w, &running); err != nil {
		t.Fatal(err)
	}
	if d := x.decide(PD{Mode: PDAuto, StallWeight: StallWeight}, x.p, x.d, Prompt{Tokens: 1000}); !d.Split {
		t.Errorf("one prompt is under way: %+v", d)
	}
	done, ended := make(chan struct{}), make(chan error)
	for range 10 {
		go func() { ended <- x.s.AcquireWait(w, new(Lease), Line{Length: 10, Wait: time.Minute}, done) }()
	}
	for x.r.Queued(Prefill) < 10 {
		runtime.Gosched()
	}
	if d := x.decide(PD{Mode: PDAuto, StallWeight: StallWeight}, x.p, x.d, Prompt{Tokens: 1000}); d.Split {
		t.Errorf("ten more wait: %+v", d)
	}
	close(done)
	for range 10 {
		if err := <-ended; err != ErrQueueLeft {
			t.Error(err)
		}
	}
	running.Release(OK)
}

// While there is no prefill engine, a prompt that is no longer than those that were cheaper on
// decode goes there alone, and does not count as one that lacks its prefill.
func TestDecideWithoutPrefill(t *testing.T) {
	x := newPricer(t)
	x.learn(100, 50, 100)
	auto := PD{Mode: PDAuto, StallWeight: StallWeight}
	if d := x.decide(auto, x.p, x.d, Prompt{Tokens: 1000}); d.Split {
		t.Fatalf("%+v", d)
	}
	for tokens, split := range map[int]bool{10: false, 1000: false, 8000: true} {
		if d := x.decide(auto, nil, x.d, Prompt{Tokens: tokens}); d.Split != split {
			t.Errorf("%d tokens: %+v", tokens, d)
		}
	}
}

// Prices that are close to each other do not change the choice with each request.
// A request may have begun while no prefill backend was ready, and be offered one that is ready by now.
func TestAutoPricesABackendThatIsReadyAgain(t *testing.T) {
	x := newPricer(t)
	x.learn(1000, 1000, 100) // a token is far cheaper on D alone
	cfg := DefaultConfig()
	cfg.PD.Mode = PDAuto
	var before *Snapshot
	for _, state := range []string{" state=drain", ""} {
		before = x.r.Snapshot()
		cfg.Prefill, cfg.Decode = MustEntries("http://p:1"+state), MustEntries("http://d:1")
		if _, err := x.r.Reload(cfg, 0.5, nil); err != nil {
			t.Fatal(err)
		}
	}
	p := before.Pick(Want{Role: Prefill, Tokens: 4000})
	if p != x.p || len(before.Backends(Prefill)) != 0 {
		t.Fatalf("picked %v of %d ready backends", p, len(before.Backends(Prefill)))
	}
	if got := before.Decide(p, x.d, Prompt{Tokens: 4000}); got.Split || got.Reason != ReasonPrice || !(got.SplitCost > got.LocalCost) {
		t.Errorf("%+v, want decode alone, which is cheaper", got)
	}
}

func TestDecideHasHysteresis(t *testing.T) {
	var c chooser
	if !c.cheaper(1.05, 1, 1000) {
		t.Error("the split is left for 5 %")
	}
	if c.cheaper(1.2, 1, 1000) {
		t.Error("the split is kept at 20 % more")
	}
	if c.cheaper(1, 1.05, 1000) {
		t.Error("taken up again for 5 %")
	}
	if !c.cheaper(1.05, 1, 8000) {
		t.Error("another size has its own memory")
	}
	if !c.cheaper(1, 1.2, 1000) {
		t.Error("not taken up again at 20 % less")
	}
}

// The way that is no longer taken is tried now and then, so that a change is seen after two hundred requests, or in a
// minute if there are many.
func TestDecideExplores(t *testing.T) {
	t.Run("10 a second", func(t *testing.T) { seesTheChange(t, 100*time.Millisecond, 600) })
	t.Run("one a second", func(t *testing.T) { seesTheChange(t, time.Second, 200) })
}

func seesTheChange(t *testing.T, every time.Duration, within int) {
	x := newPricer(t)
	x.learn(100, 60, 50) // local is cheaper by far
	auto, prompt, explored := PD{Mode: PDAuto, StallWeight: StallWeight}, Prompt{Tokens: 1000}, 0
	for range within {
		x.now = x.now.Add(every)
		switch d := x.decide(auto, x.p, x.d, prompt); {
		case !d.Split:
			x.r.Computed(x.d, 0, 1000, 50*time.Millisecond)
		case d.Reason == ReasonExplore:
			explored++
			x.r.Prefilled(0, 1000, 5*time.Millisecond) // it has become fast
			x.r.Pulled(0, 1000, time.Millisecond)
		default:
			if explored < 2 || explored > 8 {
				t.Errorf("%d requests went the dearer way", explored)
			}
			return
		}
	}
	t.Errorf("%d requests went the dearer way, and it was not found to be the cheaper one", explored)
}

// The first requests are split, because no price is known that one could be spent on.
func TestDecideExploresNothingAtFirst(t *testing.T) {
	x := newPricer(t)
	x.now = x.now.Add(time.Hour)
	for range 3 {
		if d := x.decide(PD{Mode: PDAuto, StallWeight: StallWeight}, x.p, x.d, Prompt{Tokens: 1000}); !d.Split {
			t.Fatalf("%+v", d)
		}
	}
}

// If requests are rare, both prices are always old. Even so, at most one in a hundred goes the dearer way.
func TestDecideExploresFewOfRareRequests(t *testing.T) {
	for _, every := range []time.Duration{time.Second, 6 * time.Second, time.Minute} {
		x := newPricer(t)
		x.learn(10, 5, 50) // the split is cheaper
		explored := 0
		for range 400 {
			x.now = x.now.Add(every)
			if d := x.decide(PD{Mode: PDAuto, StallWeight: StallWeight}, x.p, x.d, Prompt{Tokens: 1000}); d.Split {
				x.r.Prefilled(0, 1000, 10*time.Millisecond)
				x.r.Pulled(0, 1000, 5*time.Millisecond)
			} else {
				explored++
				x.r.Computed(x.d, 0, 1000, 50*time.Millisecond)
			}
		}
		if explored < 3 || explored > 4 {
			t.Errorf("one request in %v: %d of 400 went the dearer way", every, explored)
		}
	}
}

// A conversation that one way has in its cache is not sent the other way unless there is no other
// request.
func TestDecideExploresNoCachedPrompt(t *testing.T) {
	for _, tc := range []struct {
		prefill, transfer, local time.Duration // of a token
		prompt                   Prompt
	}{
		{100, 60, 150, Prompt{Tokens: 1000, CachedDecode: 600}},
		{100, 20, 90, Prompt{Tokens: 1000, CachedPrefill: 600}},
	} {
		x := newPricer(t)
		x.learn(float64(tc.prefill), float64(tc.transfer), float64(tc.local))
		began, spent := x.now, false
		for range 300 {
			x.now = x.now.Add(100 * time.Millisecond)
			d := x.decide(PD{Mode: PDAuto, StallWeight: StallWeight}, x.p, x.d, tc.prompt)
			if d.Reason == ReasonExplore {
				spent = true
				if after := x.now.Sub(began); after < exploreAnyway-time.Second {
					t.Errorf("%+v goes the dearer way after %v", tc.prompt, after)
				}
				break
			}
			if d.Split {
				x.r.Prefilled(0, 1000-tc.prompt.CachedPrefill, time.Duration(1000-tc.prompt.CachedPrefill)*tc.prefill*time.Microsecond)
				x.r.Pulled(0, 1000, 1000*tc.transfer*time.Microsecond)
			} else {
				x.r.Computed(x.d, 0, 1000-tc.prompt.CachedDecode, time.Duration(1000-tc.prompt.CachedDecode)*tc.local*time.Microsecond)
			}
		}
		if !spent {
			t.Errorf("%+v never goes the dearer way", tc.prompt)
		}
	}
}

// A way that costs many times the other is tried less often.
func TestDecideExploresTheDearRarely(t *testing.T) {
	x := newPricer(t)
	x.learn(1, 1, 1000)
	auto := PD{Mode: PDAuto, StallWeight: StallWeight}
	for range 150 {
		x.now = x.now.Add(100 * time.Millisecond)
		if d := x.decide(auto, x.p, x.d, Prompt{Tokens: 8000}); !d.Split {
			t.Fatalf("%+v after %v", d, x.now)
		}
	}
}
