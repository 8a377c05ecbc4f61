package leg

import (
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"xpyd/netio"
	"xpyd/netio/upstream"
	"xpyd/proxy/fault"
	"xpyd/router"
)

// One table says what an error is, whichever leg it comes from.
func TestCause(t *testing.T) {
	at := func(s upstream.Stage, err error) error { return &upstream.Error{Stage: s, Err: err} }
	late := at(upstream.StageHead, os.ErrDeadlineExceeded)
	for name, tc := range map[string]struct {
		err  error
		why  Why
		want fault.Cause
		far  fault.Progress
	}{
		"refused":                           {at(upstream.StageDial, unix.ECONNREFUSED), Why{}, fault.Broke, fault.AtDial},
		"refused by a backend that is down": {at(upstream.StageDial, unix.ECONNREFUSED), Why{Cut: fault.Down}, fault.Broke, fault.AtDial},
		"no descriptor":                     {at(upstream.StageDial, unix.EMFILE), Why{}, fault.Descriptors, fault.AtDial},
		"reset":                             {at(upstream.StageWrite, unix.ECONNRESET), Why{}, fault.Broke, fault.AtRequest},
		"reset as the client leaves":        {at(upstream.StageHead, unix.ECONNRESET), Why{Ended: fault.Gone}, fault.Gone, fault.AtHead},
		"down":                              {late, Why{Cut: fault.Down, Overdue: true}, fault.Down, fault.AtHead},
		"its time is over":                  {late, Why{}, fault.Timeout, fault.AtHead},
		"the request's time is over":        {late, Why{Overdue: true}, fault.Overdue, fault.AtHead},
		"given up, then reset":              {at(upstream.StageBody, io.EOF), Why{Late: true}, fault.Timeout, fault.AtBody},
		"reset in time":                     {at(upstream.StageBody, io.EOF), Why{Overdue: true}, fault.Broke, fault.AtBody},
		"long head":                         {at(upstream.StageHead, netio.ErrLongHead), Why{}, fault.LongHead, fault.AtHead},
		"too large":                         {upstream.ErrTooLarge, Why{}, fault.TooLarge, fault.AtLimit},
		"no room":                           {ErrNoRoom, Why{}, fault.NoRoom, fault.AtLimit},
		"cut short":                         {io.ErrUnexpectedEOF, Why{}, fault.Broke, fault.AtLimit},
	} {
		f := (&Attempt{Of: fault.Encode}).Fault(tc.err, tc.why)
		if f.Cause != tc.want || f.At != tc.far || f.Leg != fault.Prefill {
			t.Errorf("%s: %+v, want cause %d at %d", name, f, tc.want, tc.far)
		}
	}
}

// counted is a Meter that keeps what it is told.
type counted []router.Outcome

func (c *counted) Leg(_ fault.Leg, _ *router.Backend, o router.Outcome, _ fault.Code, _ time.Duration) {
	*c = append(*c, o)
}

// An attempt is counted once, and its lease is released once, however it ends. What a failure does not hold against a
// backend is still counted.
func TestAttemptEndsOnce(t *testing.T) {
	pools := router.DefaultConfig()
	pools.Decode, pools.Health.EjectAfter = router.MustEntries("http://127.0.0.1:1"), 1
	rt, err := router.New(pools, 1, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	var ends counted
	a := &Attempt{Of: fault.Decode, Meter: &ends}
	take := func() {
		t.Helper()
		if err := a.Take(rt.Snapshot(), router.Want{Role: router.Decode}); err != nil {
			t.Fatal(err)
		}
	}
	spared := &Failure{Verdict: fault.Verdict{Outcome: router.Timeout}, Spare: true}
	take()
	if f := a.Run(&Call{}, func(*router.Backend) *Failure { return spared }); f != spared {
		t.Errorf("%v", f)
	}
	a.End(End{})
	b := a.Lease.Backend
	if len(ends) != 1 || ends[0] != router.Timeout || b.InFlight() != 0 || b.Ejected() {
		t.Errorf("ended %v, %d in flight, ejected %v", ends, b.InFlight(), b.Ejected())
	}
	take()
	if f := a.Run(&Call{}, func(*router.Backend) *Failure { return nil }); f != nil || b.InFlight() != 1 {
		t.Errorf("%v, %d in flight", f, b.InFlight())
	}
	a.Free()
	if a.End(End{}); len(ends) != 1 || b.InFlight() != 0 {
		t.Errorf("ended %v, %d in flight", ends, b.InFlight())
	}
	if f := (&Failure{Verdict: fault.Verdict{Retry: fault.RetryPaid}, Told: fault.ErrGone()}); f.Final().Retry != fault.RetryNever || f.Retry != fault.RetryPaid || !errors.As(error(f), &f) {
		t.Errorf("%+v", f)
	}
}
