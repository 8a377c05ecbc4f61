package router

import (
	"sync/atomic"
	"time"
)

// pulling is what the streams show that wait for blocks on a decode backend and have had no event. The
// price of a transfer is learned when one ends. Until then, and while transfers stand still, this is all
// that is known of it.
type pulling struct {
	legs  atomic.Int64 // that wait
	since atomic.Int64 // by the router's clock: they all wait, and none of them has had its first event since then
}

func (p *pulling) begin(now int64) {
	if p.legs.Load() == 0 {
		p.since.Store(now) // first, so that nobody sees a leg with the time of an earlier one
	}
	if p.legs.Add(1) == 1 {
		p.since.Store(now) // the last of the others has just failed
	}
}

// end takes a leg away. One that failed says nothing of the others.
func (p *pulling) end(now int64, came bool) {
	if came {
		p.since.Store(now)
	}
	p.legs.Add(-1)
}

// waited is how long at least one of the legs has waited, at the least, or one that has failed since.
func (p *pulling) waited(now int64) time.Duration {
	if p.legs.Load() == 0 {
		return 0
	}
	return time.Duration(max(0, now-p.since.Load()))
}

// Pull notes that the decode backend is about to read blocks for an answer. If the answer streams, the
// leg counts as waiting for the blocks until Computed or Release. An answer that comes whole does not
// show when the blocks arrived.
func (l *Lease) Pull(streams bool) {
	l.endPull(false)
	if streams {
		l.pulls = true
		l.Backend.pulling.begin(l.Backend.router.now())
	}
}

func (l *Lease) endPull(came bool) {
	if l.pulls {
		l.pulls = false
		l.Backend.pulling.end(l.Backend.router.now(), came)
	}
}
