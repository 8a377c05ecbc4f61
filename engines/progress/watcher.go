package progress

import (
	"context"
	"sync"
	"time"

	"xpyd/router"
)

// Answer is what became of a canary.
type Answer uint8

// The answers.
const (
	Silent  Answer = iota // nothing came in time
	Failed                // the engine broke off or failed, which checks and legs judge
	Replied               // it works, or has refused the request
)

// Config is what a watcher needs from its owner.
type Config struct {
	Engines func() []*router.Backend
	Limits  func() Limits
	See     func(*router.Backend) Sight // all but the time, of one with a twin what both are
	Canary  func(context.Context, *router.Backend) Answer
	Settle  func(*router.Backend) // a canary has come back, see upstream.Client.Settle
	// Told is called for Name, Drop and Clear.
	Told func(*router.Backend, Step, Finding)
	// Slowly is called every few seconds, for what has more time.
	Slowly func(now time.Time)
	Guard  func(func()) (ok bool) // runs a function and survives its panic
}

const (
	lookEvery = 125 * time.Millisecond // a client waits for two looks more than for the limit
	slowly    = 3 * time.Second
	// overslept is the time between two looks after which silences begin anew, because this process stood still itself.
	overslept = time.Second
	passOver  = time.Second // for how long a wedged engine is passed over, after each look
)

// Watcher looks at all engines a few times a second.
type Watcher struct {
	cfg    Config
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu   sync.Mutex
	rows map[*router.Backend]*Row
}

// New starts a watcher. Close ends it.
func New(cfg Config) *Watcher {
	w := &Watcher{cfg: cfg, rows: map[*router.Backend]*Row{}}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	w.wg.Go(w.run)
	return w
}

// Close waits for canaries under way.
func (w *Watcher) Close() {
	w.cancel()
	w.wg.Wait()
}

func (w *Watcher) run() {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	last := time.Now()
	for slow := last; ; {
		select {
		case <-w.ctx.Done():
			return
		case <-tick.C:
		}
		now := time.Now()
		w.cfg.Guard(func() { w.look(now, now.Sub(last) > overslept) })
		if now.Sub(slow) >= slowly {
			slow = now
			w.cfg.Slowly(now)
		}
		last = time.Now()
	}
}

// process is the backend that stands for b's engine, which may have two roles.
func process(b *router.Backend) *router.Backend {
	if t := b.Twin(); t != nil && b.Role == router.Decode {
		return t
	}
	return b
}

// look looks at each engine once. With slept it has not looked for long, so no engine's silence until now counts.
func (w *Watcher) look(now time.Time, slept bool) {
	limits, seen := w.cfg.Limits(), map[*router.Backend]*Row{}
	for _, b := range w.cfg.Engines() {
		if b.Role != router.Encode && b == process(b) {
			seen[b] = w.row(b)
			w.visit(b, seen[b], now, limits, slept)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rows = seen
}

func (w *Watcher) row(b *router.Backend) *Row {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r := w.rows[b]; r != nil {
		return r
	}
	r := new(Row)
	w.rows[b] = r
	return r
}

func (w *Watcher) visit(b *router.Backend, r *Row, now time.Time, l Limits, slept bool) {
	s := w.cfg.See(b)
	s.At = now
	w.mu.Lock()
	if r.named.IsZero() && b.Trouble.Wedged() != nil { // its engine had another role then, and another row
		w.mu.Unlock()
		router.Unwedge(b, false)
		return
	}
	if down := b.State() == router.Down; down && !r.down || r.down && b.Trouble.Wedged() == nil {
		named := !r.named.IsZero()
		*r = Row{} // the checks have found what is wrong
		w.mu.Unlock()
		if named {
			router.Unwedge(b, false)
		}
		return
	}
	if slept && r.named.IsZero() {
		r.Shown(now)
	}
	step := r.Look(s, l)
	found, passed := r.Finding(s, l), !r.named.IsZero()
	w.mu.Unlock()
	if passed {
		b.Defer(passOver)
	}
	switch step {
	case Wait:
	case Ask:
		wait := canaryWait
		if !passed { // the rest of the limit is the canary's
			wait = max(wait, patience(found.Limit))
		}
		w.wg.Go(func() { w.ask(b, r, wait) })
	default:
		w.cfg.Told(b, step, found)
	}
}

// ask sends a canary, which may take so long.
func (w *Watcher) ask(b *router.Backend, r *Row, wait time.Duration) {
	ctx, cancel := context.WithTimeout(w.ctx, wait)
	defer cancel()
	began, answer := time.Now(), Silent
	w.cfg.Guard(func() { answer = w.cfg.Canary(ctx, b) })
	now := time.Now()
	w.mu.Lock()
	switch {
	case answer == Replied:
		r.CameBack(now, now.Sub(began))
	case answer == Failed && r.named.IsZero():
		r.Shown(now)
	}
	w.mu.Unlock()
	if answer == Replied {
		w.cfg.Settle(b)
	}
}

// Shown notes that b's own counters show work.
func (w *Watcher) Shown(b *router.Backend) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r := w.rows[process(b)]; r != nil {
		r.Shown(time.Now())
	}
}
