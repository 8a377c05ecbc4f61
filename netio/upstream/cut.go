package upstream

import (
	"errors"
	"os"
	"time"
)

// Cause says why an exchange was cut. Callers define and name their own causes, from 1 to causes-1. 0
// means no cause.
type Cause uint8

// causes is how many causes there are at most, with 0.
const causes = 8

// cuts holds the causes for which an exchange was cut. The first cut allocates it, because most
// exchanges never have one and thousands of streams are open at a time.
type cuts struct {
	at    [causes]time.Time // of each cause; zero if it is not in force
	first time.Time         // the earliest of them; zero if none is in force
	by    Cause             // the cause of first, the lowest if there are several
}

// find computes first and by.
func (c *cuts) find() {
	c.first, c.by = time.Time{}, 0
	for i, at := range c.at {
		if !at.IsZero() && (c.by == 0 || at.Before(c.first)) {
			c.first, c.by = at, Cause(i)
		}
	}
}

// Cut makes every read and write fail from the given moment on, including those of later requests,
// until Uncut or Reset. A second cut for the same cause counts only if it is earlier. The earliest
// moment of all causes applies. The caller decides how long an answer may still take, so the moment
// replaces a deadline that is set, even an earlier one.
func (x *Exchange) Cut(why Cause, at time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.cuts == nil {
		x.cuts = new(cuts)
	}
	if was := x.cuts.at[why]; !was.IsZero() && !at.Before(was) {
		return
	}
	x.cuts.at[why] = at
	if x.cuts.by == 0 || at.Before(x.cuts.first) {
		x.cuts.first, x.cuts.by = at, why
		x.arm(at, why)
	}
}

// Uncut takes causes back. The others stay in force. If none is left, the deadline of SetDeadline
// applies again.
func (x *Exchange) Uncut(whys ...Cause) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.cuts == nil || x.cuts.by == 0 {
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

// Extend lets an exchange whose time is over continue until the given moment if an answer may be on its
// way. It sets a cut for why at that moment. Other causes stay in force, but take effect no earlier.
func (x *Exchange) Extend(why Cause, until time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.cuts == nil {
		x.cuts = new(cuts)
	}
	for i, at := range x.cuts.at {
		if !at.IsZero() && at.Before(until) {
			x.cuts.at[i] = until
		}
	}
	x.cuts.at[why] = until
	x.cuts.find()
	x.arm(x.cuts.first, x.cuts.by)
}

// CutBy returns the cause in force with the earliest moment, whether or not that moment has come. It
// returns 0 if the exchange is not cut.
func (x *Exchange) CutBy() Cause {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.cuts == nil {
		return 0
	}
	return x.cuts.by
}

// IsCut reports that a cause is in force, whether or not its moment has come.
func (x *Exchange) IsCut(why Cause) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.cuts != nil && !x.cuts.at[why].IsZero()
}

// SetDeadline sets the deadline of reads and writes, but never after the end of the request or a cut.
func (x *Exchange) SetDeadline(at time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.setDeadline(at)
}

// setDeadline is SetDeadline. x.mu is held.
func (x *Exchange) setDeadline(at time.Time) {
	x.armed = at
	due := x.due()
	if x.cuts != nil && x.cuts.by != 0 && x.cuts.first.Before(due) {
		x.arm(x.cuts.first, x.cuts.by)
		return
	}
	x.arm(due, 0)
}

// due returns the deadline of an exchange without a cut. x.mu is held.
func (x *Exchange) due() time.Time {
	if !x.end.IsZero() && x.end.Before(x.armed) {
		return x.end
	}
	return x.armed
}

// arm sets the deadline of the connection, if there is one. why is the cause of that deadline, or 0
// if it is not a cut's. x.mu is held.
func (x *Exchange) arm(at time.Time, why Cause) {
	x.fires = why
	if x.conn != nil {
		_ = x.conn.SetDeadline(at)
	}
}

// cause returns the cause of the cut that made a read or write fail with err, or 0 if no cut did.
func (x *Exchange) cause(err error) Cause {
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return 0
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.fires
}

// Progress moves the deadline of a stream that makes progress, at most once a second. The stream ends
// if nothing arrives for d.
func (x *Exchange) Progress(now time.Time, d time.Duration) {
	// A second is added, so that a deadline that was set a moment ago never cuts too early.
	if at := now.Add(d + time.Second); at.Sub(x.armed) > time.Second || at.Before(x.armed) {
		x.SetDeadline(at)
		x.up.goesOn(now)
	}
}

// Complete notes that an answer which the engine has worked for has ended well. That is progress too.
func (x *Exchange) Complete() { x.up.goesOn(time.Now()) }
