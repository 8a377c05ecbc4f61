package engines

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"xpyd/engines/progress"
	"xpyd/kvparams"
	"xpyd/netio/upstream"
	"xpyd/router"
)

const (
	pollPage    = 4 << 20                // bytes of a metrics page; a real engine's has 60 to 200 KiB
	pollAtOnce  = 16                     // readings under way at a time
	pollSpacing = time.Second / 256      // least mean time between two readings, over all backends
	pollCounts  = 3                      // intervals that a reading counts for; failures until a log line
	pollTick    = 10 * time.Millisecond  // least time between two looks at what is due
	pollIdle    = 500 * time.Millisecond // how often the configuration is read while polling is off
)

// These say why nothing is known of an engine if no reading says so.
const (
	pollOff      = "routing.poll is 0"
	pollNotYet   = "not read yet"
	pollNotServe = "not read while the backend is not up"
	pollTooOld   = "the last reading is too old"
	pollNoRanks  = "it has not said yet how many data-parallel ranks it has"
	pollDisabled = "not read while the backend is disabled"
)

// PollerConfig is what a poller needs from the process around it.
type PollerConfig struct {
	Router *router.Router
	Client func(*router.Backend) *upstream.Client // returns nil for a removed backend
	Series func(*router.Backend) *kvparams.Series // the names of an engine's metrics; nil for vLLM's names
	Fields []byte                                 // header lines of each request, with the key for the engines
	Count  func(ok bool)                          // counts a reading
	Ranks  func(engine string, ranks int)         // learns how many ranks an engine has
	Guard  func(func()) (ok bool)                 // runs a function and survives its panic
	// Restarted learns that an engine's process is another one than at the last reading.
	Restarted func(*router.Backend)
	// Worked learns that an engine's counters have grown since the last reading.
	Worked func(*router.Backend)
	Log    zerolog.Logger
}

// Poller reads the metrics of each engine every routing.poll, over the connections that completions
// use. A reading never makes a backend worse, and never better unless its engine has restarted.
type Poller struct {
	cfg    PollerConfig
	ctx    context.Context
	cancel context.CancelFunc
	slots  chan struct{}
	pages  sync.Pool // of *[]byte
	wg     sync.WaitGroup

	mu      sync.Mutex
	targets map[*router.Backend]*pollTarget
}

// pollTarget is what the poller knows of a backend. Guarded by Poller.mu.
type pollTarget struct {
	busy   bool
	due    time.Time
	every  time.Duration // between readings, as configured when due was computed
	fails  int           // failed or incomplete readings in a row
	blank  int           // readings in a row that reported nothing
	why    string        // why the last reading failed or was incomplete; empty if neither
	said   bool          // the log has a line that readings fail
	missed string        // what the log has said of ranks that the pool leaves out; belongs to the reading too
	reuse  reuse         // belongs to the reading under way, and not to the mutex
	seen   int64         // the round that last found it in the configuration
}

// NewPoller starts a poller. Close ends it.
func NewPoller(cfg PollerConfig) *Poller {
	p := &Poller{cfg: cfg, slots: make(chan struct{}, pollAtOnce), targets: map[*router.Backend]*pollTarget{}}
	p.pages.New = func() any { return new([]byte) }
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.wg.Go(p.run)
	return p
}

// Close breaks off running readings.
func (p *Poller) Close() {
	p.cancel()
	p.wg.Wait()
}

func (p *Poller) run() {
	for round := int64(1); ; round++ {
		wait := pollIdle
		p.cfg.Guard(func() { wait = p.round(round, time.Now()) })
		select {
		case <-p.ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// round starts the readings that are due and returns the time until the next round.
func (p *Poller) round(n int64, now time.Time) time.Duration {
	snap := p.cfg.Router.Snapshot()
	every := snap.Poll()
	if every <= 0 {
		return pollIdle
	}
	read := enabled(snap)
	every = max(every, time.Duration(len(read))*pollSpacing)
	wait := min(every, pollIdle)
	for _, b := range read {
		wait = min(wait, p.visit(snap, b, n, now, every))
	}
	p.forget(n, len(read))
	return max(wait, pollTick)
}

// enabled lists the backends whose engines are asked for more than their health, one of each engine.
func enabled(snap *router.Snapshot) (all []*router.Backend) {
	for _, role := range router.Roles() {
		for _, m := range snap.Members(role) {
			if m.Entry.State != router.Disabled && leadOf(m.Backend) == m.Backend {
				all = append(all, m.Backend)
			}
		}
	}
	return all
}

// visit reads b if b is due, and returns the time until the next visit.
func (p *Poller) visit(snap *router.Snapshot, b *router.Backend, round int64, now time.Time, every time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.targets[b]
	if t == nil {
		t = &pollTarget{why: pollNotYet}
		p.targets[b] = t
	}
	t.seen = round
	if every < t.every { // a reload has shortened the interval
		t.due = now.Add(time.Duration(float64(every) * rand.Float64()))
	}
	t.every = every
	switch left := t.due.Sub(now); {
	case b.State() != router.Up:
		t.fails, t.blank, t.due = 0, 0, time.Time{} // b is read as soon as it is up
		return every
	case t.busy:
		return every
	case left > 0:
		return left
	}
	select {
	case p.slots <- struct{}{}:
	default:
		return pollTick
	}
	t.busy = true
	p.wg.Go(func() { p.work(snap, b, t, every) })
	return every
}

// forget drops what is known of backends that the last round did not find in the configuration.
func (p *Poller) forget(round int64, backends int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.targets) == backends {
		return
	}
	for b, t := range p.targets {
		if t.seen != round && !t.busy {
			delete(p.targets, b)
		}
	}
}

// work makes one reading in the slot that visit has taken. A backend whose readings report nothing
// is read less and less often, down to once in 32 intervals. The wait after a first reading is a
// random part of the interval, so that the readings of many backends spread out.
func (p *Poller) work(snap *router.Snapshot, b *router.Backend, t *pollTarget, every time.Duration) {
	defer func() { <-p.slots }()
	told, err := false, errors.New("panic")
	p.cfg.Guard(func() { told, err = p.read(snap, b, t, pollCounts*every) })
	if p.ctx.Err() != nil {
		return
	}
	p.cfg.Count(err == nil)
	p.mu.Lock()
	defer p.mu.Unlock()
	t.busy = false
	wait := time.Duration(float64(every) * (0.9 + 0.2*rand.Float64()))
	if t.due.IsZero() {
		wait = time.Duration(float64(every) * rand.Float64())
	}
	t.note(told, err)
	t.due = time.Now().Add(wait << min(max(t.blank-pollCounts, 0), 5))
	p.tell(b, t)
}

// note counts how a reading ended.
func (t *pollTarget) note(told bool, err error) {
	t.blank++
	if told {
		t.blank = 0
	}
	if err == nil {
		t.fails, t.why = 0, ""
		return
	}
	t.fails++
	t.why = err.Error()
}

// tell logs once that the readings of a backend fail, and once that they no longer do.
func (p *Poller) tell(b *router.Backend, t *pollTarget) {
	switch {
	case !t.said && t.fails >= pollCounts:
		t.said = true
		p.cfg.Log.Warn().Str("role", b.Role.String()).Str("backend", b.URL).Str("error", t.why).
			Msg("engine's load is not known, or in part: it is routed by what xpyd knows itself")
	case t.said && t.fails == 0:
		t.said = false
		p.cfg.Log.Info().Str("role", b.Role.String()).Str("backend", b.URL).Msg("engine's load is known again")
	}
}

// read makes one reading, which counts for the given time. A page that reports only part of the load
// is an error, but counts for that part. told is true if the page reports any load.
func (p *Poller) read(snap *router.Snapshot, b *router.Backend, t *pollTarget, counts time.Duration) (told bool, err error) {
	buf := p.pages.Get().(*[]byte)
	defer p.pages.Put(buf)
	own, handed := ownLoad(snap, b), b.Handed()
	text, err := p.fetch(snap, b, (*buf)[:0])
	*buf = text
	if err != nil {
		return false, err
	}
	state, err := p.parse(text, b)
	if err != nil && state.Running < 0 && state.Waiting < 0 && state.KVUsage < 0 {
		return false, err // the last report stays until it is too old
	}
	worked := progress.Worked(b, &state)
	restarted := b.SetEngine(state, max(own, ownLoad(snap, b)), counts)
	if worked && !restarted {
		p.cfg.Worked(b)
	}
	p.noteReuse(b, &t.reuse, handed, &state, restarted)
	if p.cfg.Series(b) == nil {
		p.tellRanks(snap, b, t, len(RanksOn(text)))
	}
	if restarted {
		p.cfg.Restarted(b)
	}
	return true, err
}

func (p *Poller) parse(text []byte, b *router.Backend) (router.EngineState, error) {
	if series := p.cfg.Series(b); series != nil {
		return parseForeign(text, series, b.Rank)
	}
	return parsePage(text, labelOf(text, b.Rank))
}

// cutStop is the only cause for which this package cuts an exchange: the process ends.
const cutStop upstream.Cause = 1

// fetch appends the metrics page of an engine to dst. It shows the same key as the checks.
func (p *Poller) fetch(snap *router.Snapshot, b *router.Backend, dst []byte) ([]byte, error) {
	var x upstream.Exchange
	defer x.Finish()
	stop := context.AfterFunc(p.ctx, func() { x.Cut(cutStop, time.Now()) })
	defer stop()
	req := &upstream.Request{Method: "GET", Path: "/metrics", ID: "xpyd-poll", Fields: p.cfg.Fields, End: time.Now().Add(snap.Health().Timeout)}
	if err := x.Do(p.cfg.Client(b), req, req.End, true); err != nil {
		return dst, fmt.Errorf("get /metrics: %w", err)
	}
	dst, err := x.ReadAll(dst, pollPage)
	switch {
	case errors.Is(err, upstream.ErrTooLarge):
		err = fmt.Errorf("page larger than %d MiB", pollPage>>20)
	case err == nil && x.Head.Status != http.StatusOK:
		err = fmt.Errorf("status %d", x.Head.Status)
	}
	if err != nil {
		return dst, fmt.Errorf("get /metrics: %w", err)
	}
	return dst, nil
}

// ownLoad counts what this process has in flight on b's engine, which may be in several pools.
func ownLoad(snap *router.Snapshot, b *router.Backend) int64 {
	n := b.InFlight()
	for _, role := range router.Roles() {
		for _, o := range snap.Members(role) {
			if o.URL == b.URL && role != b.Role {
				n += o.InFlight()
			}
		}
	}
	return n
}

// Unknown says why xpyd knows an engine's load only in part or not at all. It is empty if xpyd knows
// all of it. state is what xpyd knows, or nil.
func (p *Poller) Unknown(b *router.Backend, state *router.EngineState) string {
	snap := p.cfg.Router.Snapshot()
	switch {
	case b.Rank == router.AutoRank:
		return pollNoRanks
	case snap.Poll() <= 0:
		return pollOff
	case snap.AdminState(b) == router.Disabled:
		return pollDisabled
	}
	if b.State() != router.Up {
		return pollNotServe
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch t := p.targets[leadOf(b)]; {
	case t == nil:
		return pollNotYet
	case t.why == "" && state == nil: // the next reading takes long
		return pollTooOld
	default:
		return t.why
	}
}
