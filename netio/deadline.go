package netio

import (
	"sync"
	"time"
)

// deadline is the deadline of one direction of a socket. Every request moves it, nearly always to a
// later time. So only an earlier one is armed at once. A wait that ends at the armed time goes on if
// the deadline has been moved meanwhile. It is safe for concurrent use, and a wait in progress sees an
// earlier deadline.
type deadline struct {
	mu          sync.Mutex
	want, armed time.Time // zero means none
}

// set moves the deadline. arm is the connection's own setter.
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

// catchUp arms the deadline at its present time, and reports whether it was armed for another one.
func (d *deadline) catchUp(arm func(time.Time) error) (moved bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.armed.Equal(d.want) {
		return false, nil
	}
	d.armed = d.want
	return true, arm(d.want)
}

// glance ends a wait at the given time, unless its deadline is nearer. catchUp then arms the deadline
// as it was.
func (d *deadline) glance(at time.Time, arm func(time.Time) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.armed.IsZero() || at.Before(d.armed) {
		d.armed = at
		_ = arm(at)
	}
}

// again makes a wait in progress look once more. It does not move the deadline.
func (d *deadline) again(arm func(time.Time) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.armed = time.Now().Add(-time.Second) // on the monotonic clock, because the wall clock may be set
	_ = arm(d.armed)
}
