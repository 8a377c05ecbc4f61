package engines

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"xpyd/engines/journal"
)

var errProbe = errors.New("status 500")

// replica is the readiness of one process, and what its probes find.
type replica struct {
	*Soundness
	probes  atomic.Int32
	answers func(n int) error // to the n-th probe
}

func newReplica(answers func(n int) error) *replica {
	r := &replica{answers: answers}
	r.Soundness = NewSoundness(UsualPace(), func(context.Context) error {
		time.Sleep(10 * time.Millisecond)
		return r.answers(int(r.probes.Add(1)))
	}, journal.New(), zerolog.Nop())
	return r
}

func never(int) error  { return errProbe }
func always(int) error { return nil }

// fail makes n completions fail, one each time.
func (r *replica) fail(n int, every time.Duration) {
	for range n {
		r.Failed()
		time.Sleep(every)
	}
	synctest.Wait()
}

func TestFailuresMakeUnready(t *testing.T) {
	for _, tc := range []struct {
		name    string
		answers func(int) error
		act     func(r *replica)
		ready   bool
		probes  int // at least 1 if 1 is given
	}{
		{"a minute of failures", never, func(r *replica) { r.fail(60, time.Second) }, false, 1},
		{"nine failures", never, func(r *replica) { r.fail(9, 2*time.Second) }, true, 0},
		{"ten seconds are not over", never, func(r *replica) { r.fail(90, 100*time.Millisecond) }, true, 0},
		{"a thousand at once and no more", never, func(r *replica) { r.fail(1000, 0); time.Sleep(time.Minute) }, true, 0},
		{"one that succeeds now and then", never, func(r *replica) {
			for range 20 {
				r.fail(9, time.Second)
				r.Succeeded()
			}
		}, true, 0},
		{"old failures of an idle pool", never, func(r *replica) { r.fail(30, 61*time.Second) }, true, 0},
		{"a probe is served", always, func(r *replica) { r.fail(60, time.Second) }, true, 1},
		{"nothing can be probed", func(int) error { return ErrUntold }, func(r *replica) { r.fail(60, time.Second) }, true, 1},
		{"until a completion is served", never, func(r *replica) { r.fail(60, time.Second); r.Succeeded() }, true, 1},
		{"until a probe is served", func(n int) error {
			if n < 3 {
				return errProbe
			}
			return nil
		}, func(r *replica) { r.fail(20, time.Second); time.Sleep(10 * time.Second) }, true, 3},
		{"idle behind a balancer", never, func(r *replica) { r.fail(20, time.Second); time.Sleep(time.Hour) }, false, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newReplica(tc.answers)
				tc.act(r)
				if ready := !r.unsound.Load(); ready != tc.ready {
					t.Errorf("ready: %v, want %v", ready, tc.ready)
				}
				if n := int(r.probes.Load()); (n > 0) != (tc.probes > 0) || n < tc.probes {
					t.Errorf("%d probes, want %d", n, tc.probes)
				}
				r.Close()
				r.fail(30, time.Second) // what ends now starts nothing
			})
		})
	}
}

// A failure from before a success is no reason when it arrives late, even if a probe from that time
// comes back.
func TestProbeThatASuccessOvertakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		back := make(chan error)
		r := newReplica(func(int) error { return <-back })
		r.fail(20, time.Second)
		time.Sleep(time.Second)
		r.Succeeded()
		r.Failed()
		back <- errProbe
		synctest.Wait()
		if r.unsound.Load() {
			t.Error("unready by one failure since the last success")
		}
		r.Close()
	})
}

// Replicas that share a pool must not come and go together. Each leaves at its own time, stays for
// a while once it is back, and whatever the probes say, the balancer has a target.
func TestReplicasDoNotFlapTogether(t *testing.T) {
	const replicas, step = 20, 100 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		all := make([]*replica, replicas)
		for i := range all {
			all[i] = newReplica(func(n int) error { // the pool serves a token alone, then fails under load
				if n%2 == 1 {
					return errProbe
				}
				return nil
			})
		}
		began := time.Now()
		left, back := make([]time.Duration, replicas), make([]time.Duration, replicas)
		first, last := time.Hour, time.Duration(0)
		changes := 0
		for now := time.Duration(0); now < 20*time.Minute; now = time.Since(began) {
			ready := 0
			for i, r := range all {
				was := r.unsound.Load()
				r.Failed()
				synctest.Wait()
				switch is := r.unsound.Load(); {
				case is && left[i] <= back[i]:
					if back[i] > 0 && now-back[i] < 30*time.Second-step {
						t.Fatalf("replica %d is unready %v after it was back", i, now-back[i])
					}
					if left[i] = now; back[i] == 0 {
						first, last = min(first, now), max(last, now)
					}
					changes++
				case !is && left[i] > back[i]:
					back[i] = now
				case was != is:
					t.Fatal("unaccounted")
				}
				if !r.unsound.Load() {
					ready++
				}
			}
			if ready == 0 && now > 30*time.Second { // the first time all have the same reason
				t.Fatalf("nobody is ready after %v", now)
			}
			time.Sleep(step)
			synctest.Wait()
		}
		if first < 10*time.Second || last-first < time.Second {
			t.Errorf("the first left after %v, the last after %v", first, last)
		}
		if most := replicas * int(20*time.Minute/(30*time.Second)); changes < replicas || changes > most {
			t.Errorf("%d times a replica left, want %d to %d", changes, replicas, most)
		}
		for _, r := range all {
			r.Close()
		}
	})
}
