package encode

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	"xpyd/kvparams"
	"xpyd/metrics/trace"
	"xpyd/netio/upstream"
	"xpyd/proxy/fault"
	"xpyd/router"
)

// What cuts a leg.
const (
	_        upstream.Cause = iota
	cutEnded                // the client has left, or the process ends
	cutDown                 // health checks took the backend down
)

// leg encodes some items on one engine.
type leg struct {
	first, last int // items, the last not included
	x           upstream.Exchange
	lease       router.Lease
	tried       []*router.Backend
	span        trace.Leg
	body        kvparams.Segments
	answer      []byte
	members     []byte // of ec_transfer_params; alias answer
	sent, done  bool
}

// run tries the leg on one engine after the other.
func (r *Run) run(i int) {
	l := &r.legs[i]
	id := r.job.ID + "-e" + strconv.Itoa(i)
	defer l.lease.Release(router.NoVerdict)
	defer l.x.Drop()
	l.body = r.job.Req.AppendEncode(nil, l.first, l.last)
	for attempts := 0; !r.over() && r.acquire(l); {
		v := r.attempt(l, id)
		l.tried = append(l.tried, l.lease.Backend)
		if l.done || r.over() || v.Retry == fault.RetryNever {
			return
		}
		if v.Retry == fault.RetryFree {
			continue
		}
		if attempts++; attempts == maxAttempts || !r.mayRetry() {
			return
		}
	}
}

// mayRetry takes a unit of the retry budget for all legs, as they are of one request: with one for each, the
// images of a few requests would hold what prefill and decode legs need.
func (r *Run) mayRetry() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.asked {
		r.asked, r.paid = true, r.cfg.Router.TakeRetry(r.cfg.Live(), false)
	}
	return r.paid
}

// gone reports that nobody wants the encodings any more.
func (r *Run) gone() bool { return fault.Cause(r.cut.Load()) != fault.NoCause }

// over reports that no leg may begin any more.
func (r *Run) over() bool { return r.gone() || !time.Now().Before(r.end) }

// acquire takes a lease, and waits for one if all engines are full. It returns false without one.
func (r *Run) acquire(l *leg) bool {
	want := r.job.Want
	r.mu.Lock()
	want.Skip = slices.Concat(l.tried, r.broke)
	deadly := len(r.broke) >= r.cfg.MaxBroken
	r.mu.Unlock()
	if deadly {
		return false
	}
	err := r.job.Snap.AcquireFor(want, &l.lease)
	if line := r.job.Snap.Queue(); line.Length > 0 && errors.Is(err, router.ErrBusy) {
		queued := time.Now()
		line.Wait = min(line.Wait, r.end.Sub(queued))
		err = r.job.Snap.AcquireWait(want, &l.lease, line, r.job.Ending)
		r.cfg.Queued(time.Since(queued))
	}
	if err != nil && !r.gone() {
		r.cfg.Log.Warn().Str("request_id", r.job.ID).Err(err).Msg("no encode backend, the next leg's engine encodes")
	}
	return err == nil
}

// attempt runs the leg on the engine of its lease, and settles what follows from it.
func (r *Run) attempt(l *leg, id string) fault.Verdict {
	b, started := l.lease.Backend, time.Now()
	l.lease.OnDown(func() { l.x.Cut(cutDown, time.Now()) })
	r.job.Trace.Leg(&l.span, "encode", b.URL, r.job.Path, 1, r.job.Fields)
	f, err := r.exchange(l, id)
	l.lease.OnDown(nil)
	l.sent = l.sent || l.x.Sent()
	end := trace.LegEnd{ID: id, Status: l.x.Head.Status, Outcome: router.OK.String()}
	var v fault.Verdict // of a success, whose outcome is OK
	if l.done = f.Cause == fault.NoCause; l.done {
		l.x.Finish()
	} else {
		l.x.Drop()
		v = fault.Classify(f)
		end.Outcome, end.Code = v.Outcome.String(), v.Outcome.String()
		r.failed(b, v, err, id)
	}
	l.x.Uncut(cutDown) // it does not hold for the next backend
	l.span.End(end)
	r.cfg.Ended(b, v.Outcome, time.Since(started))
	l.lease.Release(r.blame(b, v.Outcome))
	return v
}

// blame is the outcome that counts for b. A timeout does not: the engine may have waited for the host of an
// image, which a client has named, and the time is that of all tries. And one image may fail all legs, so an
// engine's failures count once for a request.
func (r *Run) blame(b *router.Backend, o router.Outcome) router.Outcome {
	if o == router.OK {
		return o
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if o == router.Timeout || slices.Contains(r.blamed, b) {
		return router.NoVerdict
	}
	r.blamed = append(r.blamed, b)
	return o
}

// failed notes what a failed leg says about its engine.
func (r *Run) failed(b *router.Backend, v fault.Verdict, err error, id string) {
	if v.Probe || v.Outcome == router.Timeout {
		r.cfg.Suspect(b)
	}
	var ue *upstream.Error
	if errors.As(err, &ue) && ue.BrokeOff() {
		r.mu.Lock()
		if !slices.Contains(r.broke, b) {
			r.broke = append(r.broke, b)
		}
		r.mu.Unlock()
	}
	if !r.gone() {
		r.cfg.Log.Warn().Str("request_id", r.job.ID).Str("leg_id", id).Str("encode", b.URL).Stringer("outcome", v.Outcome).
			Err(err).Msg("encode leg failed")
	}
}

// exchange sends the leg and reads its answer. It returns how that failed, as a prefill leg's failure.
func (r *Run) exchange(l *leg, id string) (fault.Fault, error) {
	req := &upstream.Request{
		Method: "POST", Path: r.job.Target, ID: id, Fields: l.span.Fields(r.job.Fields), Body: l.body, Fresh: len(l.tried) > 0, End: r.end,
	}
	err := l.x.Do(r.cfg.Client(l.lease.Backend), req, r.end, true) // an encode may run twice
	if err == nil {
		l.answer, err = l.x.ReadAnswer(l.answer[:0], largestAnswer)
	}
	if err != nil {
		return r.broken(l, err), err
	}
	if status := l.x.Head.Status; status != http.StatusOK {
		return r.cfg.Refused(status), errors.New("status " + strconv.Itoa(status))
	}
	place := func(host []byte) (string, bool) { return r.cfg.Place(r.job.Snap, l.lease.Backend, host) }
	if l.members, err = kvparams.Encodings(l.answer, place); err != nil {
		l.members = nil
		return fault.Fault{Leg: fault.Prefill, At: fault.AtAnswer, Status: http.StatusOK, Cause: fault.Unusable}, err
	}
	return fault.Fault{}, nil
}

// broken says how an exchange failed.
func (r *Run) broken(l *leg, err error) fault.Fault {
	f := fault.Fault{Leg: fault.Prefill, At: fault.AtLimit, Status: l.x.Head.Status, Cause: fault.TooLarge}
	var ue *upstream.Error
	if !errors.As(err, &ue) {
		return f
	}
	f.At = fault.AtDial + fault.Progress(ue.Stage) // both are in the order of an exchange
	switch {
	case r.gone():
		f.Cause = fault.Cause(r.cut.Load())
	case f.At == fault.AtDial && upstream.IsLocal(ue.Err):
		f.Cause = fault.Descriptors
	case f.At == fault.AtDial:
		f.Cause = fault.Broke
	case l.x.IsCut(cutDown):
		f.Cause = fault.Down
	case ue.TimedOut() && r.end.Equal(r.job.End):
		f.Cause = fault.Overdue
	case ue.TimedOut():
		f.Cause = fault.Timeout
	case ue.LongHead():
		f.Cause = fault.LongHead
	default:
		f.Cause = fault.Broke
	}
	return f
}
