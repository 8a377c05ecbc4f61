package router

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// waiting is one request in the line.
type waiting struct {
	name  string
	lease Lease
	ended <-chan error
}

// served lets one request after the other wait for the only slot, then frees it as often as there are
// requests, and returns their names in the order in which they were served.
func served(t *testing.T, wants []Want, names []string) string {
	t.Helper()
	r, _ := newRouterOf(t, 0, 1, func(c *Config) { c.DecodeMaxInFlight = 1 })
	s := r.Snapshot()
	held := leaseOn(t, s, s.Backends(Decode)[0])
	all := make([]waiting, len(wants))
	for i, w := range wants {
		w.Role, w.Alone = Decode, true
		all[i].name = names[i]
		all[i].ended = wait(s, w, &all[i].lease, Line{len(wants), time.Hour}, nil)
	}
	var order []string
	for range all {
		held.Release(OK)
		synctest.Wait()
		for i := range all {
			if w := &all[i]; w.lease.Held() {
				if err := <-w.ended; err != nil {
					t.Fatal(err)
				}
				order, held = append(order, w.name), &w.lease
			}
		}
	}
	held.Release(OK)
	return strings.Join(order, " ")
}

func TestQueueIsFair(t *testing.T) {
	request := func(flow uint64, tokens, priority int) Want {
		return Want{Flow: flow, Tokens: tokens, Priority: priority}
	}
	for _, tc := range []struct {
		name  string
		wants []Want
		names string
		want  string
	}{
		{"one flow, in order", []Want{request(1, 9, 0), request(1, 1, 0), request(1, 5, 0)}, "a b c", "a b c"},
		{"a flood does not keep another waiting", []Want{request(1, 100, 0), request(1, 100, 0), request(1, 100, 0), request(1, 100, 0), request(2, 100, 0), request(2, 100, 0)},
			"a1 a2 a3 a4 b1 b2", "a1 b1 a2 b2 a3 a4"},
		{"by tokens, not by requests", []Want{request(1, 5*slotTokens, 0), request(1, 5*slotTokens, 0), request(2, 0, 0), request(2, 0, 0), request(2, 0, 0), request(2, 0, 0), request(2, 0, 0), request(2, 0, 0), request(2, 0, 0)},
			"A1 A2 b1 b2 b3 b4 b5 b6 b7", "A1 b1 b2 b3 b4 b5 b6 A2 b7"},
		{"the urgent first, whoever sent it", []Want{request(1, 1, 0), request(2, 1, 5), request(3, 1, -1), request(1, 1, -1), request(2, 1, 0)},
			"a b5 c-1 a-1 b0", "c-1 a-1 a b0 b5"},
		{"equally urgent ones of a flow in order", []Want{request(1, 1, 1), request(1, 1, 0), request(1, 1, 1), request(1, 1, 0)}, "a b c d", "b d a c"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if got := served(t, tc.wants, strings.Fields(tc.names)); got != tc.want {
					t.Errorf("served %s, want %s", got, tc.want)
				}
			})
		})
	}
}

// The share of each flow stays even over a long time, as flows come and go, and what is remembered of
// them does not grow.
func TestFairLineStaysFairAndSmall(t *testing.T) {
	var l fairLine
	rng := rand.New(rand.NewPCG(1, 2))
	put := func(flow uint64, tokens int) { l.add(&waiter{want: Want{Flow: flow, Tokens: tokens}}) }
	for range 50 { // a flow that always waits, with short prompts, and one with long ones
		put(1, 100)
		put(2, 3000)
	}
	given := map[uint64]int{}
	for i := range 20000 {
		wt := l.next()
		flow, tokens := wt.want.Flow, wt.want.Tokens
		given[flow] += tokens + slotTokens
		l.charge(wt)
		l.remove(wt)
		if flow <= 2 {
			put(flow, tokens)
		}
		if i%10 == 0 { // one that comes once
			put(uint64(10+i), 1+rng.IntN(1000))
		}
	}
	if ratio := float64(given[1]) / float64(given[2]); ratio < 0.99 || ratio > 1.01 {
		t.Errorf("two flows that always wait were given %d and %d tokens", given[1], given[2])
	}
	if n := len(l.classes[0].flows); n > 1000 {
		t.Errorf("%d flows are remembered", n)
	}
	for wt := l.next(); wt != nil; wt = l.next() {
		l.remove(wt)
	}
	if len(l.waits) != 0 || len(l.classes) != 0 || len(l.crowd.clients) != 0 || l.crowd.most != 0 {
		t.Errorf("an empty line remembers %d classes, %d clients", len(l.classes), len(l.crowd.clients))
	}
}

// A flow that joins has saved up no turns while it was away.
func TestIdleFlowSavesUpNothing(t *testing.T) {
	var l fairLine
	serve := func() uint64 {
		wt := l.next()
		l.charge(wt)
		l.remove(wt)
		return wt.want.Flow
	}
	for range 60 {
		l.add(&waiter{want: Want{Flow: 1, Tokens: 100}})
	}
	for range 40 {
		serve()
	}
	for range 10 {
		l.add(&waiter{want: Want{Flow: 2, Tokens: 100}})
	}
	served := map[uint64]int{}
	for range 10 {
		served[serve()]++
	}
	if served[1] < 4 || served[2] < 4 {
		t.Errorf("of ten turns after it joined a flow has %d, the other %d", served[2], served[1])
	}
}

// What urgent requests are given puts nobody behind those that wait with less urgent ones.
func TestUrgentRequestsLeaveTheOthersFair(t *testing.T) {
	var l fairLine
	put := func(flow uint64, priority int) {
		l.add(&waiter{want: Want{Flow: flow, Tokens: 100, Priority: priority}})
	}
	serve := func() uint64 {
		wt := l.next()
		l.charge(wt)
		l.remove(wt)
		return wt.want.Flow
	}
	for range 60 { // a flood that waits, while another flow sends urgent requests
		put(1, 0)
	}
	for range 50 {
		put(2, -1)
		if flow := serve(); flow != 2 {
			t.Fatalf("flow %d goes before an urgent request", flow)
		}
	}
	for range 10 {
		put(3, 0)
	}
	served := map[uint64]int{}
	for range 10 {
		served[serve()]++
	}
	if served[1] < 4 || served[3] < 4 {
		t.Errorf("of ten turns after it joined a flow has %d, the flood %d", served[3], served[1])
	}
}

// A flow whose waiters are all passed over keeps none of another flow waiting, and keeps its place.
func TestFairLinePassesOver(t *testing.T) {
	var l fairLine
	first, second, third := &waiter{want: Want{Flow: 1}}, &waiter{want: Want{Flow: 1}}, &waiter{want: Want{Flow: 2}}
	for _, wt := range []*waiter{first, second, third} {
		l.add(wt)
	}
	for i, want := range []*waiter{first, second, third, nil} {
		got := l.next()
		if got != want {
			t.Fatalf("turn %d goes to another", i)
		}
		if got != nil {
			l.pass(got)
		}
	}
	l.rewind()
	if l.next() != first {
		t.Error("the first has lost its place")
	}
	l.remove(first)
	l.remove(third)
	if l.next() != second {
		t.Error("the one left is not next")
	}
}

// A queue of 10,000, of 1 to 10,000 flows. One operation is a request that joins and one that is served.
func BenchmarkFairLine(b *testing.B) {
	const length = 10000
	for _, flows := range []int{1, 100, length} {
		b.Run(fmt.Sprintf("%d_flows", flows), func(b *testing.B) {
			var l fairLine
			rng := rand.New(rand.NewPCG(1, 2))
			for i := range length {
				l.add(&waiter{want: Want{Flow: uint64(i % flows), Tokens: rng.IntN(4000)}})
			}
			b.ReportAllocs()
			for b.Loop() {
				wt := l.next()
				l.charge(wt)
				l.remove(wt)
				l.add(wt)
			}
		})
	}
}
