package leg

import (
	"errors"
	"fmt"

	"xpyd/netio/upstream"
	"xpyd/proxy/fault"
)

// What cuts an exchange. The cuts for a backend, CutDown, CutSource and CutLate, are taken back when the attempt on it
// ends. The others hold for the rest of the request.
const (
	_         upstream.Cause = iota
	CutGone                  // the client has left
	CutStop                  // the process ends
	CutDown                  // health checks took the backend down
	CutSource                // P has gone down or restarted while D may be loading its blocks
	CutOther                 // the other leg, which began together with this one, has failed or is over
	CutLate                  // xpyd gave P up, and the wait for an answer on its way is over
)

// ErrNoRoom is about an answer for which limits.answer_budget has no room.
var ErrNoRoom = fmt.Errorf("limits.answer_budget is spent: %w", upstream.ErrTooLarge)

// Why is what the owner of an attempt knows beside the error of its exchange.
type Why struct {
	Ended   fault.Cause // the request must end: Gone or Stopped
	Cut     fault.Cause // xpyd cut the exchange for an engine: Down, Source or Other
	Late    bool        // the exchange was given up before its error came
	Overdue bool        // the time of the whole request is over
}

// Cause says what an exchange failed of. Nobody else turns its error into a cause. A request that must end has failed
// of that, whatever broke at the same moment. A backend that could not be dialled has had nothing to be cut from.
func (w Why) Cause(err error) fault.Cause {
	var ue *upstream.Error
	of := errors.As(err, &ue)
	late := w.Late || of && ue.TimedOut()
	switch {
	case w.Ended != fault.NoCause:
		return w.Ended
	case errors.Is(err, upstream.ErrTooLarge):
		return TooLarge(err)
	case of && ue.Stage == upstream.StageDial && upstream.IsLocal(ue.Err):
		return fault.Descriptors
	case of && ue.Stage == upstream.StageDial:
		return fault.Broke
	case w.Cut != fault.NoCause:
		return w.Cut
	case late && w.Overdue:
		return fault.Overdue
	case late:
		return fault.Timeout
	case of && ue.LongHead():
		return fault.LongHead
	}
	return fault.Broke
}

// TooLarge is the cause of an answer that cannot be held. err says why.
func TooLarge(err error) fault.Cause {
	if errors.Is(err, ErrNoRoom) {
		return fault.NoRoom
	}
	return fault.TooLarge
}

// Fault is how the exchange failed with err. An encode leg is judged as the prefill leg whose work it takes over.
func (a *Attempt) Fault(err error, w Why) fault.Fault {
	f := fault.Fault{Leg: a.Of, At: fault.AtLimit, Status: a.X.Head.Status, Cause: w.Cause(err)}
	if f.Leg == fault.Encode {
		f.Leg = fault.Prefill
	}
	var ue *upstream.Error
	if errors.As(err, &ue) {
		f.At = fault.AtDial + fault.Progress(ue.Stage) // both are in the order of an exchange
	}
	return f
}
