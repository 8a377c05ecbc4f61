package upstream

import "time"

// Interrupt makes every read and write fail at the given moment, those of requests
// that follow included, until Reset. A later call moves the moment.
func (x *Exchange) Interrupt(at time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.cut(at)
}

// InterruptBy is Interrupt, unless an earlier moment is set.
func (x *Exchange) InterruptBy(at time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.limit.IsZero() || at.Before(x.limit) {
		x.cut(at)
	}
}

// cut sets the limit. x.mu is held.
func (x *Exchange) cut(at time.Time) {
	x.limit = at
	if x.conn != nil {
		_ = x.conn.SetDeadline(at)
	}
}

// Resume takes an interrupt back; the next deadline is armed as if none had been.
func (x *Exchange) Resume() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.limit, x.armed = time.Time{}, time.Time{}
}

// Interrupted reports that an Interrupt holds.
func (x *Exchange) Interrupted() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return !x.limit.IsZero()
}

// SetDeadline arms reads and writes, never beyond the limit of an interrupt.
func (x *Exchange) SetDeadline(at time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.armed = at
	if !x.end.IsZero() && x.end.Before(at) {
		at = x.end
	}
	if !x.limit.IsZero() && x.limit.Before(at) {
		at = x.limit
	}
	_ = x.conn.SetDeadline(at)
}

// Progress re-arms the deadline of a stream that goes on, at most once a second: it ends when
// there is nothing for d.
func (x *Exchange) Progress(now time.Time, d time.Duration) {
	// A second is added, so that what was armed a moment ago never cuts too early.
	if at := now.Add(d + time.Second); at.Sub(x.armed) > time.Second || at.Before(x.armed) {
		x.SetDeadline(at)
		x.up.goesOn(now)
	}
}
