package encode

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	"xpyd/kvparams"
	"xpyd/netio/upstream"
	"xpyd/proxy/fault"
	"xpyd/proxy/leg"
	"xpyd/router"
)

// part is the leg that encodes some of the items, on one engine after the other.
type part struct {
	leg.Attempt
	first, last int // items, the last not included
	tried       []*router.Backend
	body        kvparams.Segments
	answer      []byte
	members     []byte // of ec_transfer_params; alias answer
	sent, done  bool
}

// run tries the leg on one engine after the other.
func (r *Run) run(i int) {
	l := &r.legs[i]
	l.Of, l.Meter = fault.Encode, r.cfg.Meter
	id := r.job.ID + "-e" + strconv.Itoa(i)
	defer l.Free()
	l.body = r.job.Req.AppendEncode(nil, l.first, l.last)
	for attempts := 0; !r.over() && r.acquire(l); {
		v := r.attempt(l, id)
		l.tried = append(l.tried, l.Lease.Backend)
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
func (r *Run) acquire(l *part) bool {
	want := r.job.Want
	r.mu.Lock()
	want.Skip = slices.Concat(l.tried, r.broke)
	deadly := len(r.broke) >= r.cfg.MaxBroken
	r.mu.Unlock()
	if deadly {
		return false
	}
	err := l.Acquire(r.job.Snap, want, r)
	if err != nil && !r.gone() {
		r.cfg.Log.Warn().Str("request_id", r.job.ID).Err(err).Msg("no encode backend, the next leg's engine encodes")
	}
	return err == nil
}

// Line has the request wait no longer than all legs may take together. Its turn is in the job's Want.
func (r *Run) Line(*router.Want) (time.Time, <-chan struct{}) { return r.end, r.job.Ending }

// Waited counts a wait for an engine.
func (r *Run) Waited(_ router.Role, d time.Duration) { r.cfg.Queued(d) }

// attempt runs the leg on the engine of its lease, and settles what follows from it.
func (r *Run) attempt(l *part, id string) fault.Verdict {
	call := leg.Call{Trace: r.job.Trace, ID: id, Path: r.job.Path, Fields: r.job.Fields, Round: 1, Down: l.down}
	failed := l.Run(&call, func(b *router.Backend) *leg.Failure { return r.exchange(l, b, id) })
	l.sent = l.sent || l.X.Sent()
	if failed != nil {
		return failed.Verdict
	}
	l.done = true
	l.End(leg.End{})
	return fault.Verdict{}
}

// down has another engine tried.
func (l *part) down() { l.X.Cut(leg.CutDown, time.Now()) }

// spares reports that a failure does not count for b. A timeout does not: the engine may have waited for the host of an
// image, which a client has named, and the time is that of all tries. And one image may fail all legs, so an
// engine's failures count once for a request.
func (r *Run) spares(b *router.Backend, o router.Outcome) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if o == router.Timeout || slices.Contains(r.blamed, b) {
		return true
	}
	r.blamed = append(r.blamed, b)
	return false
}

// failed judges a leg that failed, and notes what that says about its engine.
func (r *Run) failed(b *router.Backend, f fault.Fault, err error, id string) *leg.Failure {
	v := fault.Classify(f)
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
	return &leg.Failure{Verdict: v, Spare: r.spares(b, v.Outcome)}
}

// exchange sends the leg and reads its answer.
func (r *Run) exchange(l *part, b *router.Backend, id string) *leg.Failure {
	req := &upstream.Request{
		Method: "POST", Path: r.job.Target, ID: id, Fields: l.Fields(r.job.Fields), Body: l.body, Fresh: len(l.tried) > 0, End: r.end,
	}
	err := l.X.Do(r.cfg.Client(b), req, r.end, true) // an encode may run twice
	if err == nil {
		l.answer, err = l.X.ReadAnswer(l.answer[:0], largestAnswer)
	}
	if err != nil {
		return r.failed(b, l.Fault(err, r.why(l)), err, id)
	}
	if status := l.X.Head.Status; status != http.StatusOK {
		return r.failed(b, r.cfg.Refused(status), errors.New("status "+strconv.Itoa(status)), id)
	}
	place := func(host []byte) (string, bool) { return r.cfg.Place(r.job.Snap, b, host) }
	if l.members, err = kvparams.Encodings(l.answer, place); err != nil {
		l.members = nil
		return r.failed(b, fault.Fault{Leg: fault.Prefill, At: fault.AtAnswer, Status: http.StatusOK, Cause: fault.Unusable}, err, id)
	}
	return nil
}

// why is what the run knows of an exchange that failed.
func (r *Run) why(l *part) leg.Why {
	w := leg.Why{Ended: fault.Cause(r.cut.Load()), Overdue: r.end.Equal(r.job.End)}
	if l.X.IsCut(leg.CutDown) {
		w.Cut = fault.Down
	}
	return w
}
