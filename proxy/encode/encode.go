// Package encode runs the encode legs of a completion. Its images, sounds and videos go to the engines of
// the encode pool, which compute what these are to the model. The engine of the next leg then loads the
// encodings in place of computing them.
//
// The stage is a help and no condition: an engine that finds no encoding computes it. So a leg that fails
// for good leaves its items to the next engine. Only a request over which Config.MaxBroken engines broke off
// goes no further. No engine pins anything for these legs, and nothing has to be given back.
package encode

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"xpyd/kvparams"
	"xpyd/metrics/trace"
	"xpyd/netio/upstream"
	"xpyd/proxy/fault"
	"xpyd/proxy/leg"
	"xpyd/router"
)

const (
	// maxLegs bounds the legs of a request, which run at once. Further items share them.
	maxLegs = 8
	// maxAttempts is how many engines a leg is tried on that may have worked on it. One that refuses the
	// connection does not count.
	maxAttempts = 2
	// largestAnswer is that of a leg, in bytes. Real ones have some hundred an item.
	largestAnswer = 1 << 20
)

// Config is what a stage needs of the process around it.
type Config struct {
	Router  *router.Router
	Client  func(*router.Backend) *upstream.Client
	Suspect func(*router.Backend)                                                     // has a backend checked at once
	Refused func(status int) fault.Fault                                              // of an answer that is not a 200, as a prefill leg's
	Place   func(*router.Snapshot, *router.Backend, []byte) (instead string, ok bool) // see handoff.Keeper.Place
	Live    func() int64                                                              // completions under way
	Guard   func(func()) (ok bool)                                                    // runs what may panic, and survives it
	Queued  func(time.Duration)                                                       // counts a wait for a full pool
	Items   func(encoded, left int)                                                   // counts the items of a request
	Meter   leg.Meter                                                                 // counts a leg
	// MaxBroken is how many engines may break off over a request before no further leg of it begins.
	MaxBroken int
	Log       zerolog.Logger
}

// Stage runs the encode legs of one process.
type Stage struct{ cfg Config }

// New makes a stage, which runs nothing by itself.
func New(cfg Config) *Stage { return &Stage{cfg} }

// Job is the request whose items are encoded. All of it stays valid until Run.Do returns.
type Job struct {
	Req    *kvparams.Request
	Snap   *router.Snapshot
	Want   router.Want // of the encode pool
	ID     string      // that of the other legs
	Path   string
	Target string // Path with the client's query
	Fields []byte
	Trace  trace.Request
	Limit  time.Duration   // of all legs together
	End    time.Time       // of the request
	Ending <-chan struct{} // closed when the request is interrupted
}

// Run is the encode stage of one request. One goroutine owns it, and others may only call Cut. A nil Run is
// that of a request without items.
type Run struct {
	cfg     *Config
	job     Job
	legs    []part
	end     time.Time
	took    time.Duration
	cut     atomic.Uint32 // the fault.Cause of Cut; 0 before it
	members []byte

	mu     sync.Mutex
	broke  []*router.Backend // that broke off over the request
	blamed []*router.Backend // of which a failure has been counted
	asked  bool              // whether the legs may be tried again, which is once for all of them
	paid   bool              // they may, and hold a unit of the retry budget
}

// Begin returns the run of a job, or nil if the request has nothing to encode apart, or nobody for it.
func (s *Stage) Begin(job Job) *Run {
	items := job.Req.Media()
	if items == 0 || !job.Snap.Pooled(router.Encode) || job.Snap.Lacks(router.Encode, job.Want.Model) {
		return nil
	}
	n := min(items, maxLegs)
	r := &Run{cfg: &s.cfg, job: job, legs: make([]part, n), end: time.Now().Add(job.Limit)}
	if job.End.Before(r.end) {
		r.end = job.End
	}
	for i := range r.legs {
		r.legs[i].first, r.legs[i].last = items*i/n, items*(i+1)/n
	}
	return r
}

// Do runs the legs and waits for all of them.
func (r *Run) Do() {
	started := time.Now()
	var wg sync.WaitGroup
	for i := range r.legs[1:] {
		wg.Go(func() { r.cfg.Guard(func() { r.run(i + 1) }) })
	}
	r.cfg.Guard(func() { r.run(0) })
	wg.Wait()
	if r.paid {
		r.cfg.Router.ReturnRetry()
	}
	r.took = time.Since(started)
	for i := range r.legs {
		if m := r.legs[i].members; len(m) > 0 {
			if len(r.members) > 0 {
				r.members = append(r.members, ',')
			}
			r.members = append(r.members, m...)
		}
		r.legs[i].body, r.legs[i].answer, r.legs[i].members = nil, nil, nil // the run lives as long as its request
	}
	left := r.left()
	r.cfg.Items(r.job.Req.Media()-left, left)
}

// left is how many items no encode engine has encoded.
func (r *Run) left() (n int) {
	for i := range r.legs {
		if l := &r.legs[i]; !l.done {
			n += l.last - l.first
		}
	}
	return n
}

// Cut ends the legs, because the client has left or the process ends.
func (r *Run) Cut(why fault.Cause) {
	if r == nil {
		return
	}
	r.cut.CompareAndSwap(uint32(fault.NoCause), uint32(why))
	ended := leg.CutGone
	if why == fault.Stopped {
		ended = leg.CutStop
	}
	for i := range r.legs {
		r.legs[i].X.Cut(ended, time.Now())
	}
}

// Sent reports whether an engine has had a byte of the request.
func (r *Run) Sent() bool {
	for i := range r.legs {
		if r.legs[i].sent {
			return true
		}
	}
	return false
}

// Broken is how many engines broke off over the request.
func (r *Run) Broken() int { return len(r.broke) }

// AppendTo adds what the engines said of the encodings to the body of the leg that computes the prompt.
func (r *Run) AppendTo(body kvparams.Segments) kvparams.Segments {
	if r == nil || len(r.members) == 0 {
		return body
	}
	return r.job.Req.AppendEncodings(body, r.members)
}

// Forget is called once an engine has had a byte of such a leg. Legs that begin later go without, because that one may
// have failed of what it carried.
func (r *Run) Forget() {
	if r != nil {
		r.members = nil
	}
}

// Log adds the stage to the line of its request.
func (r *Run) Log(e *zerolog.Event) {
	if r == nil {
		return
	}
	var urls []string
	for i := range r.legs {
		if b := r.legs[i].Lease.Backend; b != nil && r.legs[i].done {
			urls = append(urls, b.URL)
		}
	}
	e.Strs("encode", urls).Int("encode_items", r.legs[len(r.legs)-1].last).Int("encode_left", r.left()).
		Float64("encode_ms", float64(r.took.Microseconds())/1000)
}
