package handoff

import (
	"testing"
	"time"
	"unsafe"
)

// T25: the age of a handle follows the monotonic clock, even if the wall clock was set since it was
// issued.
func TestAgeOfAHandle(t *testing.T) {
	k := NewKeeper(Config{KV: DefaultKV()})
	limit := k.cfg.KV.Lease - k.cfg.KV.LeaseMargin
	for _, jump := range []time.Duration{0, time.Hour, -time.Hour} {
		for _, tc := range []struct {
			age   time.Duration
			fresh bool
		}{{0, true}, {limit - time.Second, true}, {limit, false}, {limit + time.Second, false}} {
			h := Handoff{k: k, since: time.Now().Add(-tc.age)}
			// The wall reading is in time.Time's first word, with its seconds above 30 bits of
			// nanoseconds. If the clock was set since, it is off by that much.
			before := h.since
			*(*uint64)(unsafe.Pointer(&h.since)) -= uint64(jump/time.Second) << 30
			if before.Unix()-h.since.Unix() != int64(jump/time.Second) || before.Sub(h.since) != 0 {
				t.Fatalf("time.Time has another layout: %v became %v", before, h.since)
			}
			if h.Fresh() != tc.fresh {
				t.Errorf("wall clock %+v: a handle of %v counts as fresh %v, the limit is %v", jump, h.age(), h.Fresh(), limit)
			}
		}
	}
}
