package router

import (
	"sync"
	"time"
)

// alarm has the queues served when an ejection or a ban runs out. No request and no check need come then, and a request
// may wait beside a free backend.
type alarm struct {
	mu    sync.Mutex
	timer *time.Timer
	at    int64 // when it goes off, by the router's clock; 0: never
}

// wakeAt has the queues served at that time, by the router's clock. What ends then must be stored before.
func (r *Router) wakeAt(at int64) {
	a := &r.alarm
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.at != 0 && a.at <= at {
		return // ring finds this one, too
	}
	if a.timer != nil {
		a.timer.Stop()
	}
	a.at = at
	a.timer = time.AfterFunc(max(time.Duration(at-r.now()), time.Millisecond), r.ring)
}

// ring serves the queues, and sets the alarm for what ends next.
func (r *Router) ring() {
	r.alarm.mu.Lock()
	r.alarm.at = 0
	r.alarm.mu.Unlock()
	now, next := r.now(), int64(0)
	look := func(until int64) {
		if until > now && (next == 0 || until < next) {
			next = until
		}
	}
	for _, p := range r.Snapshot().pools() {
		for _, b := range p.backends {
			look(b.ejectedUntil.Load())
		}
	}
	if bans := r.pairs.bans.Load(); bans != nil {
		for _, bn := range *bans {
			look(bn.until.Load())
		}
	}
	if next != 0 {
		r.wakeAt(next)
	}
	r.serveAll()
}
