package way

import (
	"math"
	"strings"
	"sync"
	"testing"
)

func near(t *testing.T, what string, got, want, within float64) {
	t.Helper()
	if math.Abs(got-want) > within*math.Abs(want) {
		t.Errorf("%s: %g, want %g within %g %%", what, got, want, within*100)
	}
}

func engines(n int) (all []Candidate) {
	for range n {
		all = append(all, Candidate{Engine: &Engine{}, Prefills: true, Decodes: true, Share: 1})
	}
	return all
}

// serve sends n requests at a rate through the fleet. Each takes what the model says, alone.
func serve(f *Fleet, all []Candidate, rate float64, n, prompt, answer int) (last *Trip) {
	for i := range n {
		now := float64(i) / rate
		last = f.Choose(now, Request{Prompt: prompt}, all)
		f.Prefilled(now+0.13, last)
		f.First(now+0.16, last)
		f.Ended(now+0.16+0.006*float64(answer-1), last, answer)
	}
	return last
}

// Long prompts beside long answers are worth an engine of their own; without answers to pause, nothing is.
func TestPlanFollowsTheTraffic(t *testing.T) {
	for name, tc := range map[string]struct {
		engines int
		classes []Class
		prefill int
	}{
		"long prompts, 8 a second":      {2, []Class{{8, 5000, 5000, 250}}, 1},
		"long prompts, 16 a second":     {4, []Class{{16, 5000, 5000, 250}}, 2},
		"answers alone":                 {2, []Class{{8, 1000, 1000, 1000}}, 0},
		"hardly any answer":             {2, []Class{{60, 1024, 1024, 6}}, 0},
		"a chat whose prompt is cached": {2, []Class{{13, 4000, 200, 200}}, 0},
		"one engine":                    {1, []Class{{2, 5000, 5000, 250}}, 0},
	} {
		m := usual()
		if best, _ := m.best(tc.engines, 0, tc.engines-1, tc.classes, usualRoom); best.Prefill != tc.prefill || math.IsNaN(best.Mean) {
			t.Errorf("%s: %v", name, best)
		}
	}
}

// A plan stays finite and in order where more comes than any plan can serve.
func TestPlanOfTooMuch(t *testing.T) {
	m := usual()
	a := m.evaluate(Plan{Engines: 2}, []Class{{100, 5000, 5000, 250}}, usualRoom)
	b := m.evaluate(Plan{Engines: 2}, []Class{{200, 5000, 5000, 250}}, usualRoom)
	if math.IsInf(b.Mean, 1) || math.IsNaN(b.Mean) || a.Mean >= b.Mean {
		t.Errorf("100 requests a second take %g s each, 200 %g s", a.Mean, b.Mean)
	}
}

// After a silence the rate is that of what comes, and a plan is made as soon as for the first requests.
func TestPlanAfterSilence(t *testing.T) {
	f, all := New(new(sync.Mutex)), engines(2)
	serve(f, all, 0.5, 10, 200, 250)
	now, planned := 200.0, 0.0
	for ; now < 202; now += 1.0 / 8 {
		x := f.Choose(now, Request{Prompt: 5000, Most: 250}, all)
		if p, _, _ := f.Now(); planned == 0 && p.Prefill == 1 {
			planned = now - 200
		}
		f.Prefilled(now+0.13, x)
		f.First(now+0.16, x)
	}
	p, _, _ := f.Now()
	if planned == 0 || planned > 1 {
		t.Errorf("planned after %g s: %v", planned, p)
	}
	near(t, "the rate", p.Traffic.Rate, 8, 0.25)
}

// The time of a step and of a token of a prompt are found from what a proxy sees, whatever model they were guessed for.
func TestFleetLearnsItsEngines(t *testing.T) {
	f := New(new(sync.Mutex))
	all := engines(1)
	now := 0.0
	for range 200 {
		x := f.Choose(now, Request{Prompt: 2000}, all)
		f.First(now+0.02+2000*80e-6, x)
		f.Ended(now+0.02+2000*80e-6+99*0.030, x, 100)
		now += 4
	}
	m := f.Model()
	near(t, "a prompt of 2,000", f.model.prompt.at(2000), 0.18, 0.02)
	near(t, "a step", m.step(1, 2050), 0.030, 0.05)
	near(t, "an answer", f.traffic.expect(now, 2000, unbounded, 0.03, 0), 100, 0.01)
}

// An engine that is slow gets less, and its slowness is not taken for that of all. It is tried again now and then.
func TestFleetKnowsASlowEngine(t *testing.T) {
	f := New(new(sync.Mutex))
	all, got := engines(3), 0
	for i := range 400 {
		now := float64(i)
		x := f.Choose(now, Request{Prompt: 500}, all)
		took := 0.006
		if x.Way.Decode == all[0].Engine {
			got, took = got+1, took*3
		}
		f.First(now+0.02, x)
		f.Ended(now+0.02+99*took, x, 100)
	}
	if got == 0 || got > 80 {
		t.Errorf("the slow engine got %d of 400 answers", got)
	}
	m := f.Model()
	near(t, "a step", m.step(1, 550), 0.006, 0.1)
}

// An engine of one role keeps it, and one that has most of a prompt in its cache gets it.
func TestFleetKeepsRolesAndCaches(t *testing.T) {
	f := New(new(sync.Mutex))
	all := engines(3)
	all[0].Decodes, all[1].Prefills = false, false
	all[2].Cached = 7900
	if x := f.Choose(0, Request{Prompt: 8000}, all); !x.Way.Whole() || x.Way.Decode != all[2].Engine {
		t.Error("a turn of a chat leaves the engine that has its blocks")
	}
	for range 30 {
		if x := f.Choose(1, Request{Prompt: 8000}, all[:2]); x.Way.Prefill != all[0].Engine || x.Way.Decode != all[1].Engine {
			t.Fatal("an engine does what it may not")
		}
	}
	if x := f.Choose(1, Request{Prompt: 10}, all[:1]); x != nil {
		t.Error("an engine that only prefills answers")
	}
}

// However a request ends, its engines have nothing left to do for it.
func TestTripsLeaveNothing(t *testing.T) {
	for name, end := range map[string]func(f *Fleet, x *Trip){
		"at once":          func(*Fleet, *Trip) {},
		"moving":           func(f *Fleet, x *Trip) { f.Prefilled(1, x) },
		"answering":        func(f *Fleet, x *Trip) { f.Prefilled(1, x); f.First(2, x) },
		"whole after all":  func(f *Fleet, x *Trip) { f.Whole(1, x, 5000) },
		"whole, too late":  func(f *Fleet, x *Trip) { f.Prefilled(1, x); f.Whole(1.5, x, 5000); f.First(2, x) },
		"said twice":       func(f *Fleet, x *Trip) { f.Prefilled(1, x); f.Prefilled(1, x); f.First(2, x); f.First(2, x) },
		"ended before all": func(f *Fleet, x *Trip) { f.Ended(1, x, 0); f.First(2, x); f.Prefilled(2, x); f.Whole(2, x, 9) },
	} {
		f := New(new(sync.Mutex))
		all := engines(2)
		all[0].Decodes, all[1].Prefills = false, false // so it is split
		x := f.Choose(0, Request{Prompt: 5000}, all)
		end(f, x)
		f.Ended(3, x, 10)
		f.Ended(4, x, 10)
		for i, c := range all {
			e := *c.Engine
			if len(e.prompts) > 0 || e.pending != 0 || e.moving != 0 || e.answers != 0 || e.coming != 0 || e.context != 0 || e.running != 0 {
				t.Errorf("%s: engine %d has %+v", name, i, e)
			}
		}
	}
}

// An answer that comes whole does not show when its prompt was computed, so no other prompt waits for it for long.
func TestQuietTripsAreComputedInTime(t *testing.T) {
	f := New(new(sync.Mutex))
	all := engines(1)
	f.Choose(0, Request{Prompt: 5000, Quiet: true}, all)
	f.Choose(5, Request{Prompt: 10}, all)
	if e := all[0].Engine; e.answers != 1 || e.coming != 1 || len(e.prompts) != 1 {
		t.Errorf("%+v", e)
	}
}

// The plan says what it is and why.
func TestPlanTells(t *testing.T) {
	f := New(new(sync.Mutex))
	p, _, _ := f.Now()
	if s := p.String(); s != "no plan yet: it needs a few requests" {
		t.Error(s)
	}
	serve(f, engines(2), 8, 100, 5000, 250)
	p, _, _ = f.Now()
	if s := p.String(); !strings.HasPrefix(s, "1 of 2 engines prefill now, prompts of 5000 new tokens or more, because 8") || !strings.HasSuffix(s, "if all serve whole") {
		t.Error(s)
	}
	p.Prefill, p.Other, p.OtherMean = 0, 1, p.Mean
	if s := p.String(); !strings.HasPrefix(s, "all 2 engines serve whole requests now, because") || !strings.HasSuffix(s, "if 1 prefill") {
		t.Error(s)
	}
	p.OtherMean *= 0.99
	if s := p.String(); !strings.HasSuffix(s, "if 1 prefill, which is too little to change it") || p.Gain() != 0 {
		t.Error(s)
	}
}

// Who sends answers of a length of its own is expected to do so again, as others with prompts of that size are not.
func TestAnswersBySender(t *testing.T) {
	f, all, now := New(new(sync.Mutex)), engines(2), 0.0
	ask := func(sender uint64, answer int) *Trip {
		x := f.Choose(now, Request{Prompt: 2000, Sender: sender}, all)
		f.First(now+0.1, x)
		f.Ended(now+1, x, answer)
		now += 2
		return x
	}
	for range 40 {
		ask(7, 20)
		ask(8, 1000)
	}
	near(t, "an answer to the one", ask(7, 20).says, 20, 3)
	near(t, "an answer to the other", ask(8, 1000).says, 1000, 0.1)
	near(t, "an answer to anybody", ask(0, 0).says, 510, 0.1)
	for sender := range uint64(5000) {
		ask(sender+100, 5) // more than there is place for
	}
	near(t, "an answer after many others", ask(1<<40, 5).says, 5, 0.1)
}

// Engines that cost the same get requests by their shares, whether they are idle or busy.
func TestSharesOfEngines(t *testing.T) {
	for name, open := range map[string]int{"idle": 0, "busy": 120} {
		f, all, got := New(new(sync.Mutex)), engines(3), map[*Engine]int{}
		var trips []*Trip
		for i := range 600 {
			for i := range all {
				all[i].Share = []float64{1, 1, 0.25}[i]
			}
			now := float64(i) / 10
			x := f.Choose(now, Request{Prompt: 100}, all)
			got[x.Way.Decode]++
			f.First(now+0.009, x)
			if trips = append(trips, x); len(trips) > open {
				f.Ended(now+0.009+float64(open)/10, trips[0], 1)
				trips = trips[1:]
			}
		}
		near(t, name+": the requests of the one with a quarter share", float64(got[all[2].Engine]), 600*0.25/2.25, 0.2)
	}
}

// A share that says how fast an engine is does not count on top of its speed.
func TestShareOfASlowEngineCountsOnce(t *testing.T) {
	all := engines(3)
	all[2].Engine.slower, all[2].Share = 3, 0.25
	if weigh(all); all[0].Share != 1 || all[2].Share != 1 {
		t.Errorf("%+v", all)
	}
	all[2].Engine.slower, all[0].Share, all[1].Share, all[2].Share = 0, 0.5, 0.5, 0.125
	if weigh(all); all[0].Share != 1 || all[2].Share != 0.25 {
		t.Errorf("%+v", all)
	}
}

// An engine whose KV cache is full gets fewer answers, and so does one that has those of others.
func TestRoomAndOthers(t *testing.T) {
	for name, change := range map[string]func(c *Candidate){
		"no room": func(c *Candidate) { c.Room = 10_000 },
		"others":  func(c *Candidate) { c.Requests = 40 },
	} {
		f, all, got := New(new(sync.Mutex)), engines(2), 0
		all[1].Room = 1e6
		change(&all[0])
		for range 40 {
			if x := f.Choose(0, Request{Prompt: 2000, Most: 100}, all); x.Way.Decode == all[0].Engine {
				got++
			}
		}
		if got > 12 {
			t.Errorf("%s: it gets %d of 40 answers", name, got)
		}
	}
}
