package router

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// storm does everything at once on one router, and checks the invariants that must hold at every
// moment.
type storm struct {
	t     *testing.T
	r     *Router
	clock *handClock
	fired atomic.Int64
	all   sync.Map // *Backend: all that ever were
}

var outcomes = [...]Outcome{OK, OK, OK, ClientGone, ClientFault, Refused, Gateway, Engine, Timeout, Auth, KVLoad}

// request is one completion: D first, then P, an OnDown on each, any end.
func (s *storm) request(rnd *rand.Rand, d, p *Lease) {
	snap := s.r.Snapshot()
	w := Want{Role: Decode, Tokens: 3, Key: uint64(rnd.IntN(3)), Prefix: []uint64{uint64(rnd.IntN(5))}}
	if rnd.IntN(3) > 0 {
		w.Model = []byte{byte('a' + rnd.IntN(3))}
	}
	var err error
	if rnd.IntN(4) == 0 {
		err = snap.AcquireWait(w, d, Line{4, time.Millisecond}, nil)
	} else {
		err = snap.AcquireFor(w, d)
	}
	if err != nil {
		return
	}
	if n := d.Backend.InFlight(); n < 1 || n > 6 {
		s.t.Errorf("%d in flight, cap 6", n)
	}
	var live atomic.Bool
	live.Store(true)
	watch := func() {
		s.fired.Add(1)
		if !live.Load() {
			s.t.Error("called after the release")
		}
	}
	d.OnDown(watch)
	w.Role, w.Peer = Prefill, d.Backend
	s.prefill(snap, rnd, w, p, watch)
	if s.r.Moved(9); s.r.TakeRetry(9, rnd.IntN(2) == 0) {
		s.r.ReturnRetry()
	}
	snap.Degrade(d)
	runtime.Gosched() // the leg works
	var once sync.WaitGroup
	once.Go(func() { d.Release(ClientGone) })
	d.Release(outcomes[rnd.IntN(len(outcomes))])
	once.Wait()
	live.Store(false)
}

// prefill is the other leg of a request.
func (s *storm) prefill(snap *Snapshot, rnd *rand.Rand, w Want, p *Lease, watch func()) {
	if snap.AcquireFor(w, p) == nil {
		p.OnDown(watch)
		if rnd.IntN(3) == 0 {
			snap.Pairs().Failed(Pair{p.Backend, w.Peer})
		} else {
			snap.Pairs().Worked(Pair{p.Backend, w.Peer})
		}
		p.Release(outcomes[rnd.IntN(len(outcomes))])
	}
}

// operate is what happens around the requests.
func (s *storm) operate(rnd *rand.Rand) {
	snap := s.r.Snapshot()
	role := Role(rnd.IntN(2))
	pool := snap.Backends(role)
	b := pool[rnd.IntN(len(pool))]
	switch rnd.IntN(12) {
	case 0:
		s.reload(2+rnd.IntN(5), 2+rnd.IntN(5))
	case 1:
		b.Reset()
	case 2:
		s.r.Eject(b, EjectStall)
	case 4:
		b.SetModels([][]string{{"a"}, {"a", "b"}, {"b", "a"}}[rnd.IntN(3)])
	case 3:
		s.clock.advance(time.Duration(rnd.IntN(10)) * time.Second)
	default:
		b.Observe(rnd.IntN(3) > 0)
	}
}

func (s *storm) reload(prefill, decode int) {
	reload(s.t, s.r, prefill, decode)
	for _, role := range []Role{Prefill, Decode} {
		for _, b := range s.r.Snapshot().Backends(role) {
			s.all.Store(b, true)
		}
	}
}

// check looks at a moment in which no state changes, because mu is held.
func (s *storm) check() {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	snap, now := s.r.Snapshot(), s.r.now()
	for _, role := range []Role{Prefill, Decode} {
		pool := snap.Backends(role)
		if n := countEjected(pool, now); n > len(pool)/2 {
			s.t.Errorf("%d of %d %s backends ejected", n, len(pool), role)
		}
		for _, b := range pool {
			if b.inflight.Load() < 0 {
				s.t.Errorf("%s: %d in flight", b.URL, b.inflight.Load())
			}
		}
	}
}

func TestStorm(t *testing.T) {
	policies := Policies()
	for i, policy := range policies {
		t.Run(policy, func(t *testing.T) { storms(t, policy, policies[(i+1)%len(policies)], 1600/len(policies)) })
	}
}

func storms(t *testing.T, prefill, decode string, requestsEach int) {
	r, clock := newRouterOf(t, 4, 4, func(c *Config) {
		c.PrefillPolicy, c.DecodePolicy = prefill, decode
		c.PrefillMaxInFlight, c.DecodeMaxInFlight = 6, 6
	})
	s := &storm{t: t, r: r, clock: clock}
	s.reload(4, 4)
	var requests, others sync.WaitGroup
	var stop atomic.Bool
	for i := range 8 {
		requests.Go(func() {
			rnd := rand.New(rand.NewPCG(1, uint64(i)))
			var d, p Lease
			// It goes on until a backend has gone down under a request, because otherwise it would
			// show nothing.
			for n := 0; n < requestsEach || s.fired.Load() == 0; n++ {
				s.request(rnd, &d, &p)
			}
		})
	}
	for i := range 2 {
		others.Go(func() {
			rnd := rand.New(rand.NewPCG(2, uint64(i)))
			for !stop.Load() {
				s.operate(rnd)
				s.check()
				time.Sleep(10 * time.Microsecond)
			}
		})
	}
	requests.Wait()
	stop.Store(true)
	others.Wait()
	s.all.Range(func(k, _ any) bool {
		if b := k.(*Backend); b.InFlight() != 0 || b.tokens.Load() != 0 || b.down.head != nil {
			t.Errorf("%s at the end: %d in flight, %d tokens, watched %v", b.URL, b.InFlight(), b.tokens.Load(), b.down.head != nil)
		}
		return true
	})
	if r.degraded.Load() != 0 || r.retries.running.Load() != 0 {
		t.Errorf("%d degraded, %d retries at the end", r.degraded.Load(), r.retries.running.Load())
	}
}

func TestAcquireAllocatesNothing(t *testing.T) {
	for _, policy := range Policies() {
		r, clock := newRouterOf(t, 4, 4, func(c *Config) {
			c.PrefillPolicy, c.DecodePolicy, c.DecodeMaxInFlight = policy, policy, 8
		})
		s := r.Snapshot()
		script(t, r, clock, "p1d1 p1d1 p1d1") // the costlier case: a ban to be looked up
		var d, p Lease
		wake := func() {}
		if n := testing.AllocsPerRun(100, func() {
			if s.AcquireFor(Want{Role: Decode}, &d) != nil || s.AcquireFor(Want{Role: Prefill, Peer: d.Backend}, &p) != nil {
				t.Fatal("no lease")
			}
			d.OnDown(wake)
			p.Release(OK)
			d.Release(Gateway)
		}); n != 0 {
			t.Errorf("%s: %v allocations", policy, n)
		}
	}
}

func BenchmarkAcquireOf512(b *testing.B) {
	for _, policy := range Policies() {
		b.Run(policy, func(b *testing.B) {
			r, _ := newRouterOf(b, 0, 512, func(c *Config) { c.DecodePolicy = policy })
			s := r.Snapshot()
			b.ReportAllocs()
			var l Lease
			for b.Loop() {
				if err := s.Acquire(Decode, 1, nil, &l); err != nil {
					b.Fatal(err)
				}
				l.Release(OK)
			}
		})
	}
}

func BenchmarkAcquireParallel(b *testing.B) {
	r, _ := newRouterOf(b, 0, 8, func(c *Config) { c.DecodePolicy = "least_request" })
	r.clock = time.Now
	r.epoch = time.Now()
	s := r.Snapshot()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		var l Lease
		for pb.Next() {
			if err := s.Acquire(Decode, 1, nil, &l); err != nil {
				b.Error(err)
				return
			}
			l.Release(OK)
		}
	})
}
