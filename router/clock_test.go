package router

import (
	"fmt"
	"slices"
	"testing"
	"time"
	"unsafe"
)

// shiftWall returns t with its wall reading moved by whole seconds and its monotonic one as it was,
// as time.Now gives them after the clock was set.
func shiftWall(t testing.TB, at time.Time, by time.Duration) time.Time {
	t.Helper()
	moved := at
	// time.Time's first word: a flag, 33 bits of seconds, 30 of nanoseconds.
	*(*uint64)(unsafe.Pointer(&moved)) += uint64(by/time.Second) << 30
	if moved.Unix()-at.Unix() != int64(by/time.Second) || moved.Sub(at) != 0 {
		t.Fatalf("time.Time has another layout: %v and %v are %v apart", at, moved, moved.Sub(at))
	}
	return moved
}

// twoHands is a clock whose monotonic and wall readings diverge.
type twoHands struct {
	t    testing.TB
	mono time.Time
	wall time.Duration
}

func (c *twoHands) time() time.Time { return shiftWall(c.t, c.mono, c.wall) }

// timer is one of the router's.
type timer struct {
	name  string
	after time.Duration
	// start lets it run, and returns a function that says, once, whether it has run out.
	start func(t *testing.T, s *Snapshot, p, d *Backend) func() bool
}

func timers() []timer {
	return []timer{
		{"ejection", 30 * time.Second, func(t *testing.T, s *Snapshot, _, d *Backend) func() bool {
			s.router.Eject(d, EjectStall)
			return func() bool { return !d.Ejected() }
		}},
		{"refused connection", refusedFor, func(t *testing.T, s *Snapshot, _, d *Backend) func() bool {
			end(t, s, d, Refused, 1)
			return func() bool {
				q := s.query(&Want{Role: Decode, Alone: true}, s.decode)
				return q.fit(d)
			}
		}},
		{"slow start", 30 * time.Second, func(t *testing.T, s *Snapshot, _, d *Backend) func() bool {
			d.force(Down)
			d.force(Up)
			return func() bool { return d.share(s.router.now(), s.health.SlowStart) == 1 }
		}},
		{"row of ejections", 60 * time.Second, func(t *testing.T, s *Snapshot, _, d *Backend) func() bool {
			s.router.Eject(d, EjectStall)
			return func() bool { // a success ends the row: the next ejection is a first one
				end(t, s, d, OK, 1)
				return d.ejections.Load() == 0
			}
		}},
	}
}

// pairTimers are the timers of pairs.
func pairTimers() []timer {
	return []timer{
		{"ban of a pair", banFor, func(t *testing.T, s *Snapshot, p, d *Backend) func() bool {
			for range kvFailures {
				s.Pairs().Failed(Pair{p, d})
			}
			return func() bool {
				q := s.query(&Want{Role: Decode, Peer: p}, s.decode)
				return !q.pairs.banned(d, q.now)
			}
		}},
		{"failed transfers", kvWindow, func(t *testing.T, s *Snapshot, p, d *Backend) func() bool {
			for range kvFailures - 1 {
				s.Pairs().Failed(Pair{p, d})
			}
			return func() bool { // one more does not make three
				s.Pairs().Failed(Pair{p, d})
				return s.router.pairs.banOf(Pair{p, d}) == nil
			}
		}},
		{"cold pair", coldFor, func(t *testing.T, s *Snapshot, p, d *Backend) func() bool {
			s.Pairs().Chill(d, true)
			return func() bool {
				q := s.query(&Want{Role: Decode, Peer: p}, s.decode)
				return !q.pairs.isCold(d, q.now)
			}
		}},
	}
}

// T25: each timer of the router runs out at its time, not a nanosecond before, whatever
// happens to the wall clock meanwhile.
func TestTimersRunOutAtTheirTime(t *testing.T) {
	for _, tc := range slices.Concat(timers(), pairTimers()) {
		for _, jump := range []time.Duration{0, time.Hour, -time.Hour} {
			t.Run(fmt.Sprintf("%s/wall clock %+v", tc.name, jump), func(t *testing.T) {
				for _, at := range []struct {
					age time.Duration
					out bool
				}{{0, false}, {tc.after - 1, false}, {tc.after, true}} {
					clock := &twoHands{t: t, mono: time.Now()}
					cfg := DefaultConfig()
					cfg.Prefill, cfg.Decode = urls("p", 2), urls("d", 2)
					r, err := New(cfg, 0.25, clock.time)
					if err != nil {
						t.Fatal(err)
					}
					clock.mono = clock.mono.Add(time.Second) // 0 is never
					s := r.Snapshot()
					out := tc.start(t, s, s.Backends(Prefill)[0], s.Backends(Decode)[0])
					clock.mono, clock.wall = clock.mono.Add(at.age), jump
					if got := out(); got != at.out {
						t.Errorf("after %v: run out %v, want %v", at.age, got, at.out)
					}
				}
			})
		}
	}
}
