package desk

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"xpyd/proxy"
)

// handClock is a clock that tests move.
type handClock struct{ at time.Time }

func (c *handClock) now() time.Time { return c.at }

func newDesk() (*Desk, *handClock) {
	c := &handClock{time.Unix(1_700_000_000, 0)}
	return New("test", c.now), c
}

// split is a streamed completion over both legs.
func split(id string) *proxy.Life {
	return &proxy.Life{
		ID: id, API: "chat", Path: pathSplit, Reason: "none", Outcome: outcomeOK, Prefill: "http://p", Decode: "http://d", Rounds: 1, Events: 11, Streamed: true,
		Prefilling: 2 * time.Millisecond, Prefilled: 30 * time.Millisecond, Asked: 31 * time.Millisecond, Handed: 32 * time.Millisecond,
		First: 50 * time.Millisecond, End: 250 * time.Millisecond,
	}
}

func TestPhases(t *testing.T) {
	for _, tc := range []struct {
		name, want string
		change     func(l *proxy.Life)
	}{
		{"both legs", "queue 0-2, prefill 2-30, handoff 30-32, transfer 32-50, stream 50-250", func(*proxy.Life) {}},
		{"whole answer", "queue 0-2, prefill 2-30, handoff 30-32, answer 32-250", func(l *proxy.Life) { l.Streamed, l.First = false, 0 }},
		{"decode alone", "queue 0-31, compute 31-50, stream 50-250", func(l *proxy.Life) { l.Path, l.Prefilling, l.Prefilled = "decode_only", 0, 0 }},
		{"decode alone after a prefill that failed", "queue 0-2, prefill 2-30, compute 31-50, stream 50-250", func(l *proxy.Life) { l.Path = "decode_only" }},
		{"legs at the same time", "queue 0-1, prefill 2-40, transfer 1-50, stream 50-250", func(l *proxy.Life) {
			l.Asked, l.Handed, l.Prefilled = time.Millisecond, 2*time.Millisecond, 40*time.Millisecond
		}},
		{"refused", "queue 0-250", func(l *proxy.Life) { *l = proxy.Life{Outcome: outcomeFault, End: l.End} }},
		{"left in the prefill", "queue 0-2, prefill 2-30", func(l *proxy.Life) { l.Outcome, l.Asked, l.Handed, l.First = outcomeGone, 0, 0, 0 }},
		{"decode broke off", "queue 0-2, prefill 2-30, handoff 30-32, transfer 32-250", func(l *proxy.Life) { l.Outcome, l.First = "error", 0 }},
	} {
		l := split("x")
		tc.change(l)
		var got []string
		for _, p := range entryOf(0, l).Phases {
			got = append(got, fmt.Sprintf("%s %v-%v", p.Name, p.From, p.To))
		}
		if s := strings.Join(got, ", "); s != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, s, tc.want)
		}
	}
}

// The desk remembers the completions that ended last, the newest first.
func TestLastCompletions(t *testing.T) {
	d, _ := newDesk()
	for i := range lives + 5 {
		d.Ended(split(fmt.Sprint(i)))
	}
	a := d.Account()
	if len(a.Lives) != lives || a.Ended != lives+5 || a.Lives[0].ID != fmt.Sprint(lives+4) || a.Lives[lives-1].ID != "5" {
		t.Errorf("%d remembered of %d, from %s to %s", len(a.Lives), a.Ended, a.Lives[0].ID, a.Lives[len(a.Lives)-1].ID)
	}
}

// The window and the plots have what ended in the last 15 minutes, and nothing older.
func TestHistory(t *testing.T) {
	d, clock := newDesk()
	if p := d.Plots(); len(p.OK) != int(plotted) || len(p.TTFT["p50"]) != int(plotted) {
		t.Errorf("at the start: %d steps of rates, %d of quantiles, want %d", len(p.OK), len(p.TTFT["p50"]), plotted)
	}
	for range 10 {
		d.Ended(split("old"))
	}
	clock.at = clock.at.Add(10 * time.Minute)
	failed, gone, refused := split("failed"), split("gone"), split("refused")
	failed.Outcome, gone.Outcome, refused.Outcome = "broken", outcomeGone, outcomeFault
	for _, l := range []*proxy.Life{split("new"), failed, gone, refused} {
		d.Ended(l)
	}
	clock.at = clock.at.Add(stepLength) // now the step is whole
	w := d.Account().Window
	if w.OK != 11 || w.Failed != 1 || w.Gone != 1 || w.Refused != 1 || w.Ways[pathSplit]["none"] != 14 {
		t.Errorf("after 10 minutes: %+v", w)
	}
	p := d.Plots()
	last := len(p.OK) - 1
	if last != int(10*time.Minute/stepLength) || p.OK[last] != .2 || p.Failed[last] != .2 || p.Gone[last] != .2 || p.Refused[last] != .2 || p.OK[last-1] != 0 {
		t.Errorf("rates of the last steps: %v of %d, failed %v", p.OK[last-1:], last+1, p.Failed[last])
	}
	if end := p.Start + int64(p.Step)*int64(last); end != clock.at.Unix() {
		t.Errorf("the last step ends at %d, now is %d", end, clock.at.Unix())
	}
	if p.TTFT["p50"][last-1] != nil || p.TPOT["p99"][last] == nil {
		t.Error("quantiles must be null where nothing ended, and only there")
	}
	clock.at = clock.at.Add(6 * time.Minute)
	if n := len(d.Plots().OK); n != steps-1 {
		t.Errorf("%d steps after 16 minutes, want %d", n, steps-1)
	}
	if w := d.Account().Window; w.OK != 1 || w.Ways[pathSplit]["none"] != 4 {
		t.Errorf("after 16 minutes: %+v", w)
	}
	clock.at = clock.at.Add(time.Hour)
	if w := d.Account().Window; w.OK != 0 || len(w.Ways) != 0 || w.TTFT.P50 != nil {
		t.Errorf("after an hour: %+v", w)
	}
	d.Ended(split("again")) // in a place of the ring that an older step has had
	if w := d.Account().Window; w.OK != 1 || w.Ways[pathSplit]["none"] != 1 {
		t.Errorf("after a pause: %+v", w)
	}
}

// Quantiles are within a twentieth of those of the durations themselves, whatever their size.
func TestQuantiles(t *testing.T) {
	for _, unit := range []time.Duration{time.Millisecond, 30 * time.Millisecond, time.Second} {
		var s spread
		for i := 1; i <= 1000; i++ {
			s.add(time.Duration(i) * unit)
		}
		for _, q := range []float64{.5, .9, .99} {
			want := q * 1000 * ms(unit)
			if got := *s.quantile(q); math.Abs(got-want) > want/20 {
				t.Errorf("quantile %v of 1 to 1000 × %v: %v ms, want %v", q, unit, got, want)
			}
		}
	}
	var s spread
	if s.quantile(.5) != nil {
		t.Error("nothing has no quantile")
	}
	s.add(0)
	s.add(300 * time.Hour)
	if got := *s.quantile(.99); got < 3.6e6 {
		t.Errorf("a duration beyond the cells counts as %v ms", got)
	}
}

// The desk remembers the failures that are not the clients', the newest first, in groups of a code and an engine.
func TestFailures(t *testing.T) {
	d, _ := newDesk()
	fail := func(id, outcome, code, prefill, decode string) {
		l := split(id)
		l.Outcome, l.Code, l.Prefill, l.Decode, l.Error = outcome, code, prefill, decode, "why "+id
		d.Ended(l)
	}
	if f := d.Failures(); f.Total != 0 || f.Groups == nil || f.Failures == nil {
		t.Errorf("at the start: %+v", f)
	}
	fail("theirs", outcomeFault, "invalid_json", "", "")
	fail("gone", outcomeGone, "client_gone", "http://p", "")
	for i := range KeptFailures + 3 {
		fail(fmt.Sprint("d", i), "error", "decode_failed", "http://p", "http://d")
	}
	fail("p", "error", "prefill_timeout", "http://p", "http://d")
	fail("none", "error", "decode_unavailable", "http://p", "")
	f := d.Failures()
	if f.Total != KeptFailures+5 || len(f.Failures) != KeptFailures || f.Failures[0].ID != "none" || f.Failures[KeptFailures-1].ID != "d5" {
		t.Errorf("%d of %d, from %s to %s", len(f.Failures), f.Total, f.Failures[0].ID, f.Failures[len(f.Failures)-1].ID)
	}
	var groups []string
	for _, g := range f.Groups {
		groups = append(groups, fmt.Sprint(g.Count, " ", g.Code, " ", g.Backend, " ", g.ID, " ", g.Error))
	}
	if got, want := strings.Join(groups, ", "), fmt.Sprintf("%d decode_failed http://d d%d why d%d, 1 decode_unavailable http://p none why none, 1 prefill_timeout http://p p why p", KeptFailures-2, KeptFailures+2, KeptFailures+2); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// The figures of an engine are those of the last minutes.
func TestRecent(t *testing.T) {
	d, clock := newDesk()
	if all := d.Recent(); len(all) != 0 {
		t.Errorf("at the start: %v", all)
	}
	clock.at = clock.at.Add(10 * time.Minute)
	for i := range 30 {
		d.Ended(split(fmt.Sprint(i)))
	}
	failed := split("failed")
	failed.Outcome, failed.Code, failed.Streamed, failed.Path = "error", "decode_failed", false, "decode_only"
	d.Ended(failed)
	d.Ended(&proxy.Life{Outcome: outcomeFault})
	all := d.Recent()
	p, q := all[Engine{"prefill", "http://p"}], all[Engine{"decode", "http://d"}]
	if len(all) != 2 || p.TTFT == nil || *p.TTFT != 28 || p.TPOT != nil || p.Failed != 0 || math.Abs(p.Rate*p.Seconds-31) > 1e-9 {
		t.Errorf("prefill %+v", p)
	}
	if q.TTFT == nil || *q.TTFT != 18 || q.TPOT == nil || *q.TPOT != 20 || q.Failed != 1 {
		t.Errorf("decode %+v", q)
	}
	clock.at = clock.at.Add(recentSteps * recentStep)
	if all := d.Recent(); len(all) != 0 {
		t.Errorf("later: %v", all)
	}
}

// A completion allocates nothing, once something has ended in its step.
func TestEndedAllocatesNothing(t *testing.T) {
	d, _ := newDesk()
	l := split("x")
	if n := testing.AllocsPerRun(100, func() { d.Ended(l) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkEnded(b *testing.B) {
	d := New("bench", time.Now)
	l := split("x")
	b.ReportAllocs()
	for b.Loop() {
		d.Ended(l)
	}
}
