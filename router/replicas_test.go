package router

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// fleet is several routers that know nothing of each other, before the same prefill engines, in virtual time.
type fleet struct {
	t       *testing.T
	hand    *handClock
	from    time.Time
	clock   float64
	order   int
	events  events
	rand    *rand.Rand
	routers []*Router
	most    [][]int64 // in flight since the last reading, by router and engine
	engines []*cachingEngine

	asked, cached int // tokens of the turns after the first, and those of them that an engine had
	took          []float64
}

// cachingEngine computes one prompt after the other, and keeps the blocks that it used last.
type cachingEngine struct {
	free    float64 // when it will be done
	pending int64
	used    map[uint64]int
	uses    int
}

const (
	fleetTokensPerSecond = 40_000
	fleetCache           = 4096 // blocks
)

// compute returns how many blocks of the prompt were cached.
func (e *cachingEngine) compute(prefix []uint64) (had int) {
	for had < len(prefix) && e.used[prefix[had]] > 0 {
		had++
	}
	for _, key := range slices.Backward(prefix) { // the end is evicted first
		e.uses++
		e.used[key] = e.uses
	}
	if len(e.used) > fleetCache*5/4 {
		ages := make([]int, 0, len(e.used))
		for _, at := range e.used {
			ages = append(ages, at)
		}
		slices.Sort(ages)
		for key, at := range e.used {
			if at < ages[len(ages)-fleetCache] {
				delete(e.used, key)
			}
		}
	}
	return had
}

func newFleet(t *testing.T, replicas, engines int) *fleet {
	f := &fleet{t: t, rand: rand.New(rand.NewPCG(1, 2))}
	for range replicas {
		r, clock := newRouterOf(t, engines, 1, func(c *Config) { c.PrefillPolicy, c.Health.SlowStart = "prefix", 0 })
		if f.hand == nil {
			f.hand, f.from = clock, clock.now
		}
		r.clock = f.hand.time
		f.routers = append(f.routers, r)
		f.most = append(f.most, make([]int64, engines))
	}
	for range engines {
		f.engines = append(f.engines, &cachingEngine{used: map[uint64]int{}})
	}
	for i := range f.routers {
		f.after(f.rand.Float64(), func() { f.poll(i) })
	}
	return f
}

func (f *fleet) after(seconds float64, do func()) {
	f.order++
	heap.Push(&f.events, event{f.clock + seconds, f.order, do})
}

func (f *fleet) run(seconds float64) {
	for f.clock < seconds {
		e := heap.Pop(&f.events).(event)
		f.clock = e.at
		f.hand.now = f.from.Add(time.Duration(e.at * float64(time.Second)))
		e.do()
	}
}

// poll is a reading of all engines, one a second.
func (f *fleet) poll(i int) {
	for n, b := range f.routers[i].Snapshot().Backends(Prefill) {
		e := UnknownEngine()
		e.Running, e.Waiting, e.BlockSize, e.Blocks = f.engines[n].pending, 0, 64, fleetCache
		b.SetEngine(e, f.most[i][n], 3*time.Second)
		f.most[i][n] = b.inflight.Load()
	}
	f.after(1, func() { f.poll(i) })
}

// talk is one chat after the other, each of so many turns, of which each goes to any replica.
func (f *fleet) talk(first, turns int, plain bool, think float64) {
	seed := f.rand.Uint64() >> 32
	words := text(seed, first)
	var turn func(n int)
	turn = func(n int) {
		if n == turns {
			f.talk(first, turns, plain, think)
			return
		}
		w := want(Prefill, words...)
		w.Conversation = seed + 1
		if plain {
			w.Conversation = 0
		}
		f.serve(w, n > 0, func() {
			words = slices.Concat(words, text(seed<<8+uint64(n)+1, 2+f.rand.IntN(4)))
			f.after(think*f.rand.ExpFloat64(), func() { turn(n + 1) })
		})
	}
	f.after(think*f.rand.ExpFloat64(), func() { turn(0) })
}

func (f *fleet) serve(w Want, counts bool, done func()) {
	i := f.rand.IntN(len(f.routers))
	r, l := f.routers[i], new(Lease)
	if err := r.Snapshot().AcquireFor(w, l); err != nil {
		f.t.Fatal(err)
	}
	n := slices.Index(r.Snapshot().Backends(Prefill), l.Backend)
	e := f.engines[n]
	f.most[i][n] = max(f.most[i][n], l.Backend.inflight.Load())
	had := 64 * e.compute(w.Prefix)
	if counts {
		f.asked += w.Tokens
		f.cached += had
	}
	begun := f.clock
	e.pending++
	e.free = max(e.free, f.clock) + 0.006 + float64(w.Tokens-had)/fleetTokensPerSecond
	f.after(e.free-f.clock, func() {
		e.pending--
		r.Prefilled(l.Ahead(), l.Tokens(), time.Duration((f.clock-begun)*float64(time.Second)))
		l.Release(OK)
		f.took = append(f.took, f.clock-begun)
		done()
	})
}

// Several replicas find nearly as much in the caches as one does, for chats and for plain prompts that grow, whatever
// their first turn's length is.
func TestReplicasFindWhatOneFinds(t *testing.T) {
	for _, c := range []struct {
		first int // blocks of the first turn
		plain bool
		think float64 // seconds between two turns
	}{
		{4, false, 0.1},
		{20, false, 0.1},
		{4, true, 0.1},
		{20, true, 0.1},
		{4, true, 0.3},
		{20, false, 0.3},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			t.Parallel()
			var alone float64
			for _, replicas := range []int{1, 3, 8} {
				f := newFleet(t, replicas, 4)
				for range 24 {
					f.talk(c.first, 8, c.plain, c.think)
				}
				f.run(60)
				found := float64(f.cached) / float64(f.asked)
				if replicas == 1 {
					alone = found
				}
				t.Logf("%d replicas: %.2f of the tokens cached, p90 %.0f ms", replicas, found, 1000*p90(f.took))
				if found < 0.9*alone {
					t.Errorf("%d replicas find %.2f of the tokens cached, one finds %.2f", replicas, found, alone)
				}
			}
		})
	}
}

// What every reading has shown counts, and what only some of them have does not.
func TestPrefillCountsLoadThatLasts(t *testing.T) {
	r, _ := newLoadRouter(t, "prefix", 2)
	h := holder{t: t, r: r, role: Prefill}
	b := r.Snapshot().Backends(Prefill)[0]
	b.SetEngine(loaded(0, 0), 0, 3*time.Second)
	for range 4 {
		b.SetEngine(loaded(8, 0), 0, 3*time.Second)
		h.wants("some readings", h.hold(2), 1, 1)
	}
	b.SetEngine(loaded(8, 0), 0, 3*time.Second)
	h.wants("all readings", h.hold(8), 0, 8)
}
