package router

import (
	"errors"
	"math"
	"slices"
	"sync"
	"testing"
	"time"
)

// handClock is a clock that a test moves.
type handClock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *handClock) time() time.Time         { c.mu.Lock(); defer c.mu.Unlock(); return c.now }
func (c *handClock) advance(d time.Duration) { c.mu.Lock(); c.now = c.now.Add(d); c.mu.Unlock() }

func newTestRouter(t testing.TB, policy string, prefill, decode []string) (*Snapshot, *handClock) {
	t.Helper()
	clock := &handClock{now: time.Unix(1_000_000, 0)}
	r, err := New(Config{Prefill: MustEntries(prefill...), Decode: MustEntries(decode...), PrefillPolicy: policy, DecodePolicy: policy}, 0.25, clock.time)
	if err != nil {
		t.Fatal(err)
	}
	seed(r, 1)
	return r.Snapshot(), clock
}

var three = []string{"http://a:1", "http://b:2", "http://c:3"}

func TestRoundRobinTakesEachInTurn(t *testing.T) {
	s, _ := newTestRouter(t, "round_robin", nil, three)
	got := ""
	for range 6 {
		var l Lease
		if err := s.Acquire(Decode, 1, nil, &l); err != nil {
			t.Fatal(err)
		}
		got += l.Backend.Host[:1]
		l.Release(OK)
	}
	if got != "abcabc" {
		t.Fatalf("order %q, want abcabc", got)
	}
}

// Each backend has one turn in a round, and no two always have theirs together.
func TestRoundRobinPairsAllWithAll(t *testing.T) {
	for _, size := range [][2]int{{1, 1}, {2, 2}, {3, 3}, {4, 4}, {4, 2}, {2, 4}, {8, 2}, {6, 4}, {3, 2}, {1, 3}, {5, 1}} {
		r, _ := newRouterOf(t, size[0], size[1], func(c *Config) { c.PrefillPolicy, c.DecodePolicy = "round_robin", "round_robin" })
		s := r.Snapshot()
		pairs, rounds := map[[2]int]int{}, 6*size[0]*size[1]
		counts := [2][]int{make([]int, size[0]), make([]int, size[1])}
		for i := range rounds * size[0] * size[1] {
			var at [2]int
			for _, role := range []Role{Decode, Prefill} {
				var l Lease
				if err := s.Acquire(role, 1, nil, &l); err != nil {
					t.Fatal(err)
				}
				at[role] = slices.Index(s.Backends(role), l.Backend)
				counts[role][at[role]]++
				l.Release(OK)
				if (i+1)%size[role] == 0 && slices.Max(counts[role]) != slices.Min(counts[role]) {
					t.Fatalf("%v: after %d turns %s has %v", size, i+1, role, counts[role])
				}
			}
			pairs[at]++
		}
		for p := range size[0] {
			for d := range size[1] {
				if n := pairs[[2]int{p, d}]; n != rounds {
					t.Errorf("%v: P %d was with D %d %d times, want %d: %v", size, p, d, n, rounds, pairs)
				}
			}
		}
	}
}

// If the pools cannot go in lockstep, no backend gets two requests in a row.
func TestRoundRobinStaysEvenWithOnePrefill(t *testing.T) {
	r, _ := newRouterOf(t, 1, 2, func(c *Config) { c.DecodePolicy = "round_robin" })
	s, last := r.Snapshot(), (*Backend)(nil)
	for i := range 12 {
		var l Lease
		if err := s.Acquire(Decode, 1, nil, &l); err != nil || l.Backend == last {
			t.Fatalf("request %d goes to %v, as the one before it: %v", i, l.Backend, err)
		}
		last = l.Backend
		l.Release(OK)
	}
}

func TestLeastRequestTakesTheIdleOne(t *testing.T) {
	s, _ := newTestRouter(t, "least_request", nil, three)
	leases := make([]Lease, 9)
	for i := range leases {
		if err := s.Acquire(Decode, 10, nil, &leases[i]); err != nil {
			t.Fatal(err)
		}
	}
	for _, b := range s.Backends(Decode) {
		if b.InFlight() != 3 {
			t.Fatalf("%s has %d in flight, want 3", b.URL, b.InFlight())
		}
	}
	idle := leases[4].Backend
	leases[4].Release(OK)
	var l Lease
	if err := s.Acquire(Decode, 10, nil, &l); err != nil || l.Backend != idle {
		t.Fatalf("picked %v (%v), want the idle %s", l.Backend, err, idle.URL)
	}
}

func TestReleaseCountsOnce(t *testing.T) {
	s, _ := newTestRouter(t, "least_request", nil, three[:1])
	var l Lease
	if err := s.Acquire(Decode, 7, nil, &l); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { l.Release(ClientGone) })
	}
	wg.Wait()
	b := s.Backends(Decode)[0]
	if b.InFlight() != 0 || b.tokens.Load() != 0 {
		t.Fatalf("in flight %d, tokens %d after one lease, want 0 and 0", b.InFlight(), b.tokens.Load())
	}
}

func TestRefusedBackendIsPassedOverForASecond(t *testing.T) {
	for _, policy := range Policies() {
		t.Run(policy, func(t *testing.T) {
			s, clock := newTestRouter(t, policy, nil, three[:2])
			var l Lease
			if err := s.Acquire(Decode, 1, nil, &l); err != nil {
				t.Fatal(err)
			}
			refused := l.Backend
			l.Release(Refused)
			for range 4 {
				if err := s.Acquire(Decode, 1, nil, &l); err != nil || l.Backend == refused {
					t.Fatalf("picked the backend that has just refused (%v)", err)
				}
				l.Release(OK)
			}
			// If every other backend has been tried, it is still better than none.
			other := l.Backend
			if err := s.Acquire(Decode, 1, []*Backend{other}, &l); err != nil || l.Backend != refused {
				t.Fatalf("got %v, want the refused backend when it is the only one left", err)
			}
			l.Release(OK)
			clock.advance(refusedFor)
			seen := map[*Backend]bool{}
			for range 16 {
				if err := s.Acquire(Decode, 1, nil, &l); err != nil {
					t.Fatal(err)
				}
				seen[l.Backend] = true
				l.Release(OK)
			}
			if !seen[refused] {
				t.Fatal("the backend was not tried again after the cool-down")
			}
		})
	}
}

func TestAcquireWithAllTried(t *testing.T) {
	s, _ := newTestRouter(t, "round_robin", nil, three)
	var l Lease
	if err := s.Acquire(Decode, 1, s.Backends(Decode), &l); !errors.Is(err, ErrNoBackend) || l.Held() {
		t.Fatalf("err %v, held %v", err, l.Held())
	}
	if err := s.Acquire(Prefill, 1, nil, &l); !errors.Is(err, ErrNoBackend) {
		t.Fatalf("empty pool: %v", err)
	}
}

func TestReadyWithoutPrefillThatNobodyNeeds(t *testing.T) {
	r, _ := newRouterOf(t, 1, 1, func(c *Config) { c.PD.Mode = PDNever })
	s := r.Snapshot()
	s.Backends(Decode)[0].force(Up)
	s.Backends(Prefill)[0].force(Down)
	if !s.Ready(false) {
		t.Error("not ready for want of a prefill backend, which pd.mode never does not ask")
	}
}

func TestReady(t *testing.T) {
	s, _ := newTestRouter(t, "round_robin", three[:1], three[1:2])
	p, d := s.Backends(Prefill)[0], s.Backends(Decode)[0]
	if s.Ready(true) {
		t.Fatal("ready with nothing up")
	}
	d.force(Up)
	if !s.Ready(true) || s.Ready(false) {
		t.Fatal("decode alone is ready only where it may go alone")
	}
	p.force(Up)
	if !s.Ready(false) {
		t.Fatal("both up, not ready")
	}
}

func TestBackendURL(t *testing.T) {
	for _, tc := range []struct{ raw, addr, host string }{
		{"http://p1:8100", "p1:8100", "p1:8100"},
		{"http://[::1]:8100", "[::1]:8100", "[::1]:8100"},
		{"http://p1", "p1:80", "p1"},
		{"https://p1", "p1:443", "p1"},
	} {
		b, err := newBackend(nil, Prefill, tc.raw)
		if err != nil || b.Addr != tc.addr || b.Host != tc.host {
			t.Errorf("%s: %+v, %v", tc.raw, b, err)
		}
	}
	for _, raw := range []string{"p1:8100", "ftp://p1", "https://", "http://", "://"} {
		if _, err := newBackend(nil, Decode, raw); err == nil {
			t.Errorf("%q accepted", raw)
		}
	}
}

func BenchmarkAcquireRelease(b *testing.B) {
	for _, policy := range Policies() {
		b.Run(policy, func(b *testing.B) {
			s, _ := newTestRouter(b, policy, nil, three)
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

func near(t *testing.T, what string, got, want, within float64) {
	t.Helper()
	if math.Abs(got-want) > within*math.Abs(want) {
		t.Errorf("%s: %g, want %g within %g %%", what, got, want, within*100)
	}
}
