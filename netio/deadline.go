package netio

import (
	"sync"
	"time"
)

// deadline is one direction's of a socket. It is moved with every request and nearly
// always to a later time, so only an earlier one is armed at once; a wait that ends at
// the armed time goes on if the deadline has been moved meanwhile. Safe for concurrent
// use: a wait in progress sees an earlier deadline.
type deadline struct {
	mu          sync.Mutex
	want, armed time.Time // zero: none
}

// set moves the deadline; arm is the connection's own setter.
func (d *deadline) set(at time.Time, arm func(time.Time) error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.want = at
	if !d.armed.IsZero() && (at.IsZero() || !at.Before(d.armed)) {
		return nil
	}
	d.armed = at
	return arm(at)
}

// catchUp arms the deadline where it is, and reports whether it was armed elsewhere.
func (d *deadline) catchUp(arm func(time.Time) error) (moved bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.armed.Equal(d.want) {
		return false, nil
	}
	d.armed = d.want
	return true, arm(d.want)
}

// glance ends a wait at the given time, unless its deadline is nearer; catchUp then moves the
// deadline back to where it is.
func (d *deadline) glance(at time.Time, arm func(time.Time) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.armed.IsZero() || at.Before(d.armed) {
		d.armed = at
		_ = arm(at)
	}
}

// again makes a wait in progress look once more; the deadline stays where it is.
func (d *deadline) again(arm func(time.Time) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.armed = time.Now().Add(-time.Second) // of the monotonic clock: the other one may be set
	_ = arm(d.armed)
}
