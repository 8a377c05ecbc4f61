package upstream

import (
	"errors"
	"os"
	"time"
)

// Cause says why an exchange was cut. Callers define and name their own, from 1 up to
// causes-1; 0 is none.
type Cause uint8

// causes bounds the causes of an exchange, with 0.
const causes = 8

// cuts is what an exchange was cut for.
type cuts struct {
	at    [causes]time.Time // of each cause; zero: it is not in force
	first time.Time         // the earliest of them; zero: none is in force
	by    Cause             // whose first is; of several the lowest
}

// find looks for the earliest moment.
func (c *cuts) find() {
	c.first, c.by = time.Time{}, 0
	for i, at := range c.at {
		if !at.IsZero() && (c.by == 0 || at.Before(c.first)) {
			c.first, c.by = at, Cause(i)
		}
	}
}

// Cut makes every read and write fail at the given moment, those of requests that follow
// included, until Uncut or Reset. Of a cause the earliest moment stays, and the earliest of
// all causes holds. Whoever cuts says how long an answer may still come: the moment takes the
// place of a deadline that is armed, also of a nearer one.
func (x *Exchange) Cut(why Cause, at time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if was := x.cuts.at[why]; !was.IsZero() && !at.Before(was) {
		return
	}
	x.cuts.at[why] = at
	if x.cuts.by == 0 || at.Before(x.cuts.first) {
		x.cuts.first, x.cuts.by = at, why
		x.arm(at, why)
	}
}

// Uncut takes causes back. The others stay in force; where there is none, the deadline is that
// of SetDeadline again.
func (x *Exchange) Uncut(whys ...Cause) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.cuts.by == 0 {
		return
	}
	for _, why := range whys {
		x.cuts.at[why] = time.Time{}
	}
	x.cuts.find()
	if x.cuts.by != 0 {
		x.arm(x.cuts.first, x.cuts.by)
		return
	}
	x.arm(x.due(), 0)
}

// Extend lets an exchange whose time is over go on until the given moment, where an answer may
// be on its way. The moment is a cut too, and all causes stay in force, but none before it.
func (x *Exchange) Extend(why Cause, until time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for i, at := range x.cuts.at {
		if !at.IsZero() && at.Before(until) {
			x.cuts.at[i] = until
		}
	}
	x.cuts.at[why] = until
	x.cuts.find()
	x.arm(x.cuts.first, x.cuts.by)
}

// CutBy is the cause whose moment is the earliest of those in force, whether or not it has
// come; 0: the exchange is not cut.
func (x *Exchange) CutBy() Cause {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.cuts.by
}

// IsCut reports that a cause is in force, whether or not its moment has come.
func (x *Exchange) IsCut(why Cause) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return !x.cuts.at[why].IsZero()
}

// SetDeadline arms reads and writes, never beyond the end of the request or a cut.
func (x *Exchange) SetDeadline(at time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.setDeadline(at)
}

// setDeadline is SetDeadline. x.mu is held.
func (x *Exchange) setDeadline(at time.Time) {
	x.armed = at
	due := x.due()
	if x.cuts.by != 0 && x.cuts.first.Before(due) {
		x.arm(x.cuts.first, x.cuts.by)
		return
	}
	x.arm(due, 0)
}

// due is the deadline where nothing is cut. x.mu is held.
func (x *Exchange) due() time.Time {
	if !x.end.IsZero() && x.end.Before(x.armed) {
		return x.end
	}
	return x.armed
}

// arm gives the connection, if there is one, its deadline, which is that of a cut for why; 0:
// of none. x.mu is held.
func (x *Exchange) arm(at time.Time, why Cause) {
	x.fires = why
	if x.conn != nil {
		_ = x.conn.SetDeadline(at)
	}
}

// cause is whose cut made a read or write fail with err; 0: nobody's.
func (x *Exchange) cause(err error) Cause {
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return 0
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.fires
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
